from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from queen_parts import LAYERS, NAMES, SIZE, Names, family, queen, queen_of, states, tokens
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, DynamicCache

from queen.networks.bridge import Bridge, BridgeShape
from queen.networks.build import (
    BridgeSettings,
    DecoderSettings,
    EncoderInfo,
    Vocabulary,
    build_queen,
)
from queen.networks.digest import weights_digest
from queen.networks.errors import NetworkError
from queen.networks.queen import QueenModel, decoder_layers, freeze
from queen.networks.settings import reads_fen

FAMILIES = ["smollm3", "llama", "gpt2"]


@pytest.mark.parametrize("name", FAMILIES)
def test_at_the_start_the_logits_are_the_decoders_own(name: str) -> None:
    model = queen_of(name)
    plain = AutoModelForCausalLM.from_config(family(name)).eval()
    plain.load_state_dict(model.decoder.state_dict())
    ids = tokens(3, 9)
    with torch.no_grad():
        assert torch.equal(model(ids, states(3)), plain(ids).logits)
        assert torch.equal(model(ids), plain(ids).logits)


@pytest.mark.parametrize("name", FAMILIES)
def test_open_gates_change_the_logits_of_every_layer_they_stand_before(name: str) -> None:
    model, ids = queen_of(name), tokens(2, 9)
    with torch.no_grad():
        shut = model(ids, states(2))
        for bridge in model.blocks:
            bridge.attention_gate.fill_(0.5)
            opened = model(ids, states(2))
            assert not torch.allclose(shut, opened)
            assert not torch.allclose(opened, model(ids, states(2, seed=1)))
            bridge.attention_gate.fill_(0.0)
        assert torch.equal(model(ids, states(2)), shut)


def test_a_forward_that_fails_leaves_no_context_behind() -> None:
    model, ids = queen(gate=0.5), tokens(2, 5)
    with torch.no_grad():
        plain = model(ids)
        with pytest.raises(IndexError):
            model(ids + SIZE, states(2))
        assert torch.equal(model(ids), plain)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_saved_model_comes_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    model, ids = queen_of(name, gate_init=0.3), tokens(2, 7)
    model.save_pretrained(tmp_path)
    again = QueenModel.from_pretrained(tmp_path).eval()
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}
    assert weights_digest(again) == weights_digest(model)
    with torch.no_grad():
        assert torch.equal(model(ids, states(2)), again(ids, states(2)))
    head, table = again.get_output_embeddings().weight, again.get_input_embeddings().weight
    assert (head is table) == (name != "llama")


def test_the_checkpoint_holds_no_encoder_and_keeps_the_decoders_names(tmp_path: Path) -> None:
    queen().save_pretrained(tmp_path)
    names = set(load_file(tmp_path / "model.safetensors"))
    assert {name.split(".")[0] for name in names} == {"decoder", "bridges"}
    assert "decoder.model.layers.0.self_attn.q_proj.weight" in names
    config = QueenModel.from_pretrained(tmp_path).config
    assert (config.encoder_digest, config.bridge_states) == ("digest", [1, 3])


def test_the_seed_alone_decides_the_weights() -> None:
    torch.manual_seed(1)
    first = weights_digest(queen(seed=4))
    torch.manual_seed(2)
    assert weights_digest(queen(seed=4)) == first
    assert weights_digest(queen(seed=5)) != first


def test_a_packed_row_gives_the_logits_of_its_parts() -> None:
    model, held = queen(gate=0.7), states(3)
    parts = [tokens(1, length, seed=length) for length in (5, 8, 3)]
    lengths = [part.shape[1] for part in parts]
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
    seen = (owner[:, None] == owner) & torch.ones(16, 16, dtype=torch.bool).tril()
    positions = torch.cat([torch.arange(length) for length in lengths])
    with torch.no_grad():
        packed = model(
            torch.cat(parts, 1),
            held,
            rows=owner[None],
            attention_mask=torch.zeros(16, 16).masked_fill(~seen, -torch.inf)[None, None],
            position_ids=positions[None],
        )
        alone = [model(p, [s[i : i + 1] for s in held]) for i, p in enumerate(parts)]
    assert torch.allclose(packed, torch.cat(alone, 1), atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_checkpointing_gives_the_same_gradients(name: str) -> None:
    model, ids, held = queen_of(name, gate_init=0.4).train(), tokens(2, 6), states(2)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    twin = copy.deepcopy(model)
    twin.activation_checkpointing_enable()
    assert all(bridge.gradient_checkpointing for bridge in twin.blocks)
    for each in (model, twin):
        each(ids, held).square().mean().backward()
    pairs = zip(model.named_parameters(), twin.parameters(), strict=True)
    for (key, own), other in pairs:
        assert own.grad is not None, key
        assert torch.allclose(own.grad, other.grad, atol=1e-6), key


def test_a_copied_model_reads_through_its_own_bridges() -> None:
    model, ids = queen(gate=0.5), tokens(1, 4)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        before = twin(ids, states(1))
        for bridge in model.blocks:
            bridge.attention_gate.fill_(5.0)
        assert torch.equal(twin(ids, states(1)), before)


def test_cached_steps_give_the_full_forwards_logits() -> None:
    model, ids, held = queen(gate=0.5), tokens(2, 8), states(2)
    cache = DynamicCache()
    with torch.no_grad():
        context = model.context(held)
        steps = [model(ids[:, t : t + 1], context=context, cache=cache) for t in range(8)]
        assert torch.allclose(torch.cat(steps, 1), model(ids, held), atol=1e-5)


def test_bridges_of_the_papers_size_have_the_papers_count() -> None:
    plain = BridgeShape(2048, 1024, 2048, 16, 4096, tied_keys=False, state_mlp=0)
    ours = BridgeShape(2048, 1024, 2048, 16, 4096, tied_keys=True, state_mlp=1024)
    with torch.device("meta"):
        counts = [
            16 * sum(p.numel() for p in Bridge(shape).parameters()) for shape in (plain, ours)
        ]
    assert counts[0] == pytest.approx(469.8e6, abs=0.05e6)
    assert counts[1] - counts[0] == pytest.approx(67e6 + 34e6, rel=0.03)


def test_the_small_model_has_about_a_million_and_a_half_parameters() -> None:
    from queen.networks.build import DecoderSettings, EncoderInfo, build_queen

    model = build_queen(
        DecoderSettings(), BridgeSettings(), Names(), EncoderInfo("maia", "", 7, 64), 0
    )
    count = sum(p.numel() for p in model.parameters()) + (1000 - SIZE) * 128
    assert count == pytest.approx(1.45e6, rel=0.1)


def test_parts_that_do_not_fit_are_named() -> None:
    with pytest.raises(NetworkError, match="1 states given to 2 bridges"):
        queen()(tokens(1, 3), states(1)[:1])
    with pytest.raises(NetworkError, match="bridge_layers"):
        queen(layers=(0, LAYERS))
    with pytest.raises(NetworkError, match="bridge_states"):
        queen(states=(1, 9))
    with pytest.raises(NetworkError, match="cannot freeze"):
        freeze(queen(), ["encoder"])
    with pytest.raises(NetworkError, match="no list of layers"):
        decoder_layers(torch.nn.Linear(2, 2))


def test_a_model_without_bridges_says_that_it_reads_the_fen(tmp_path: Path) -> None:
    for name, bridge, blind in (
        ("blind", {"layers": (), "states": ()}, True),
        ("seeing", {}, False),
    ):
        made = queen(**bridge)
        made.save_pretrained(tmp_path / name)
        assert made.config.reads_fen == reads_fen(tmp_path / name) == blind
        again = QueenModel.from_pretrained(tmp_path / name)
        assert again.config.reads_fen == blind
        assert (len(again.blocks) == 0) == blind
    (tmp_path / "config.json").write_text("{}")
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NetworkError, match="not the config of a QUEEN"):
            reads_fen(folder)


def test_a_tokenizer_without_chess_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    short = {name: index for index, name in enumerate(NAMES) if name != "<e4>"}
    monkeypatch.setattr(Names, "get_vocab", lambda self: short)
    with pytest.raises(NetworkError, match="<e4>"):
        Vocabulary.of(Names())


def test_squares_of_a_file_or_rank_begin_alike() -> None:
    settings = DecoderSettings(embedding_std=0.2, square_geometry=True)
    model = build_queen(settings, BridgeSettings(), Names(), EncoderInfo("maia", "", 7, 64), 0)
    squares = model.square_embeddings().detach()
    assert squares.std().item() == pytest.approx(0.2, rel=0.1)
    unit = torch.nn.functional.normalize(squares, dim=1)
    alike, index = unit @ unit.T, torch.arange(64)
    file, rank = index % 8 == (index % 8)[:, None], index // 8 == (index // 8)[:, None]
    assert alike[file ^ rank].mean().item() == pytest.approx(1 / 3, abs=0.1)
    assert alike[~file & ~rank].mean().item() == pytest.approx(0, abs=0.1)
