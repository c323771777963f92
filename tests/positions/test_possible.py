"""FENs and the bytes' possibility, against python-chess."""

from __future__ import annotations

import random

import chess
import numpy as np
import pytest
from occurrence_rows import occurrences

from queen.positions.fens import fens
from queen.positions.packed import EN_PASSANT, Packed, pack, unpack
from queen.positions.possible import can_mate, possible

CHESS960 = (
    "bqnb1rkr/pp3ppp/3ppn2/2p5/5P2/P2P4/NPP1P1PP/BQ1BNRKR w HFhf - 2 9",
    "1r2k1r1/8/8/8/8/8/8/1R2KRR1 w BFbg - 0 1",
)
SPECIAL = (
    chess.STARTING_FEN,
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
    "4k3/8/8/8/4Pp2/8/8/4K3 b - e3 0 1",
    "r3k2r/8/8/8/8/8/8/R3K2R b Kq - 11 40",
    *CHESS960,
)


def bytes_of(*boards: chess.Board) -> Packed:
    return np.frombuffer(b"".join(map(pack, boards)), np.uint8).reshape(-1, 36).copy()


def test_fens_are_those_of_python_chess() -> None:
    boards = [chess.Board(fen, chess960=fen in CHESS960) for fen in SPECIAL]
    boards += [unpack(row["position"], row["halfmove"]) for row in occurrences(20)]
    clocks = [
        np.array([getattr(b, n) for b in boards]) for n in ("halfmove_clock", "fullmove_number")
    ]
    found = fens(bytes_of(*boards), *clocks)
    assert found == [b.fen(en_passant="legal") for b in boards]


def test_positions_of_games_are_possible() -> None:
    boards = [chess.Board(fen, chess960=fen in CHESS960) for fen in SPECIAL]
    boards += [unpack(row["position"]) for row in occurrences(20, plies=60)]
    assert possible(bytes_of(*boards)).all()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, 0x66),  # two kings more
        (0, 0x07),  # no such piece
        (0, 0x28),
        (0, 0x21),  # a pawn on the first rank
        (2, 0x50),  # White's king is gone
        (32, 2),  # neither side to move
        (33, 0x04),  # castling with a bishop
        (33, 0x91),  # three rooks
        (34, 0x10),  # with the king
        (EN_PASSANT, 20),
        (EN_PASSANT, 40),
        (EN_PASSANT, 100),
    ],
)
def test_bytes_that_are_no_position(place: int, value: int) -> None:
    row = bytes_of(chess.Board(), chess.Board())
    row[1, place] = value
    assert possible(row).tolist() == [True, False]


def test_random_bytes_are_no_positions() -> None:
    rows = np.frombuffer(random.Random(0).randbytes(36 * 500), np.uint8).reshape(-1, 36)
    assert not possible(rows).any()


def test_a_bare_king_mates_nobody() -> None:
    bare = bytes_of(
        *(chess.Board(f"4k3/8/8/8/8/8/8/4K2{m} {s} - - 0 1") for m in "Rr" for s in "wb")
    )
    mover = np.ones(4, np.bool_)
    assert can_mate(bare, mover).tolist() == [True, False, False, True]
    assert can_mate(bare, ~mover).tolist() == [False, True, True, False]
