import chess
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.networks.lc0 import MOVES, legal_indices, move_index, policy_over_legal
from queen.networks.lc0.moves import INDEX, MoveError


def played(choices: list[int], fen: str = chess.STARTING_FEN) -> chess.Board:
    """The board after legal moves picked by number."""
    board = chess.Board(fen)
    for choice in choices:
        moves = sorted(board.legal_moves, key=str)
        if not moves:
            break
        board.push(moves[choice % len(moves)])
    return board


def test_the_list_is_lc0s() -> None:
    assert len(MOVES) == len(set(MOVES)) == 1858
    assert MOVES[:3] == ["a1b1", "a1c1", "a1d1"]
    assert MOVES[1791:1796] == ["h8g8", "a7a8q", "a7a8r", "a7a8b", "a7b8q"]
    assert MOVES[-1] == "h7h8b"
    assert INDEX["e1h1"] == 103
    assert "a7a8n" not in INDEX


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 200), max_size=120))
def test_legal_moves_have_indices_of_their_own(choices: list[int]) -> None:
    board = played(choices)
    moves, indices = legal_indices(board)
    assert len(set(indices.tolist())) == len(moves) == board.legal_moves.count()
    for uci, index in zip(moves, indices.tolist(), strict=True):
        move = chess.Move.from_uci(uci)
        flip = 0 if board.turn else 56
        name = MOVES[index]
        assert chess.parse_square(name[:2]) ^ flip == move.from_square
        if not board.is_castling(move):
            assert chess.parse_square(name[2:4]) ^ flip == move.to_square
        assert name[4:] == uci[4:].replace("n", "")
        assert move_index(uci, board) == index


@pytest.mark.parametrize("side", ["w", "b"])
@pytest.mark.parametrize(("short", "rook"), [("g", "e1h1"), ("c", "e1a1")])
def test_castling_takes_the_own_rook(side: str, short: str, rook: str) -> None:
    board = chess.Board(f"r3k2r/8/8/8/8/8/8/R3K2R {side} KQkq - 0 1")
    rank = 1 if side == "w" else 8
    assert MOVES[move_index(f"e{rank}{short}{rank}", board)] == rook


def test_a_king_step_to_g1_is_not_castling() -> None:
    board = chess.Board("4k3/8/8/8/8/8/8/5K1R w - - 0 1")
    assert MOVES[move_index("f1g1", board)] == "f1g1"


def test_castling_of_shuffled_chess() -> None:
    board = chess.Board("1r3k1r/8/8/8/8/8/8/1R3K1R w HBhb - 0 1", chess960=True)
    assert MOVES[move_index("f1h1", board)] == "f1h1"
    assert MOVES[move_index("f1b1", board)] == "f1b1"


@pytest.mark.parametrize(
    ("uci", "name"), [("a2a1q", "a7a8q"), ("a2a1n", "a7a8"), ("a2b1r", "a7b8r"), ("a2b1b", "a7b8b")]
)
def test_promotions_of_black_are_seen_from_black(uci: str, name: str) -> None:
    board = chess.Board("4k3/8/8/8/8/8/p7/1R2K3 b - - 0 1")
    assert MOVES[move_index(uci, board)] == name


@pytest.mark.parametrize("uci", ["e2e5", "e7e5", "junk", "e7e8q"])
def test_a_move_that_is_not_legal_is_an_error(uci: str) -> None:
    with pytest.raises(MoveError, match="not legal"):
        move_index(uci, chess.Board())


def test_the_policy_over_legal_moves_picks_their_logits() -> None:
    board = chess.Board()
    logits = torch.arange(1858.0, requires_grad=True)
    policy = policy_over_legal(logits, board)
    assert policy["e2e4"] == INDEX["e2e4"]
    assert len(policy) == 20
    assert policy == policy_over_legal(np.arange(1858.0), board)
    assert policy_over_legal(logits, chess.Board("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")) == {}
