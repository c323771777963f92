from pathlib import Path

import numpy as np
import pytest
import torch
from lc0_by_hand import ByHand, softmax
from lc0_writer import BFLOAT16, FLOAT16, LINEAR16, RandomNet

from queen.networks.lc0 import MOVES, build, load_net, real_squares

PLANES = np.random.default_rng(5).random((3, 112, 8, 8), np.float32)


@pytest.mark.parametrize(
    "kind",
    [
        {"policy": 2},
        {"policy": 2, "activation": 1, "value": 1},
        {"policy": 1, "squeeze": 0, "moves_left": 0},
        {"policy": 3, "activation": 1},
    ],
    ids=lambda kind: "-".join(f"{k}{v}" for k, v in kind.items()),
)
def test_forward_agrees_with_a_computation_by_hand(tmp_path: Path, kind: dict[str, int]) -> None:
    net = RandomNet(**kind)
    output = build(load_net(net.write(tmp_path / "net.pb.gz")))(PLANES)
    hand = ByHand(net)
    for i, planes in enumerate(PLANES.astype(np.float64)):
        states = hand.states(planes)
        assert len(output.states) == len(states) == 3
        for mine, theirs in zip(output.states, states, strict=True):
            np.testing.assert_allclose(mine[i].T, theirs.reshape(6, 64), rtol=2e-5, atol=2e-5)
        last = states[-1]
        np.testing.assert_allclose(output.policy[i], hand.policy(last, MOVES), rtol=2e-5, atol=5e-5)
        value = hand.scalar("value", last)
        if net.value == 2:
            np.testing.assert_allclose(output.wdl[i], softmax(value), atol=2e-5)
            assert output.value is None
        else:
            np.testing.assert_allclose(output.value[i], np.tanh(value), atol=2e-5)
            assert output.wdl is None
        if net.moves_left:
            moves_left = np.maximum(hand.scalar("moves", last), 0)
            np.testing.assert_allclose(output.moves_left[i], moves_left, rtol=2e-5, atol=2e-5)
        else:
            assert output.moves_left is None
    assert ((output.expected >= 0) & (output.expected <= 1)).all()


@pytest.mark.parametrize(
    ("encoding", "closeness"), [(None, 2e-3), (LINEAR16, 2e-3), (FLOAT16, 5e-2), (BFLOAT16, 0.4)]
)
def test_every_encoding_reads_alike(tmp_path: Path, encoding: int | None, closeness: float) -> None:
    exact = build(load_net(RandomNet().write(tmp_path / "exact.pb")))(PLANES)
    coded = build(load_net(RandomNet(encoding=encoding).write(tmp_path / "coded.pb")))(PLANES)
    difference = (exact.states[-1] - coded.states[-1]).abs().max() / exact.states[-1].abs().max()
    assert 0 < difference < closeness


def test_states_come_without_the_heads_too(tmp_path: Path) -> None:
    encoder = build(load_net(RandomNet().write(tmp_path / "net.pb")))
    alone, all_of_it = encoder.states(torch.from_numpy(PLANES)), encoder(PLANES).states
    assert encoder.n_states == len(alone) == 3
    assert encoder.width == alone[0].shape[-1] == 6
    assert all(torch.equal(a, b) for a, b in zip(alone, all_of_it, strict=True))
    assert encoder(PLANES[:0]).policy.shape == (0, 1858)


def test_real_squares_turn_the_board_for_black_alone() -> None:
    tokens = torch.arange(64.0)[None, :, None].repeat(2, 1, 3)
    black = torch.tensor([False, True])
    turned = real_squares(tokens, black)
    assert torch.equal(turned[0], tokens[0])
    assert turned[1, :, 0].tolist() == [index ^ 56 for index in range(64)]
    assert torch.equal(real_squares([tokens, turned], black)[1][1], tokens[1])
