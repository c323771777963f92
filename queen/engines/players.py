"""Players for matches: a random mover, a one-ply material player, and UCI engines.

A player answers many positions at once, so that engines can keep commands in flight and
networks can batch. Every answer depends on the seed and the game so far alone, never on which
other games share the batch.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import chess
import xxhash

from queen.engines.stream import Choice, EngineStream, Query, Reply

PIECE_VALUES = {
    chess.PAWN: 1,
    chess.KNIGHT: 3,
    chess.BISHOP: 3,
    chess.ROOK: 5,
    chess.QUEEN: 9,
    chess.KING: 100,
}
MATE = 1000
FULL_SKILL = 20
SKILL_OPTION = "skill level"
SKILL_LINES = 4
PAWN_CP = 100


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

    def at_most_depth(self, depth: int) -> PlayLimit:
        """The same limit, and no deeper than `depth`."""
        return replace(self, depth=min(depth, self.depth or depth))

    def __str__(self) -> str:
        named = (("nodes", self.nodes), ("depth", self.depth), ("movetime", self.movetime_ms))
        return " ".join(f"{name}={value}" for name, value in named if value)


def choose_by_skill(choices: Sequence[Choice], skill: int, rng: random.Random) -> str:
    """Stockfish's rule for a Skill Level: a random push, larger for moves that lag behind.

    It belongs to a search of SKILL_LINES lines, no deeper than 1 + skill.
    Source: Stockfish 15.1, search.cpp, Skill::pick_best.
    """
    scores = [centipawns(choice) for choice in choices]
    top = max(scores)
    delta = min(top - min(scores), PAWN_CP)
    weakness = 120 - 2 * skill
    pushed = [
        score + (weakness * (top - score) + delta * rng.randrange(weakness)) // 128
        for score in scores
    ]
    return choices[pushed.index(max(pushed))].move


def centipawns(choice: Choice) -> int:
    """A choice's score as one number, mates beyond all others."""
    score = choice.score
    if score.mate is None:
        return score.cp or 0
    return 10_000 - score.mate if score.mate > 0 else -10_000 - score.mate


class EnginePlayer:
    """A UCI engine, each move from a cleared state and one thread.

    Args:
        command: the engine's program.
        limit: how long it thinks on each move.
        options: UCI options, set once. "Skill Level" is not handed on: the engine would draw from
            the clock, so its rule is applied here (`choose_by_skill`) and games repeat.
        name: its name in records; by default what the engine says and its limit.
        timeout_s: a search that takes longer counts as a hang.
        seed: of the draws below full skill.

    The process is started at the first move and ends with `close` or with this process.
    """

    def __init__(
        self,
        command: str,
        limit: PlayLimit,
        options: Mapping[str, str | int] | None = None,
        name: str | None = None,
        timeout_s: float = 60.0,
        seed: int = 0,
    ) -> None:
        given = dict(options or {})
        skills = [int(given.pop(key)) for key in list(given) if key.lower() == SKILL_OPTION]
        self.skill, self.seed = min([FULL_SKILL, *skills]), seed
        self.limit = limit.at_most_depth(self.skill + 1) if self.skill < FULL_SKILL else limit
        self._stream = EngineStream(command, given, timeout_s)
        self._name = name

    @property
    def name(self) -> str:
        skill = "" if self.skill == FULL_SKILL else f" skill={self.skill}"
        return self._name or f"{self._stream.name} {self.limit}{skill}"

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        """Raises EngineGoneError where the engine fails twice: a broken engine loses no games."""
        lines = 1 if self.skill == FULL_SKILL else SKILL_LINES
        replies = self._stream.search([Query.of(b, self.limit.go, lines) for b in boards])
        return [self._move(board, reply) for board, reply in zip(boards, replies, strict=True)]

    def _move(self, board: chess.Board, reply: Reply) -> chess.Move | None:
        move = reply.best
        if self.skill < FULL_SKILL and len(reply.choices) > 1:
            move = choose_by_skill(reply.choices, self.skill, game_rng(self.seed, board))
        return chess.Move.from_uci(move) if move else None

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> EnginePlayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
