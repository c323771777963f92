"""Castling where kings and rooks start elsewhere: rights and codes of moves, many at a time.

The fast reader plays Chess960 right but tells of rights in the corners only, and gives castling
as the king's way to the g- or c-file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from chess import KING, ROOK

from queen.positions.headers import Start
from queen.positions.packed import (
    BLACK_CODE,
    BLACK_ROOKS,
    SIDE,
    WHITE_ROOKS,
    Packed,
    squares_of,
)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def rights_by_moves(
    starts: Sequence[Start], lengths: Ints, origin: Ints, target: Ints
) -> npt.NDArray[np.uint8]:
    """Files of the rooks that may still castle, White's and Black's, as bits.

    A right goes when its king or rook moves, or the rook is taken.

    Args:
        starts: of the g games.
        lengths: their plies, [g].
        origin, target: of their moves, [n].

    Returns:
        [n + g, 2]: each game's start, then the position after each move.
    """
    files = np.array([start.rooks for start in starts], np.int64)
    kings = np.array([start.kings for start in starts], np.int64)
    game = np.repeat(np.arange(len(starts)), lengths)
    first = np.cumsum(lengths) - lengths
    rooks = files + np.array([0, 0, 56, 56])
    gone = (origin[:, None] == rooks[game]) | (target[:, None] == rooks[game])
    gone |= origin[:, None] == np.repeat(kings, 2, axis=1)[game]
    moved = np.where(gone, np.arange(len(game))[:, None], -1)
    lost = np.maximum.accumulate(moved, axis=0) >= first[game][:, None]
    bits = np.where(files < 0, 0, 1 << np.maximum(files, 0)).astype(np.uint8)
    held = np.empty((len(game) + len(starts), 4), np.uint8)
    held[first + np.arange(len(starts))] = bits
    held[np.arange(len(game)) + game + 1] = bits[game] * ~lost
    return np.stack([held[:, 0] | held[:, 1], held[:, 2] | held[:, 3]], axis=1)


def castle_onto_rooks(packed: Packed, before: Ints, origin: Ints, target: Ints) -> Ints:
    """Targets of moves, [n], with castling that only Chess960 knows as the king onto its rook.

    It is castling if the king goes two files or more, or if a rook moves with it.

    Args:
        packed: positions, each followed by the one after the move made in it.
        before: row of the position in which each move was made, [n].
    """
    rows = np.flatnonzero(_king_moves(packed[before], origin))
    here, there = packed[before[rows]], packed[before[rows] + 1]
    board, white = squares_of(here), here[:, SIDE] == 0
    rook = np.where(white, ROOK, ROOK + BLACK_CODE)[:, None]
    with_rook = ((board == rook) != (squares_of(there) == rook)).any(axis=1)
    far = np.abs(origin[rows] % 8 - target[rows] % 8) >= 2
    castling = (with_rook | far) & ~_usual_rights(here, board)
    rights = np.where(white, here[:, WHITE_ROOKS], here[:, BLACK_ROOKS])
    files, king = np.arange(8), (origin[rows] % 8)[:, None]
    short = (target[rows] % 8 == 6)[:, None]
    held = (rights[:, None] >> files & 1).astype(bool) & np.where(short, files > king, files < king)
    onto = np.where(white, 0, 56) + np.argmax(held, axis=1)
    out = target.copy()
    out[rows[castling]] = onto[castling]
    return out


def _king_moves(before: Packed, origin: Ints) -> Bools:
    """Which moves are a king's while there are rights to castle."""
    pair = before[np.arange(len(before)), origin // 2]
    king = (np.where(origin % 2, pair >> 4, pair) & 7) == KING
    moved: Bools = king & ((before[:, WHITE_ROOKS] | before[:, BLACK_ROOKS]) > 0)
    return moved


def _usual_rights(packed: Packed, board: Packed) -> Bools:
    """Whether all rights are of kings on the e-file and rooks in the corners."""
    corners = ((packed[:, WHITE_ROOKS] | packed[:, BLACK_ROOKS]) & 0x7E) == 0
    white = (packed[:, WHITE_ROOKS] == 0) | (board[:, 4] == KING)
    black = (packed[:, BLACK_ROOKS] == 0) | (board[:, 60] == KING + BLACK_CODE)
    usual: Bools = corners & white & black
    return usual
