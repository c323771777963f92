"""The value network's shape, start, folder, and what it says of positions."""

from __future__ import annotations

import json
import random

import chess
import numpy as np
import pytest
import torch

from queen.networks.errors import NetworkError
from queen.networks.value import ValueNet, load_value, new_value, save_value
from queen.networks.value.folder import is_value
from queen.networks.value.labels import CLASSES
from queen.networks.value.settings import ValueSettings
from queen.positions.packed import pack

SMALL = {
    "hybrid": ValueSettings(width=16, residual_blocks=1, transformer_blocks=2, heads=2),
    "resnet": ValueSettings(width=16, residual_blocks=2, transformer_blocks=0, heads=1),
    "vit": ValueSettings(width=16, residual_blocks=0, transformer_blocks=2, heads=2),
}
PAPER = {
    "hybrid": ValueSettings(),
    "resnet": ValueSettings(width=504, residual_blocks=17, transformer_blocks=0),
    "vit": ValueSettings(residual_blocks=0, transformer_blocks=25),
}


def some_positions(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng, rows, clocks = random.Random(seed), [], []
    while len(rows) < count:
        board = chess.Board()
        while not board.is_game_over() and rng.random() > 0.02:
            board.push(rng.choice(list(board.legal_moves)))
        rows.append(np.frombuffer(pack(board), np.uint8))
        clocks.append(board.halfmove_clock)
    return np.stack(rows), np.array(clocks, np.uint8)


@pytest.mark.parametrize("kind", PAPER)
def test_three_kinds_of_one_module_have_79_million_parameters(kind: str) -> None:
    with torch.device("meta"):
        net = ValueNet(PAPER[kind])
    count = sum(each.numel() for each in net.parameters())
    assert net.settings.kind == kind
    assert count == pytest.approx(79e6, rel=0.02)
    assert (len(net.residual), len(net.transformer)) == (
        PAPER[kind].residual_blocks,
        PAPER[kind].transformer_blocks,
    )


@pytest.mark.parametrize("kind", SMALL)
def test_a_start_depends_on_the_seed_alone(kind: str) -> None:
    torch.manual_seed(9)
    first, other = new_value(SMALL[kind], 1), new_value(SMALL[kind], 2)
    torch.manual_seed(10)
    again = new_value(SMALL[kind], 1)
    state = first.state_dict()
    for name, each in again.state_dict().items():
        assert torch.equal(each, state[name]), name
        assert torch.isfinite(each).all(), name
    assert not torch.equal(other.stem.weight, first.stem.weight)
    logits = first.logits(*some_positions(6))
    assert logits.shape == (6, CLASSES)
    assert logits.abs().max() < 5.0


@pytest.mark.parametrize("kind", SMALL)
def test_classes_of_like_worth_start_alike(kind: str) -> None:
    rows = new_value(SMALL[kind], 7).out.weight.detach()
    step = (rows[1:101] - rows[:100]).abs().mean()
    span = (rows[100] - rows[0]).abs().mean()
    assert step < 0.1 * rows.std()
    assert span > rows.std()
    assert torch.allclose(rows[[101, 102]], rows[[100, 0]])


@pytest.mark.parametrize("kind", SMALL)
def test_saved_and_loaded_it_says_the_same(kind: str, tmp_path) -> None:
    net, positions = new_value(SMALL[kind], 3), some_positions(20)
    save_value(net, tmp_path)
    loaded = load_value(tmp_path)
    assert is_value(tmp_path)
    assert loaded.settings == net.settings
    assert not any(each.requires_grad for each in loaded.parameters())
    assert np.array_equal(loaded.expected(*positions), net.expected(*positions))


def test_scores_do_not_depend_on_the_batch_they_are_asked_in() -> None:
    net, positions = new_value(SMALL["hybrid"], 4), some_positions(33)
    whole = net.expected(*positions)
    assert whole.shape == (33,)
    assert whole.dtype == np.float32
    assert ((whole >= 0) & (whole <= 1)).all()
    assert np.allclose(net.expected(*positions, batch_size=5), whole, atol=1e-6)
    assert np.allclose(net.expected(*positions, bf16=True), whole, atol=0.02)
    empty = net.expected(np.zeros((0, 36), np.uint8), np.zeros(0, np.uint8))
    assert empty.shape == (0,)


def test_the_two_colours_are_one_to_it() -> None:
    net, seen = new_value(SMALL["hybrid"], 5), []
    board = chess.Board("r3k2r/pp3ppp/2n2n2/3pP3/8/2P2N2/PP3PPP/R3K2R w Kq d6 5 20")
    for each in (board, board.mirror()):
        packed = np.frombuffer(pack(each), np.uint8)[None]
        seen.append(net.logits(packed, np.array([each.halfmove_clock])))
    assert torch.equal(*seen)


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"residual_blocks": 0, "transformer_blocks": 0}, "blocks"),
        ({"width": 20, "heads": 3}, "heads"),
        ({"width": 20, "heads": 4, "groups": 3}, "groups"),
        ({"ffn_factor": 0}, "width"),
    ],
)
def test_sizes_that_make_no_network_are_named(sizes, named: str) -> None:
    with pytest.raises(NetworkError, match=named):
        ValueSettings(**sizes)


def test_a_folder_that_holds_no_value_network_is_named(tmp_path) -> None:
    with pytest.raises(NetworkError, match=r"config\.json"):
        load_value(tmp_path)
    save_value(new_value(SMALL["vit"], 0), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["network"]["width"] = 32
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(NetworkError, match=r"model\.safetensors"):
        load_value(tmp_path)
    config["model_type"] = "lc0"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert not is_value(tmp_path)
    with pytest.raises(NetworkError, match="lc0"):
        load_value(tmp_path)
