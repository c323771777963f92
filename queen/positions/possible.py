"""What must hold of a position's bytes, for many at once.

This finds bytes that are no position; it does not find every position that cannot arise (whether
the side that has moved is in check, for one, python-chess must say).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from chess import KING, PAWN, ROOK

from queen.positions.packed import (
    BLACK_CODE,
    BLACK_ROOKS,
    EN_PASSANT,
    NO_SQUARE,
    SIDE,
    WHITE_ROOKS,
    Packed,
    squares_of,
)

Mask = npt.NDArray[np.bool_]


def possible(packed: Packed) -> Mask:
    """Which of the positions [n, 36] have possible bytes."""
    squares = squares_of(packed)
    kinds = squares & 7
    good = (squares < 15).all(axis=1) & ~((kinds == 7) | (squares == BLACK_CODE)).any(axis=1)
    good &= (packed[:, SIDE] <= 1) & ~(kinds[:, [*range(8), *range(56, 64)]] == PAWN).any(axis=1)
    for own, rooks, first in ((0, WHITE_ROOKS, 0), (BLACK_CODE, BLACK_ROOKS, 56)):
        men = (squares > own) & (squares < own + 7)
        good &= (men.sum(axis=1) <= 16) & ((squares == own + KING).sum(axis=1) == 1)
        good &= (squares == own + PAWN).sum(axis=1) <= 8
        good &= _may_castle(squares[:, first : first + 8], packed[:, rooks], own)
    return np.asarray(good & _en_passant(squares, packed))


def _may_castle(rank: Packed, rooks: Packed, own: int) -> Mask:
    """Rights only for own rooks on the first rank, with the king there too, between them."""
    bits = (rooks[:, None] >> np.arange(8, dtype=np.uint8)) & 1 == 1
    there = ~(bits & (rank != own + ROOK)).any(axis=1)
    king = (rank == own + KING).any(axis=1)
    return np.asarray((there & king & (bits.sum(axis=1) <= 2)) | (rooks == 0))


def _en_passant(squares: Packed, packed: Packed) -> Mask:
    """The square is empty, on the sixth rank of the side to move, the pawn that passed behind."""
    at, black = packed[:, EN_PASSANT].astype(np.int64), packed[:, SIDE] == 1
    none = at == NO_SQUARE
    rank = np.where(black, 2, 5)
    place = np.where(none | (at > 63), 0, at)
    behind = np.clip(place + np.where(black, 8, -8), 0, 63)
    each = np.arange(len(squares))
    pawn = np.where(black, PAWN, BLACK_CODE + PAWN)
    right = (at >> 3 == rank) & (squares[each, place] == 0) & (squares[each, behind] == pawn)
    return np.asarray(none | right)


def can_mate(packed: Packed, by_mover: Mask) -> Mask:
    """Which positions leave the side named more than a bare king: without, it mates nobody.

    Args:
        by_mover: [n] True where the side to move is asked about, False for the other.
    """
    squares = squares_of(packed)
    white = (packed[:, SIDE] == 0) == by_mover
    men = ((squares & 7) != 0) & ((squares < BLACK_CODE) == white[:, None])
    return np.asarray(men.sum(axis=1) > 1)
