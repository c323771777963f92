"""Players for matches: a random mover, a one-ply material player, and UCI engines.

A player answers many positions at once, so that engines can keep commands in flight and
networks can batch. Every answer depends on the seed and the game so far alone, never on which
other games share the batch.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import chess
import xxhash

from queen.engines.stream import EngineStream, Query

PIECE_VALUES = {
    chess.PAWN: 1,
    chess.KNIGHT: 3,
    chess.BISHOP: 3,
    chess.ROOK: 5,
    chess.QUEEN: 9,
    chess.KING: 100,
}
MATE = 1000


class Player(Protocol):
    """Anything that plays: a name, and moves for many positions at once."""

    @property
    def name(self) -> str: ...

    def moves(self, boards: Sequence[chess.Board]) -> Sequence[chess.Move | None]:
        """One move for each board (none is over); None where the player finds none."""
        ...


def game_rng(seed: int, board: chess.Board) -> random.Random:
    """A generator that depends on the seed and the game so far, and on nothing else."""
    played = " ".join(move.uci() for move in board.move_stack)
    return random.Random(xxhash.xxh64_intdigest(f"{seed}|{board.fen()}|{played}".encode()))


class RandomPlayer:
    """Plays a uniformly drawn legal move."""

    def __init__(self, seed: int, name: str = "random") -> None:
        self.seed, self.name = seed, name

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move]:
        return [self._move(board) for board in boards]

    def _move(self, board: chess.Board) -> chess.Move:
        legal = sorted(board.legal_moves, key=chess.Move.uci)
        return game_rng(self.seed, board).choice(legal)


class MaterialPlayer:
    """Looks one ply ahead: mates if it can, else wins the most material by static exchange.

    Only exchanges on the square moved to are counted, so it leaves pieces hanging elsewhere.
    Ties are broken by the seed and the game so far.
    """

    def __init__(self, seed: int, name: str = "material") -> None:
        self.seed, self.name = seed, name

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move]:
        return [self._move(board.copy()) for board in boards]

    def _move(self, board: chess.Board) -> chess.Move:
        rng = game_rng(self.seed, board)
        legal = sorted(board.legal_moves, key=chess.Move.uci)
        gains = [material_gain(board, move) for move in legal]
        best = max(gains)
        return rng.choice([m for m, gain in zip(legal, gains, strict=True) if gain == best])


def material_gain(board: chess.Board, move: chess.Move) -> int:
    """Pawns the mover wins by `move` after the exchanges on its square; MATE for mate.

    A draw on the spot counts 0. The board is left as it was.
    """
    gain = _taken(board, move) + _promoted(move)
    board.push(move)
    try:
        if not any(board.generate_legal_moves()):
            return MATE if board.is_check() else 0
        if board.is_insufficient_material():
            return 0
        return gain - _recapture(board, move.to_square)
    finally:
        board.pop()


def _taken(board: chess.Board, move: chess.Move) -> int:
    if board.is_en_passant(move):
        return PIECE_VALUES[chess.PAWN]
    taken = None if board.is_castling(move) else board.piece_type_at(move.to_square)
    return PIECE_VALUES[taken] if taken else 0


def _promoted(move: chess.Move) -> int:
    return PIECE_VALUES[move.promotion] - PIECE_VALUES[chess.PAWN] if move.promotion else 0


def _recapture(board: chess.Board, square: chess.Square) -> int:
    """What the side to move wins by taking on `square`, least valuable piece first; at least 0."""
    takers = list(board.generate_legal_captures(to_mask=chess.BB_SQUARES[square]))
    takers = [move for move in takers if not board.is_en_passant(move)]
    if not takers:
        return 0
    taker = min(takers, key=lambda m: (_value_at(board, m.from_square), -_promoted(m), m.uci()))
    gain = _taken(board, taker) + _promoted(taker)
    board.push(taker)
    rest = _recapture(board, square)
    board.pop()
    return max(0, gain - rest)


def _value_at(board: chess.Board, square: chess.Square) -> int:
    kind = board.piece_type_at(square)
    return PIECE_VALUES[kind] if kind else 0


@dataclass(frozen=True)
class PlayLimit:
    """How long an engine thinks on each move; at least one field is set.

    `movetime_ms` makes play depend on the machine: leave it out where runs must repeat.
    """

    nodes: int | None = None
    depth: int | None = None
    movetime_ms: int | None = None

    def __post_init__(self) -> None:
        if not (self.nodes or self.depth or self.movetime_ms):
            raise ValueError("an engine needs a limit: nodes, depth or movetime_ms")

    @property
    def go(self) -> str:
        """The UCI command."""
        return "go " + str(self).replace("=", " ")

    def __str__(self) -> str:
        named = (("nodes", self.nodes), ("depth", self.depth), ("movetime", self.movetime_ms))
        return " ".join(f"{name}={value}" for name, value in named if value)


class EnginePlayer:
    """A UCI engine that plays its best move, each from a cleared state and one thread.

    Args:
        command: the engine's program.
        limit: how long it thinks on each move.
        options: UCI options, set once.
        name: its name in records; by default what the engine says and its limit.
        timeout_s: a search that takes longer counts as a hang.

    The process is started at the first move and ends with `close` or with this process.
    """

    def __init__(
        self,
        command: str,
        limit: PlayLimit,
        options: Mapping[str, str | int] | None = None,
        name: str | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self.limit = limit
        self._stream = EngineStream(command, options or {}, timeout_s)
        self._name = name

    @property
    def name(self) -> str:
        return self._name or f"{self._stream.name} {self.limit}"

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        """Raises EngineGoneError where the engine fails twice: a broken engine loses no games."""
        replies = self._stream.search([Query.of(board, self.limit.go) for board in boards])
        return [chess.Move.from_uci(r.best) if r.best else None for r in replies]

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> EnginePlayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
