"""What is told of one example: from its text back to the engine and the game it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import chess

from queen.games.chess.notation import san_line
from queen.games.chess.position import Position

Line = tuple[str, ...]


@dataclass(frozen=True)
class Hop:
    """One step back of a statement: where it stood before, and as what."""

    origin: str
    after: Line
    index: int
    text: str


@dataclass(frozen=True)
class Statement:
    """A sentence of the example and the way back to who said it first.

    Attributes:
        text, told: as the model writes it, and for people.
        origin, move, model: its source (see `queen.language.provenance.Source`).
        hops: the places it came through, the nearest first.
    """

    text: str
    told: str
    origin: str
    move: str
    model: bool
    hops: tuple[Hop, ...]


@dataclass(frozen=True)
class Choice:
    """A candidate at a node: the engine's value, and where its line comes from."""

    move: str
    san: str
    value: float | None
    mistake: bool | None
    logprob: float | None
    line: str
    line_from: str


@dataclass(frozen=True)
class Branch:
    """A node of the tree below an example.

    Attributes:
        after: moves from the tree's root.
        san: its last move.
        fen: the position.
        best, best_move: the engine's judgement of it, if there is one.
        said: the model's own first move there; empty if its text could not be read.
        reason: why it could not.
        mistake: its own first move is a mistake, or could not be read.
        stopped: why it did not become a root though it should.
        text: what the model wrote.
        choices: its candidates, where it became a root itself.
        replaced: the model's move that gave way to the engine's best.
        children: below it.
    """

    after: Line
    san: str
    fen: str
    best: float | None
    best_move: str
    said: str
    reason: str
    mistake: bool
    stopped: str
    text: str | None
    choices: tuple[Choice, ...]
    replaced: str | None
    children: tuple[Branch, ...]


@dataclass(frozen=True)
class Origins:
    """The game an example's root came from."""

    source: str
    game_id: str
    ply: int | None
    start: str
    moves: str
    result: str = ""
    white_elo: int | None = None
    black_elo: int | None = None
    split: str = ""
    file: str = ""
    offset: int | None = None


@dataclass(frozen=True)
class Trail:
    """Everything about one example, from its text back to its game."""

    key: str
    pid: str
    root: str
    path: Line
    fen: str
    kept: bool
    dropped: str
    text: str
    old_text: str
    compared: Mapping[str, Any]
    statements: tuple[Statement, ...]
    cut: Mapping[str, int]
    tree: Branch
    ancestors: tuple[Branch, ...]
    game: Origins
    model: str
    thresholds: Mapping[str, Mapping[str, Any]]
    engine: Mapping[str, Any]
    artifacts: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def game_board(game: Origins) -> tuple[chess.Board, str, str]:
    """The root's board, and in SAN the moves before it and after it."""
    moves = game.moves.split()
    ply = len(moves) if game.ply is None else game.ply
    board = Position(game.start, tuple(moves[:ply])).board()
    before = san_line(chess.Board(game.start), moves[:ply])
    after = san_line(board, moves[ply:]) if moves[ply:] else ""
    return board, before, after
