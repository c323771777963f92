"""From folders to a speaker: in this process or in others, and who says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from generation_parts import positions, tokenizer

from queen.generation.loading import Loading, load_generator, load_speaker
from queen.generation.pool import GeneratorPool
from queen.generation.requests import GenerationError, Sampling
from queen.generation.speaker import Asked
from queen.language.tokenizer import save_tokenizer
from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.digest import weights_digest
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.format import POLICY_CONVOLUTION, SE_HEADS, VALUE_WDL, NetFormat
from queen.networks.lc0.load import save_encoder
from queen.networks.lc0.resnet import ResNetShape, build_resnet
from queen.networks.queen import QueenModel

DRAWN = Sampling(temperature=1.0, max_new_tokens=8)


@pytest.fixture(scope="module")
def loading(tmp_path_factory: pytest.TempPathFactory) -> Loading:
    """A small model and its small encoder, as stages leave them."""
    torch.manual_seed(1)
    root = tmp_path_factory.mktemp("loading")
    form = NetFormat(1, 2, SE_HEADS, POLICY_CONVOLUTION, VALUE_WDL)
    encoder = build_resnet(Lc0Config(form, ResNetShape(8, (4,), 8, 0, 0, 0, 0, 0, 2, 4, 0, 0)))
    info = EncoderInfo("small", weights_digest(encoder), encoder.n_states, encoder.width)
    decoder = DecoderSettings(width=32, layers=2, heads=2, kv_heads=2, ffn=48, max_length=64)
    bridge = BridgeSettings(states=(0, 1), layers=(0, 1), heads=2, state_mlp=8, gate_init=0.8)
    save_encoder(encoder, root / "encoder")
    build_queen(decoder, bridge, tokenizer(), info, 0).save_pretrained(root / "model")
    save_tokenizer(tokenizer(), root / "model")
    return Loading(root / "model", root / "encoder", batch_size=8, threads=1)


def test_a_speaker_in_processes_of_its_own_says_what_one_here_says(loading: Loading) -> None:
    asked = [Asked(str(i), p, seed=i) for i, p in enumerate(positions(20))]
    here, there = load_speaker(loading), load_speaker(loading, 2)
    assert isinstance(there.generator, GeneratorPool)
    try:
        assert there.explain(asked, DRAWN, "first") == here.explain(asked, DRAWN, "first")
        assert there.policies(positions(20)) == here.policies(positions(20))
        assert there.identity == here.identity
    finally:
        there.close()
    assert not there.generator.workers


def test_it_states_the_weights_on_disk_and_how_it_runs_them(loading: Loading) -> None:
    identity = load_generator(loading).identity
    assert identity["weights"] == weights_digest(QueenModel.from_pretrained(loading.model))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = "bfloat16" if device == "cuda" else "float32"
    assert (identity["device"], identity["dtype"]) == (device, dtype)
    rounded = Loading(loading.model, loading.encoder, 8, "bfloat16")
    assert load_generator(rounded).identity == {**identity, "dtype": "bfloat16"}


def test_what_was_read_before_changes_no_policy(loading: Loading) -> None:
    fresh, used = load_speaker(loading), load_speaker(loading)
    used.policies(positions(5))
    assert used.policies(positions(12)) == fresh.policies(positions(12))


def test_an_encoder_of_another_model_is_refused(loading: Loading, tmp_path: Path) -> None:
    form = NetFormat(1, 2, SE_HEADS, POLICY_CONVOLUTION, VALUE_WDL)
    other = build_resnet(Lc0Config(form, ResNetShape(8, (4,), 8, 0, 0, 0, 0, 0, 2, 4, 0, 0)))
    save_encoder(other, tmp_path)
    wrong = Loading(loading.model, tmp_path, 8, threads=1)
    with pytest.raises(GenerationError, match="was trained on encoder"):
        load_speaker(wrong)
