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
# What a position holds is counted in one number: each of these has eight of its bits.
WHITE_MEN, WHITE_PAWNS, WHITE_KINGS, BLACK_MEN, BLACK_PAWNS, BLACK_KINGS, NO_PIECES = range(7)
_ROWS_AT_ONCE = 1 << 13  # what is counted stays in the processor's cache


def _counts_of_bytes() -> npt.NDArray[np.uint64]:
    """The counts of two squares that share a byte, [256]."""
    one = np.zeros(16, np.uint64)
    for code in range(1, 16):
        kind, men = code & 7, WHITE_MEN if code < BLACK_CODE else BLACK_MEN
        counted = {PAWN: [men, men + 1], KING: [men, men + 2], 0: [NO_PIECES], 7: [NO_PIECES]}
        one[code] = sum(1 << 8 * place for place in counted.get(kind, [men]))
    both = np.arange(256)
    return np.asarray(one[both & 15] + one[both >> 4])


_COUNTS = _counts_of_bytes()
_PAWNS = np.array([PAWN in (n & 7, n >> 4 & 7) for n in range(256)])
_OUTER = [*range(4), *range(28, 32)]  # bytes of the first and the eighth rank


def possible(packed: Packed) -> Mask:
    """Which of the positions [n, 36] have possible bytes."""
    counts = _counted(packed)
    good = (packed[:, SIDE] <= 1) & ~_PAWNS[packed[:, _OUTER]].any(axis=1)
    good &= _count(counts, NO_PIECES) == 0
    for own in (WHITE_MEN, BLACK_MEN):
        good &= (_count(counts, own) <= 16) & (_count(counts, own + 1) <= 8)
        good &= _count(counts, own + 2) == 1
    for own, rooks, first in ((0, WHITE_ROOKS, 0), (BLACK_CODE, BLACK_ROOKS, 56)):
        rows = np.flatnonzero(packed[:, rooks])
        rank = squares_of(packed[rows])[:, first : first + 8]
        good[rows] &= _may_castle(rank, packed[rows, rooks], own)
    rows = np.flatnonzero(packed[:, EN_PASSANT] != NO_SQUARE)
    good[rows] &= _en_passant(squares_of(packed[rows]), packed[rows])
    return np.asarray(good)


def _counted(packed: Packed) -> npt.NDArray[np.uint64]:
    """The counts of each position, [n]."""
    out = np.empty(len(packed), np.uint64)
    for start in range(0, len(packed), _ROWS_AT_ONCE):
        rows = packed[start : start + _ROWS_AT_ONCE, :32]
        out[start : start + _ROWS_AT_ONCE] = _COUNTS[rows].sum(axis=1)
    return out


def _count(counts: npt.NDArray[np.uint64], place: int) -> npt.NDArray[np.uint64]:
    return np.asarray(counts >> np.uint64(8 * place) & np.uint64(255))


def _may_castle(rank: Packed, rooks: Packed, own: int) -> Mask:
    """Rights only for own rooks on the first rank, with the king there too, at most two."""
    bits = (rooks[:, None] >> np.arange(8, dtype=np.uint8)) & 1 == 1
    there = ~(bits & (rank != own + ROOK)).any(axis=1)
    king = (rank == own + KING).any(axis=1)
    return np.asarray(there & king & (bits.sum(axis=1) <= 2))


def _en_passant(squares: Packed, packed: Packed) -> Mask:
    """The square is empty, on the sixth rank of the side to move, the pawn that passed behind."""
    at, black = packed[:, EN_PASSANT].astype(np.int64), packed[:, SIDE] == 1
    rank = np.where(black, 2, 5)
    place = np.where(at > 63, 0, at)
    behind = np.clip(place + np.where(black, 8, -8), 0, 63)
    each = np.arange(len(squares))
    pawn = np.where(black, PAWN, BLACK_CODE + PAWN)
    right = (at >> 3 == rank) & (squares[each, place] == 0) & (squares[each, behind] == pawn)
    return np.asarray(right)


def can_mate(packed: Packed, by_mover: Mask) -> Mask:
    """Which positions leave the side named more than a bare king: without, it mates nobody.

    Args:
        by_mover: [n] True where the side to move is asked about, False for the other.
    """
    counts = _counted(packed)
    white = (packed[:, SIDE] == 0) == by_mover
    men = np.where(white, _count(counts, WHITE_MEN), _count(counts, BLACK_MEN))
    return np.asarray(men > 1)
