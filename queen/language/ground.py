"""The boards an explanation speaks of: a root position and those after lines from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import chess

from queen.games.chess.notation import MoveTextError, move_text, parse_move_text
from queen.games.chess.position import Position

Line: TypeAlias = tuple[str, ...]


class Ground:
    """Boards by line from one root, each built once.

    Args:
        root: the position explained, or a board (its move history is dropped).
    """

    def __init__(self, root: Position | chess.Board) -> None:
        board = chess.Board(root.fen) if isinstance(root, Position) else root.copy(stack=False)
        self._boards: dict[Line, chess.Board | None] = {(): board}

    @property
    def root(self) -> chess.Board:
        board = self._boards[()]
        assert board is not None
        return board

    def after(self, line: Line) -> chess.Board | None:
        """The board after UCI moves from the root; None if one is illegal. Not to be changed."""
        if line not in self._boards:
            board = self.after(line[:-1])
            move = legal(board, line[-1]) if board is not None else None
            self._boards[line] = _played(board, move) if board and move else None
        return self._boards[line]

    def text(self, at: Line, moves: Line) -> str:
        """Moves said after a line as tokens, one space apart. Both must be legal."""
        words = []
        for ply, uci in enumerate(moves):
            board = self.after(at + moves[:ply])
            assert board is not None
            words.append(move_text(board, uci))
        return " ".join(words)

    def read(self, at: Line, words: Sequence[str]) -> Line:
        """The inverse of `text`. Raises MoveTextError with the bad move's ply."""
        line = at
        for ply, word in enumerate(words):
            board = self.after(line)
            assert board is not None
            try:
                move = parse_move_text(board, word)
            except MoveTextError as error:
                error.ply = ply
                raise
            here = (*line, move.uci())
            if here not in self._boards:
                self._boards[here] = _played(board, move)
            line = here
        return line[len(at) :]

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


def _played(board: chess.Board, move: chess.Move) -> chess.Board:
    after = board.copy(stack=False)
    after.push(move)
    after.clear_stack()
    return after
