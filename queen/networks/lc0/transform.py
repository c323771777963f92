"""Canonical transforms: how input formats from 3 on turn a board so that like boards look alike.

A transform is a sum of FLIP (files a..h to h..a), MIRROR (ranks 1..8 to 8..1) and TRANSPOSE (about
the diagonal a8-h1), applied in this order to the side to move's view. It brings the own king into
the triangle d1, e1... of the lower right quarter. Source: LC0 file format, "Input planes".
"""

from __future__ import annotations

import chess
import numpy as np
from numpy.typing import NDArray

FLIP, MIRROR, TRANSPOSE = 1, 2, 4
FIRST_CANONICAL = 3

_LEFT = chess.BB_FILE_A | chess.BB_FILE_B | chess.BB_FILE_C | chess.BB_FILE_D
_UPPER = chess.BB_RANK_5 | chess.BB_RANK_6 | chess.BB_RANK_7 | chess.BB_RANK_8
_ON_DIAGONAL = chess.BB_E4 | chess.BB_F3 | chess.BB_G2 | chess.BB_H1
_ABOVE_DIAGONAL = chess.BB_F4 | chess.BB_G4 | chess.BB_H4 | chess.BB_G3 | chess.BB_H3 | chess.BB_H2


def is_canonical(input_format: int) -> bool:
    """Whether an input format turns boards."""
    return input_format >= FIRST_CANONICAL


def transform_of(board: chess.Board, input_format: int) -> int:
    """The transform of a board's planes, 0 in formats that know none.

    Castling rights forbid all of them; with pawns on the board only FLIP is left.
    """
    if not is_canonical(input_format) or board.castling_rights:
        return 0
    king = _seen(board.kings & board.occupied_co[board.turn], board, 0)
    transform = FLIP if king & _LEFT else 0
    if board.pawns:
        return transform
    transform |= MIRROR if king & _UPPER else 0
    king = _seen(board.kings & board.occupied_co[board.turn], board, transform)
    if king & _ABOVE_DIAGONAL or (king & _ON_DIAGONAL and _smaller_transposed(board, transform)):
        transform |= TRANSPOSE
    return transform


def _smaller_transposed(board: chess.Board, transform: int) -> bool:
    """For a king on the diagonal: whether the first set of pieces that tells says transpose."""
    sets = (
        board.occupied, board.occupied_co[board.turn],
        board.kings, board.queens, board.rooks, board.knights, board.bishops,
    )  # fmt: skip
    for pieces in sets:
        plain = _seen(pieces, board, transform)
        transposed = chess.flip_anti_diagonal(plain)
        if plain != transposed:
            return transposed < plain
    return False


def _seen(pieces: int, board: chess.Board, transform: int) -> int:
    """A bitboard from the side to move's view, turned."""
    if bool(transform & MIRROR) != (not board.turn):
        pieces = chess.flip_vertical(pieces)
    return chess.flip_horizontal(pieces) if transform & FLIP else pieces


def turned(planes: NDArray[np.float32], transform: int) -> NDArray[np.float32]:
    """Planes [..., 8, 8] turned; a view."""
    if transform & FLIP:
        planes = planes[..., ::-1]
    if transform & MIRROR:
        planes = planes[..., ::-1, :]
    if transform & TRANSPOSE:
        planes = planes.swapaxes(-1, -2)[..., ::-1, ::-1]
    return planes


def turned_square(square: int, transform: int) -> int:
    """Where a square of the mover's view comes to stand."""
    square ^= 7 if transform & FLIP else 0
    square ^= 56 if transform & MIRROR else 0
    if transform & TRANSPOSE:
        file, rank = square & 7, square >> 3
        square = 8 * (7 - file) + 7 - rank
    return square


SQUARES: NDArray[np.int64] = np.array(
    [[turned_square(square, transform) for square in range(64)] for transform in range(8)]
)
"""[transform, square of the mover's view]: the square on which it stands after the transform."""
