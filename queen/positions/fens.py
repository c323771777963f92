"""FENs of packed positions, many times faster than through boards."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

import chess
import numpy as np

from queen.positions.packed import BLACK_ROOKS, EN_PASSANT, NO_SQUARE, SIDE, WHITE_ROOKS, Packed
from queen.positions.packed import unpack as board_of

LETTERS = " PNBRQK  pnbrqk "


def fens(packed: Packed, halfmoves: Iterable[int], plies: Iterable[int]) -> Iterator[str]:
    """A FEN for each of the positions [n, 36], as python-chess writes it.

    Args:
        halfmoves: the clocks of the fifty-move rule.
        plies: half-moves made in the game; they give the move's number.
    """
    ranks = np.ascontiguousarray(packed[:, :32]).view("<u4")[:, ::-1].tolist()
    rows = np.ascontiguousarray(packed)
    for board, row, halfmove, ply in zip(ranks, rows, halfmoves, plies, strict=True):
        placed = "/".join(map(_rank, board))
        side = "b" if row[SIDE] else "w"
        rooks = (int(row[WHITE_ROOKS]), int(row[BLACK_ROOKS]))
        rights = _castling(board[7], board[0], *rooks) if any(rooks) else "-"
        square = int(row[EN_PASSANT])
        passed = "-" if square == NO_SQUARE else chess.SQUARE_NAMES[square]
        yield f"{placed} {side} {rights} {passed} {halfmove} {ply // 2 + 1}"


@functools.lru_cache(maxsize=1 << 18)
def _rank(word: int) -> str:
    """Eight squares of four bits, the a-file lowest."""
    letters = "".join(LETTERS[word >> shift & 15] for shift in range(0, 32, 4))
    for empty in range(8, 0, -1):
        letters = letters.replace(" " * empty, str(empty))
    return letters


@functools.lru_cache(maxsize=1 << 14)
def _castling(white: int, black: int, white_rooks: int, black_rooks: int) -> str:
    """Depends on the first ranks and the rights alone."""
    whole = white.to_bytes(4, "little") + bytes(24) + black.to_bytes(4, "little")
    return board_of(whole + bytes([0, white_rooks, black_rooks, NO_SQUARE])).castling_xfen()
