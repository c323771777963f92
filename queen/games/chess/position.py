"""A chess position with the moves that led to it, and its identity."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import chess

from queen.errors import QueenError

KEPT_BOARDS = 2048


class PositionError(QueenError):
    """A FEN or a move list that is not a legal chess position."""


def identity(board: chess.Board) -> str:
    """What makes two positions the same: board, side, castling, capturable en passant.

    Clocks are left out. Source: METHOD section 2.
    """
    return board.epd(en_passant="legal")


class _Told(NamedTuple):
    """What is asked of most positions, told together since their board is dear to come by."""

    fen: str
    key: str
    over: bool


@dataclass(frozen=True)
class Position:
    """A position as networks and searches need it: a start FEN and the moves since.

    Attributes:
        start: FEN at which the known history begins.
        moves: UCI moves played from there, oldest first.
    """

    start: str
    moves: tuple[str, ...] = ()

    @classmethod
    def from_fen(cls, fen: str) -> Position:
        """A position without known history. Raises PositionError on an illegal FEN."""
        return cls(_checked_board(fen).fen())

    @classmethod
    def from_text(cls, start: str, moves: str) -> Position:
        """From the two columns of a table: a FEN and space-joined UCI moves."""
        return cls(start, tuple(moves.split()))

    def board(self, *, history: bool = True) -> chess.Board:
        """A fresh board, its move stack too if wanted. PositionError names a bad move."""
        return _BOARDS.of(self.start, self.moves).copy(stack=history)

    @property
    def fen(self) -> str:
        """The FEN with clocks; en passant only if a capture is legal."""
        return self._told.fen

    @property
    def key(self) -> str:
        """The position's identity (see `identity`)."""
        return self._told.key

    @property
    def is_over(self) -> bool:
        """Whether the game has ended here by itself, without a claim."""
        return self._told.over

    @cached_property
    def _told(self) -> _Told:
        board = _BOARDS.of(self.start, self.moves)
        since = board.copy(stack=board.halfmove_clock)  # a repetition is sought among these alone
        return _Told(board.fen(en_passant="legal"), identity(board), since.is_game_over())

    @property
    def white_to_move(self) -> bool:
        """By the start and the number of moves, so that no board is needed."""
        return (self.start.split()[1:2] == ["w"]) == (len(self.moves) % 2 == 0)

    def child(self, uci: str) -> Position:
        """The position after one more move (legality is checked by `board`)."""
        return Position(self.start, (*self.moves, uci))


def _checked_board(fen: str) -> chess.Board:
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise PositionError(
            f"not a FEN: {error}", where=repr(fen), remedy="give the six fields of a FEN"
        ) from error
    if not board.is_valid():
        raise PositionError(
            f"not a legal position: {board.status()!r}",
            where=fen,
            remedy="correct the FEN; each side needs one king and the waiting side no check",
        )
    return board


def played(board: chess.Board, uci: str) -> chess.Move:
    """The legal move that a word names. Raises ValueError if it names none, or the null move."""
    move = board.parse_uci(uci)
    if not move:
        raise ValueError(f"null move: {uci!r} in {board.fen()}")
    return move


def _replayed(start: str, moves: tuple[str, ...], known: chess.Board | None) -> chess.Board:
    """The board after the moves; `known` is the one before the last of them."""
    board = _checked_board(start) if known is None else known.copy()
    first = 0 if known is None else len(moves) - 1
    for ply in range(first, len(moves)):
        try:
            board.push(played(board, moves[ply]))
        except ValueError as error:
            raise PositionError(
                f"move {moves[ply]!r} at ply {ply} is not legal",
                where=board.fen(),
                remedy="check the record's moves against its start FEN",
            ) from error
    return board


class _Boards:
    """The boards asked for last; never handed out themselves, for boards can be changed.

    The board before the last move is kept too: its other children are likely asked for next.
    """

    def __init__(self, size: int) -> None:
        self.size, self.lock = size, threading.Lock()
        self.kept: OrderedDict[tuple[str, tuple[str, ...]], chess.Board] = OrderedDict()

    def of(self, start: str, moves: tuple[str, ...]) -> chess.Board:
        found = self._found(start, moves)
        if found is not None:
            return found
        parent = None
        if moves:
            parent = self._found(start, moves[:-1])
            parent = parent or self._keep(start, moves[:-1], _replayed(start, moves[:-1], None))
        return self._keep(start, moves, _replayed(start, moves, parent))

    def _found(self, start: str, moves: tuple[str, ...]) -> chess.Board | None:
        with self.lock:
            found = self.kept.get((start, moves))
            if found is not None:
                self.kept.move_to_end((start, moves))
            return found

    def _keep(self, start: str, moves: tuple[str, ...], board: chess.Board) -> chess.Board:
        with self.lock:
            self.kept[(start, moves)] = board
            if len(self.kept) > self.size:
                self.kept.popitem(last=False)
        return board


_BOARDS = _Boards(KEPT_BOARDS)
