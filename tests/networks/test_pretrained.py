"""A trained decoder taken over: found, checked, and bridged without a change to what it knew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import chess
import pytest
import torch
from queen_parts import ENCODER, STATE
from test_gguf import write
from tiny_decoder import tiny_llama, tiny_tokenizer, write_folder
from transformers import AutoModelForCausalLM, AutoTokenizer

from queen.errors import QueenError
from queen.language.tokenizer import add_chess_tokens, piece_ids, square_ids
from queen.networks.build import BridgeSettings, bridge_pretrained
from queen.networks.digest import weights_digest
from queen.networks.errors import NetworkError
from queen.networks.pretrained import folder_digest, load_config, load_decoder, locate_decoder
from queen.networks.queen import QueenModel

BRIDGE = BridgeSettings(states=(1, 3), layers=(0, 1), heads=4, state_mlp=24)
IDS = torch.arange(5, 29).view(2, 12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "decoder")


def bridged(folder: Path, **changes: Any) -> tuple[QueenModel, Any]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    known = len(tokenizer)
    assert add_chess_tokens(tokenizer) == 76
    bridge = replace(BRIDGE, **changes)
    model = bridge_pretrained(load_decoder(folder, {}), bridge, tokenizer, ENCODER, 0, known)
    return model.eval(), tokenizer


def states(count: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(count, 64, STATE, generator=generator) for _ in range(2)]


@pytest.mark.parametrize("spare", [0, 40, 100])
def test_the_old_vocabulary_keeps_its_logits(tmp_path: Path, spare: int) -> None:
    folder = write_folder(tmp_path / "decoder", spare=spare)
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    model, tokenizer = bridged(folder)
    old = len(tokenizer) - 76
    with torch.no_grad():
        before, after = plain(IDS).logits, model(IDS, states(2))
    assert after.shape[-1] == max(len(tokenizer), old + spare)
    assert torch.equal(after[..., :old], before[..., :old])


def test_a_new_token_begins_near_the_words_that_describe_it(folder: Path) -> None:
    model, tokenizer = bridged(folder)
    table = model.get_input_embeddings().weight.detach()
    spread = table[: len(tokenizer) - 76].std(0)

    def described(text: str) -> torch.Tensor:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return table[ids].mean(0)

    for token, text in ((square_ids(tokenizer)[chess.E4], " e4"),
                        (piece_ids(tokenizer)[7], " black knight")):  # fmt: skip
        away = (table[token] - described(text)) / spread
        assert 0 < away.abs().max() < 0.5
    fresh = table[len(tokenizer) - 76 :]
    assert len(torch.unique(fresh, dim=0)) == 76


def test_rows_to_spare_are_used_before_the_table_grows(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "decoder", spare=100)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    model, tokenizer = bridged(folder)
    before, after = plain.get_input_embeddings().weight, model.get_input_embeddings().weight
    assert after.shape == before.shape
    changed = (after != before).any(1).nonzero()[:, 0].tolist()
    assert changed == list(range(len(tokenizer) - 76, len(tokenizer)))


def test_an_open_gate_is_heard_and_the_model_comes_back_from_disk(
    folder: Path, tmp_path: Path
) -> None:
    model, _ = bridged(folder, gate_init=0.5)
    model.save_pretrained(tmp_path / "saved")
    again = QueenModel.from_pretrained(tmp_path / "saved").eval()
    assert weights_digest(again) == weights_digest(model)
    with torch.no_grad():
        heard = model(IDS, states(2))
        assert not torch.allclose(heard, model(IDS))
        assert torch.equal(again(IDS, states(2)), heard)


def test_the_seed_decides_all_that_is_new(folder: Path) -> None:
    torch.manual_seed(5)
    first = weights_digest(bridged(folder)[0])
    torch.manual_seed(6)
    assert weights_digest(bridged(folder)[0]) == first


def test_a_folder_is_found_by_path_and_by_path_in_the_project(folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert locate_decoder(str(folder), tmp_path / "elsewhere", cache) == folder
    assert locate_decoder("decoder", tmp_path, cache) == folder
    assert not cache.exists()


def test_a_gguf_file_is_converted_once(tmp_path: Path) -> None:
    file = write(tmp_path / "net.gguf", tiny_llama(len(tiny_tokenizer())))
    first = locate_decoder("net.gguf", tmp_path, tmp_path / "cache")
    stamp = (first / "config.json").stat().st_mtime_ns
    assert first.parent == tmp_path / "cache"
    assert locate_decoder(str(file), tmp_path, tmp_path / "cache") == first
    assert (first / "config.json").stat().st_mtime_ns == stamp
    assert load_decoder(first, {"hidden_size": 32}).dtype == torch.float32


def test_the_digest_is_that_of_every_file(folder: Path) -> None:
    before = folder_digest(folder)
    assert folder_digest(folder) == before
    (folder / "notes.md").write_text("beside the point")
    assert folder_digest(folder) == before
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert folder_digest(folder) != before


def test_another_shape_than_the_params_say_is_refused(folder: Path) -> None:
    shape = {"hidden_size": 32, "num_hidden_layers": 36}
    with pytest.raises(NetworkError, match=r"num_hidden_layers is 2, decoder\.shape says 36"):
        load_config(folder, shape)
    with pytest.raises(NetworkError, match="num_hidden_layers"):
        load_decoder(folder, shape)


def test_what_is_no_decoder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NetworkError, match=r"config\.json is missing"):
        locate_decoder("empty", tmp_path, tmp_path)
    with pytest.raises(NetworkError, match="neither a folder, a GGUF file") as fault:
        locate_decoder("data/nets/absent", tmp_path, tmp_path)
    assert "smollm2-135m" in fault.value.remedy
    broken = write_folder(tmp_path / "broken")
    (broken / "config.json").write_text("{}")
    with pytest.raises(QueenError, match="not a decoder"):
        load_decoder(broken, {})
