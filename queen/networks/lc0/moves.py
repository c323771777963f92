"""Lc0's 1858 moves, seen from the side to move, and legal moves as indices into them.

For from, to in a1..h8 order every pair a queen or knight could move (1792), then promotions to
queen, rook and bishop (66). A promotion to a knight carries no suffix; castling is *king takes
own rook*. Source: LC0 file format, "The 1858 moves".
"""

from __future__ import annotations

from typing import Any

import chess
import numpy as np
from numpy.typing import NDArray

from queen.errors import QueenError
from queen.networks.lc0.transform import SQUARES, transform_of

_PROMOTIONS = "qrb"


def reachable(origin: int, target: int) -> bool:
    """Whether a queen or a knight could move between two squares of an empty board."""
    files = abs(chess.square_file(origin) - chess.square_file(target))
    ranks = abs(chess.square_rank(origin) - chess.square_rank(target))
    straight = (files == 0) != (ranks == 0)
    return straight or (files == ranks != 0) or {files, ranks} == {1, 2}


def _all_moves() -> list[str]:
    names = chess.SQUARE_NAMES
    plain = [names[a] + names[b] for a in range(64) for b in range(64) if reachable(a, b)]
    promotions = [
        f"{names[48 + a]}{names[56 + b]}{piece}"
        for a in range(8)
        for b in range(8)
        if abs(a - b) <= 1
        for piece in _PROMOTIONS
    ]
    return plain + promotions


MOVES: list[str] = _all_moves()
INDEX: dict[str, int] = {move: index for index, move in enumerate(MOVES)}
_PLAIN = {
    (chess.parse_square(move[:2]), chess.parse_square(move[2:])): index
    for index, move in enumerate(MOVES)
    if len(move) == 4
}
_SQUARES: list[list[int]] = SQUARES.tolist()


class MoveError(QueenError):
    """A move that is not legal where it is played."""


def move_index(uci: str, board: chess.Board, input_format: int = 1) -> int:
    """The index of a legal move; castling as UCI writes it (`e1g1`) or as `e1h1`.

    Raises MoveError if the move is not legal on the board.
    """
    try:
        move = board.parse_uci(uci)
    except ValueError as error:
        raise MoveError(
            f"move {uci!r} is not legal", where=board.fen(), remedy="give a legal move in UCI"
        ) from error
    return index_of(move, board, transform_of(board, input_format))


def index_of(move: chess.Move, board: chess.Board, transform: int = 0) -> int:
    """The index of a move that is known to be legal, on a board turned by `transform`."""
    flip = 0 if board.turn else 56
    target = move.to_square
    if board.is_castling(move):
        target = _rook(move, board)
    seen = _SQUARES[transform]
    origin, target = seen[move.from_square ^ flip], seen[target ^ flip]
    if move.promotion in (None, chess.KNIGHT):
        return _PLAIN[origin, target]
    suffix = chess.piece_symbol(move.promotion or 0)
    return INDEX[chess.SQUARE_NAMES[origin] + chess.SQUARE_NAMES[target] + suffix]


def _rook(move: chess.Move, board: chess.Board) -> int:
    """The square of the rook that castles; the target itself in king-takes-rook notation."""
    if board.rooks & board.occupied_co[board.turn] & chess.BB_SQUARES[move.to_square]:
        return move.to_square
    file = 7 if move.to_square > move.from_square else 0
    return chess.square(file, chess.square_rank(move.from_square))


def legal_indices(
    board: chess.Board, input_format: int = 1
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The legal moves in UCI, in python-chess's order, and their indices.

    Args:
        input_format: the network's; canonical ones turn the board, and its moves with it.
    """
    moves, turn = list(board.legal_moves), transform_of(board, input_format)
    indices = np.fromiter((index_of(move, board, turn) for move in moves), np.int64, len(moves))
    return tuple(move.uci() for move in moves), indices


def policy_over_legal(logits: Any, board: chess.Board, input_format: int = 1) -> dict[str, float]:
    """The legal moves of a board with their logits, in python-chess's order.

    Args:
        logits: [1858], a tensor or an array.
        board: the position they belong to.
        input_format: the network's.
    """
    if hasattr(logits, "detach"):
        logits = logits.detach().float().cpu()
    moves, indices = legal_indices(board, input_format)
    return dict(zip(moves, np.asarray(logits)[indices].tolist(), strict=True))
