"""FENs of packed positions are python-chess's own."""

from __future__ import annotations

import random

import chess
import numpy as np
import pytest

from queen.positions.fens import ROWS_AT_ONCE, fens
from queen.positions.packed import POSITION_BYTES, pack


def boards(seed: int) -> list[chess.Board]:
    """Positions of a random game; odd seeds begin where Chess960 does."""
    rng = random.Random(seed)
    board = chess.Board.from_chess960_pos(rng.randrange(960)) if seed % 2 else chess.Board()
    found = []
    for _ in range(120):
        moves = list(board.legal_moves)
        if not moves:
            break
        found.append(board.copy(stack=False))
        board.push(rng.choice([m for m in moves if board.is_en_passant(m)] or moves))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_fens_are_those_of_python_chess(seed: int) -> None:
    seen = boards(seed)
    packed = np.frombuffer(b"".join(map(pack, seen)), np.uint8).reshape(-1, POSITION_BYTES)
    halfmove = np.array([board.halfmove_clock for board in seen], np.uint8)
    fullmove = np.array([board.fullmove_number for board in seen])
    assert fens(packed, halfmove, fullmove) == [b.fen(en_passant="legal") for b in seen]


@pytest.mark.parametrize(
    "fen",
    [
        "8/8/8/8/8/8/8/K1k5 w - - 255 99999",
        "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
        "rk2r3/8/8/8/8/8/8/RK2R2R w Ee - 100 10",
        "1rk1r2r/8/8/8/8/8/8/1RK1R2R b EBeb - 9 100",
        "r3k2r/8/8/8/8/8/8/R3K2R b Kq - 10 1000",
        "4k3/8/8/8/8/8/8/4K2R w K - 0 1",
    ],
)
def test_clocks_squares_and_castling(fen: str) -> None:
    board = chess.Board(fen)
    board.chess960 = board.has_chess960_castling_rights()
    packed = np.frombuffer(pack(board), np.uint8)[None]
    clocks = np.array([board.halfmove_clock]), np.array([board.fullmove_number])
    assert fens(packed, *clocks) == [board.fen(en_passant="legal")]


def test_blocks_are_joined() -> None:
    rows = np.repeat(np.frombuffer(pack(chess.Board()), np.uint8)[None], ROWS_AT_ONCE + 3, axis=0)
    fullmove = np.arange(len(rows)) + 1
    found = fens(rows, np.zeros(len(rows), np.uint8), fullmove)
    assert [fen.split()[-1] for fen in found] == [str(n) for n in fullmove]
    assert fens(rows[:0], fullmove[:0], fullmove[:0]) == []
