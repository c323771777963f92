from __future__ import annotations

import os
from pathlib import Path

import chess
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.games.chess.position import Position, PositionError
from queen.networks.errors import NetworkError
from queen.networks.expert import Expert
from queen.networks.lc0 import Lc0Encoder, build, encode_planes, load_net, real_squares
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.format import NetFormat
from queen.networks.lc0.load import net_of
from queen.networks.lc0.random_net import RandomShape, random_net
from queen.networks.lc0.resnet import ResNetShape, build_resnet

WIDTH, WANTED = 8, (1, 3)
SIZE = 2 * len(WANTED) * 64 * (WIDTH + 1) + 4 * 1858
GAME = Position(chess.STARTING_FEN, ("e2e4", "c7c5", "g1f3", "d7d6", "d2d4"))
POSITIONS = [Position(GAME.start, GAME.moves[:ply]) for ply in range(6)]


def encoder(seed: int = 0) -> Lc0Encoder:
    """A random SE-ResNet of three blocks."""
    torch.manual_seed(seed)
    shape = ResNetShape(
        width=WIDTH,
        squeeze=(4, 4, 4),
        policy=8,
        policy_depth=0,
        policy_layers=0,
        policy_heads=0,
        policy_layer_depth=0,
        policy_hidden=0,
        value_planes=4,
        value_hidden=8,
        moves_left_planes=0,
        moves_left_hidden=0,
    )
    form = NetFormat(input=1, output=2, network=4, policy=1, value=2)
    return build_resnet(Lc0Config(form, shape)).eval()


def expert(room: int = 100, **settings: int) -> Expert:
    """With a memory of `room` positions."""
    made = Expert(encoder(), WANTED, memory_mb=0, **settings)
    made._memory.room = room
    return made


def test_states_are_the_encoders_on_real_squares_in_half_precision() -> None:
    given_states = expert().states(POSITIONS)
    output = encoder()(encode_planes(POSITIONS))
    black = torch.tensor([position.fen.split()[1] == "b" for position in POSITIONS])
    for got, index in zip(given_states, WANTED, strict=True):
        assert got.dtype == torch.float32
        assert torch.equal(got[..., :-1], real_squares(output.states[index], black).half().float())
        assert torch.equal(got[..., -1], (1.0 - 2.0 * black).view(-1, 1).expand(-1, 64))


def test_a_piece_is_seen_on_its_own_square_whoever_moves() -> None:
    """Moving a rook on h1 or h8 changes the early state most around that square."""
    for side, home, away in (("w", "h1", "g1"), ("b", "h8", "g8")):
        fens = []
        for square in (home, away):
            board = chess.Board("4k3/8/8/8/8/8/8/4K3 w - - 0 1")
            rook = chess.Piece(chess.ROOK, side == "w")
            board.set_piece_at(chess.parse_square(square), rook)
            board.turn = side == "w"
            fens.append(Position.from_fen(board.fen()))
        near = Expert(encoder(), (0,), memory_mb=1).states(fens)[0]
        moved = (near[0] - near[1]).abs().sum(-1).nonzero()[:, 0].tolist()
        corner = chess.parse_square(home)
        assert corner in moved
        assert all(chess.square_distance(square, corner) <= 2 for square in moved)


def test_policy_is_a_distribution_over_the_legal_moves() -> None:
    for position, policy in zip(POSITIONS, expert().policy(POSITIONS), strict=True):
        assert set(policy) == {move.uci() for move in position.board().legal_moves}
        assert sum(policy.values()) == pytest.approx(1)
    mated = Position(chess.STARTING_FEN, ("f2f3", "e7e5", "g2g4", "d8h4"))
    assert expert().policy([mated]) == [{}]


def test_what_is_remembered_is_not_computed_again() -> None:
    asked = expert()
    first = asked.states([*POSITIONS, *POSITIONS])
    assert asked.calls == len(POSITIONS)
    again, policy = asked.states(POSITIONS), asked.policy(POSITIONS)
    assert asked.calls == len(POSITIONS)
    for old, new in zip(first, again, strict=True):
        assert torch.equal(old, torch.cat([new, new]))
    assert policy == expert().policy(POSITIONS)


def test_a_history_is_part_of_the_position() -> None:
    bare = Position.from_fen(GAME.fen)
    asked = expert()
    known, unknown = (asked.states([position])[0] for position in (GAME, bare))
    assert asked.calls == 2
    assert not torch.equal(known, unknown)


@settings(max_examples=25, deadline=None)
@given(
    room=st.integers(0, 4),
    batch=st.integers(1, 3),
    asks=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=6), max_size=6),
)
def test_the_memory_is_bounded_and_changes_no_answer(
    room: int, batch: int, asks: list[list[int]]
) -> None:
    asked = expert(room, batch_size=batch)
    whole = expert().states(POSITIONS)
    for rows in asks:
        got = asked.states([POSITIONS[row] for row in rows])
        for part, expected in zip(got, whole, strict=True):
            torch.testing.assert_close(part, expected[rows], atol=2e-3, rtol=2e-3)
        assert len(asked._memory.kept) <= room


def test_the_memory_holds_what_its_bound_in_mebibytes_allows() -> None:
    assert Expert(encoder(), WANTED, memory_mb=1)._memory.room == 2**20 // SIZE
    assert Expert(encoder(), WANTED, memory_mb=0)._memory.room == 0


def test_states_can_be_trained_on_after_inference() -> None:
    asked = expert()
    with torch.inference_mode():
        asked.states(POSITIONS[:3])
    weight = torch.ones(WIDTH + 1, requires_grad=True)
    (asked.states(POSITIONS)[0] @ weight).sum().backward()
    assert weight.grad is not None
    assert torch.isfinite(weight.grad).all()


def test_states_are_the_same_in_a_training_steps_half_precision() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        inside = expert().states(POSITIONS)
    assert all(map(torch.equal, inside, expert().states(POSITIONS)))


def test_the_encoder_stays_as_it_was() -> None:
    asked = expert()
    digest = asked.digest
    asked.states(POSITIONS)
    assert not asked.encoder.training
    assert not any(parameter.requires_grad for parameter in asked.encoder.parameters())
    assert Expert(asked.encoder, WANTED, memory_mb=0).digest == digest
    assert Expert(encoder(seed=1), WANTED, memory_mb=0).digest != digest


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(NetworkError, match="encoder that has 4"):
        Expert(encoder(), (1, 4), memory_mb=1)
    with pytest.raises(PositionError, match="e2e5"):
        expert().states([POSITIONS[0], Position(chess.STARTING_FEN, ("e2e5",))])


def attention(number: int) -> Lc0Encoder:
    """A random attention body of two layers with an input format."""
    return build(net_of(random_net(RandomShape(input=number), 0), "made up"))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_any_network_serves_whatever_its_states_and_its_input_format(number: int) -> None:
    asked = Expert(attention(number), (0, 2), memory_mb=1)
    states, policies = asked.states(POSITIONS), asked.policy(POSITIONS)
    assert [tuple(state.shape[:2]) for state in states] == [(6, 64)] * 2
    for position, policy in zip(POSITIONS, policies, strict=True):
        assert set(policy) == {move.uci() for move in position.board().legal_moves}
        assert sum(policy.values()) == pytest.approx(1)


def test_a_turned_board_is_turned_back() -> None:
    """A network of a canonical format sees all views of a board alike: its states and moves, put
    back on real squares, must be views of each other."""
    board = chess.Board("8/8/2k5/8/8/1K6/3N4/4R3 w - - 12 70")
    asked = Expert(attention(4), (2,), memory_mb=1)
    (plain,), (plain_policy,) = (
        asked.states([Position(board.fen())]),
        asked.policy([Position(board.fen())]),
    )
    for turn, square_of in (
        (chess.flip_horizontal, lambda square: square ^ 7),
        (chess.flip_vertical, lambda square: square ^ 56),
        (chess.flip_diagonal, lambda square: 8 * (square % 8) + square // 8),
    ):
        other = board.transform(turn)
        other.halfmove_clock = board.halfmove_clock
        position = Position(other.fen())
        (turned,), (policy,) = asked.states([position]), asked.policy([position])
        order = [square_of(square) for square in range(64)]
        torch.testing.assert_close(turned[0, order], plain[0], atol=2e-3, rtol=2e-3)
        for uci, share in plain_policy.items():
            move = chess.Move.from_uci(uci)
            moved = chess.Move(square_of(move.from_square), square_of(move.to_square))
            assert policy[moved.uci()] == pytest.approx(share, abs=1e-5)


@pytest.mark.data
def test_a_real_networks_states_and_policy() -> None:
    folder = os.environ.get("QUEEN_TEST_DATA")
    nets = sorted(Path(folder or "/nonexistent").glob("nets/maia-1900*"))
    if not nets:
        pytest.skip("needs QUEEN_TEST_DATA with nets/maia-1900")
    asked = Expert(build(load_net(nets[0])), (1, 2, 4, 6), memory_mb=8)
    states, (policy,) = asked.states([POSITIONS[0]]), asked.policy([POSITIONS[0]])
    assert [tuple(state.shape) for state in states] == [(1, 64, 65)] * 4
    assert max(policy, key=policy.__getitem__) in {"e2e4", "d2d4", "c2c4", "g1f3"}
    assert np.isfinite(torch.stack(states).numpy()).all()
