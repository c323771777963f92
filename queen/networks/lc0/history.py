"""A position's recent boards as bitboards, built move by move and remembered.

What a network sees of a game: the last eight boards, each with whether it had occurred before.
Positions share long histories, so the last ones built are kept: a position one move after a
remembered one costs one move.
"""

from __future__ import annotations

import struct
import threading
from collections import deque
from dataclasses import dataclass

import chess

from queen.games.chess.position import Position, PositionError

BOARDS = 8
BITBOARDS = 13
FRAME_BYTES = BITBOARDS * 8
EMPTY_FRAME = bytes(FRAME_BYTES)

_PACK = struct.Struct("<13Q").pack
_ALL_ONES = b"\xff" * 8

_Key = tuple[bytes, int, int]


@dataclass(frozen=True, slots=True)
class History:
    """What the input planes are drawn from.

    Attributes:
        board: the position, without a move stack (not to be changed).
        frames: the last boards, newest first, at most eight. Each is 13 bitboards of White's
            view, little-endian: P N B R Q K of White, of Black, then all ones if the position
            had occurred before.
        fill: the frame that stands for each missing board.
        keys: the positions since the last irreversible move, oldest first, for repetitions.
    """

    board: chess.Board
    frames: tuple[bytes, ...]
    fill: bytes
    keys: tuple[_Key, ...]

    @classmethod
    def root(cls, board: chess.Board) -> History:
        """Of a board before which nothing is known; its legality is not checked."""
        key = _key(board)
        fill = EMPTY_FRAME if _is_initial(board) else _before_push(board)
        return cls(board.copy(stack=False), (key[0],), fill, (key,))


class _Line:
    """A game being replayed."""

    def __init__(self, history: History) -> None:
        self.board = history.board.copy(stack=False)
        self.frames = deque(history.frames, maxlen=BOARDS)
        self.fill = history.fill
        self.keys = list(history.keys)

    def push(self, uci: str) -> None:
        """Raises ValueError if the move is not legal."""
        board = self.board
        move = board.parse_uci(uci)
        if not move:
            raise ValueError("a null move")
        board.push(move)
        if board.halfmove_clock == 0:
            self.keys.clear()
        key = _key(board)
        repeated = board.halfmove_clock >= 4 and key in self.keys[-4::-2]
        self.keys.append(key)
        self.frames.appendleft(key[0][:-8] + _ALL_ONES if repeated else key[0])

    def history(self) -> History:
        board = self.board.copy(stack=False)
        return History(board, tuple(self.frames), self.fill, tuple(self.keys))


class Histories:
    """Histories of positions, the last `size` kept; safe to share between threads."""

    def __init__(self, size: int = 8192) -> None:
        self._size = size
        self._kept: dict[tuple[str, tuple[str, ...]], History] = {}
        self._lock = threading.Lock()

    def of(self, position: Position) -> History:
        """Raises PositionError on an illegal start or move."""
        start, moves = position.start, position.moves
        known, history = self._nearest(start, moves)
        if history is None:
            history = History.root(Position(start).board())
            self._keep(start, (), history)
        if known == len(moves):
            return history
        line = _Line(history)
        for ply in range(known, len(moves)):
            if ply == len(moves) - 1:  # siblings will ask for the same parent
                self._keep(start, moves[:ply], line.history())
            try:
                line.push(moves[ply])
            except ValueError as error:
                raise PositionError(
                    f"move {moves[ply]!r} at ply {ply} is not legal",
                    where=line.board.fen(),
                    remedy="check the record's moves against its start FEN",
                ) from error
        history = line.history()
        self._keep(start, moves, history)
        return history

    def _nearest(self, start: str, moves: tuple[str, ...]) -> tuple[int, History | None]:
        with self._lock:
            for ply in range(len(moves), -1, -1):
                found = self._kept.get((start, moves[:ply]))
                if found is not None:
                    return ply, found
        return 0, None

    def _keep(self, start: str, moves: tuple[str, ...], history: History) -> None:
        with self._lock:
            self._kept.pop((start, moves), None)
            self._kept[start, moves] = history
            if len(self._kept) > self._size:
                del self._kept[next(iter(self._kept))]


def _is_initial(board: chess.Board) -> bool:
    """Clocks do not matter, as in lc0."""
    start = chess.Board()
    mine = (board.board_fen(), board.turn, board.castling_rights)
    return mine == (start.board_fen(), start.turn, start.castling_rights)


def _before_push(board: chess.Board) -> bytes:
    """The frame of an older board: a pawn that has just moved two squares is put back."""
    if board.ep_square is None:
        return _frame(board)
    step = 8 if board.turn else -8
    older = board.copy(stack=False)
    pawn = older.remove_piece_at(board.ep_square - step)
    if pawn is not None:
        older.set_piece_at(board.ep_square + step, pawn)
    return _frame(older)


def _frame(board: chess.Board) -> bytes:
    """The board as one that had not occurred before."""
    white, black = board.occupied_co[chess.WHITE], board.occupied_co[chess.BLACK]
    p, n, b, r, q, k = (
        board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings
    )  # fmt: skip
    return _PACK(
        p & white, n & white, b & white, r & white, q & white, k & white,
        p & black, n & black, b & black, r & black, q & black, k & black,
        0,
    )  # fmt: skip


def _key(board: chess.Board) -> _Key:
    """What makes two positions of one side to move the same in lc0's eyes.

    A played double push counts as en passant only if an enemy pawn attacks the square.
    """
    ep = board.ep_square
    if ep is not None and board.move_stack:
        takers = chess.BB_PAWN_ATTACKS[not board.turn][ep] & board.pawns
        if not takers & board.occupied_co[board.turn]:
            ep = None
    return _frame(board), board.castling_rights, -1 if ep is None else ep
