"""The boards an explanation speaks of: a root position and those after lines from it."""

from __future__ import annotations

from typing import TypeAlias

import chess

from queen.games.chess.position import Position

Line: TypeAlias = tuple[str, ...]


class Ground:
    """Boards by line from one root, each built once.

    Args:
        root: the position explained, or a board (its move history is dropped).
    """

    def __init__(self, root: Position | chess.Board) -> None:
        board = root.board() if isinstance(root, Position) else root
        self._boards: dict[Line, chess.Board | None] = {(): board.copy(stack=False)}

    @property
    def root(self) -> chess.Board:
        board = self._boards[()]
        assert board is not None
        return board

    def after(self, line: Line) -> chess.Board | None:
        """The board after UCI moves from the root; None if one is illegal. Not to be changed."""
        if line not in self._boards:
            self._boards[line] = _played(self.after(line[:-1]), line[-1])
        return self._boards[line]

    def moved(self, line: Line) -> Ground:
        """The ground whose root is the position after a legal line."""
        board = self.after(line)
        assert board is not None, f"{line} is not legal from {self.root.fen()}"
        return Ground(board)


def legal(board: chess.Board, uci: str) -> chess.Move | None:
    """The UCI move if it is legal on the board; castling only as the king's two-square step."""
    try:
        move = chess.Move.from_uci(uci)
    except ValueError:
        return None
    if not move or not board.is_legal(move):
        return None
    step = chess.square_file(move.to_square) - chess.square_file(move.from_square)
    return None if board.is_castling(move) and abs(step) != 2 else move


def _played(board: chess.Board | None, uci: str) -> chess.Board | None:
    move = legal(board, uci) if board is not None else None
    if board is None or move is None:
        return None
    after = board.copy(stack=False)
    after.push(move)
    after.clear_stack()
    return after
