"""Which en-passant squares can be captured on, for many positions at once.

Readers of games write the square after every double push; a position's identity needs it only
where a capture is legal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from chess import BISHOP, KING, KNIGHT, PAWN, QUEEN, ROOK

from queen.positions.packed import BLACK_CODE, Packed

_OFF = 64  # a square beyond the board's edge, always empty

Bools = npt.NDArray[np.bool_]
Squares = npt.NDArray[np.int64]


def _reached(square: int, step: tuple[int, int], far: int) -> list[int]:
    """Up to `far` squares from one on in a direction; _OFF past the edge."""
    rank, file = divmod(square, 8)
    found = []
    for n in range(1, far + 1):
        r, f = rank + step[0] * n, file + step[1] * n
        found.append(r * 8 + f if 0 <= r < 8 and 0 <= f < 8 else _OFF)
    return found


_STRAIGHT = ((1, 0), (-1, 0), (0, 1), (0, -1))
_DIAGONAL = ((1, 1), (1, -1), (-1, 1), (-1, -1))
_JUMPS = ((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1))
_RAYS = np.array([[_reached(s, d, 7) for d in _STRAIGHT + _DIAGONAL] for s in range(64)])
_LEAPS = np.array([[_reached(s, d, 1)[0] for d in _JUMPS] for s in range(64)])
_NEAR = _RAYS[:, :, 0]


def capturable(squares: Packed, white: Bools, target: Squares) -> Bools:
    """Whether a pawn of the side to move may capture on its en-passant square.

    Args:
        squares: codes of the 64 squares, [n, 64] (`queen.positions.packed`).
        white: White is to move, [n].
        target: the square behind the pawn that has just moved two, [n].

    Returns:
        [n], as python-chess's `has_legal_en_passant` says it.
    """
    found = np.zeros(len(squares), np.bool_)
    pushed = np.where(white, target - 8, target + 8)
    own = np.where(white, PAWN, PAWN + BLACK_CODE)
    for side in (-1, 1):
        file = target % 8 + side
        origin = np.clip(pushed + side, 0, 63)
        there = (file >= 0) & (file < 8) & (squares[np.arange(len(squares)), origin] == own)
        rows = np.flatnonzero(there & ~found)
        if len(rows):
            after = _after(squares[rows], origin[rows], pushed[rows], target[rows])
            found[rows] = ~_attacked(after, white[rows])
    return found


def _after(squares: Packed, origin: Squares, pushed: Squares, target: Squares) -> Packed:
    """Boards after the capture, [n, 65], with an empty square beyond the edge."""
    rows = np.arange(len(squares))
    board = np.zeros((len(squares), 65), np.uint8)
    board[:, :64] = squares
    board[rows, target] = board[rows, origin]
    board[rows, origin] = board[rows, pushed] = 0
    return board


def _attacked(board: Packed, white: Bools) -> Bools:
    """Whether the king of the side that has just moved stands in check."""
    rows = np.arange(len(board))
    king = np.argmax(board[:, :64] == np.where(white, KING, KING + BLACK_CODE)[:, None], axis=1)
    enemy = np.where(white, BLACK_CODE, 0)[:, None]
    rays = board[rows[:, None, None], _RAYS[king]]
    first = np.take_along_axis(rays, np.argmax(rays != 0, axis=2)[:, :, None], axis=2)[:, :, 0]
    slider = np.where(np.arange(8) < 4, ROOK, BISHOP) + enemy
    seen: Bools = ((first == slider) | (first == QUEEN + enemy)).any(axis=1)
    seen |= (board[rows[:, None], _LEAPS[king]] == KNIGHT + enemy).any(axis=1)
    seen |= (board[rows[:, None], _NEAR[king]] == KING + enemy).any(axis=1)
    pawns = np.where(white[:, None], _NEAR[king][:, 4:6], _NEAR[king][:, 6:8])
    seen |= (board[rows[:, None], pawns] == PAWN + enemy).any(axis=1)
    return seen
