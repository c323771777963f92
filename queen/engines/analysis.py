"""What a search is asked and what it answers: limits, lines, analyses, failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from queen.engines.score import Score
from queen.errors import QueenError

FailureReason = Literal["crashed", "hung", "rubbish", "illegal"]


@dataclass(frozen=True)
class Limit:
    """How long to search: nodes, depth or both (whichever comes first).

    Raises QueenError if neither is given or one is not positive.
    """

    nodes: int | None = None
    depth: int | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.nodes, self.depth) if value is not None]
        if not given or min(given) < 1:
            raise QueenError(
                f"a search limit of nodes={self.nodes}, depth={self.depth} ends no search",
                where="Limit",
                remedy="give nodes, depth or both, as positive numbers",
            )

    @property
    def go(self) -> str:
        """The UCI command."""
        parts = ["go"]
        if self.nodes is not None:
            parts.append(f"nodes {self.nodes}")
        if self.depth is not None:
            parts.append(f"depth {self.depth}")
        return " ".join(parts)


@dataclass(frozen=True)
class Line:
    """One line of a search: its score for the side to move, and its moves in UCI.

    The moves are empty only where the game is over.
    """

    score: Score
    moves: tuple[str, ...]


@dataclass(frozen=True)
class Analysis:
    """The answer to one search.

    Attributes:
        fen: the position as it was asked for.
        lines: best first; fewer than asked for where there are fewer legal moves.
        depth, nodes: as the engine counted them; 0 where the rules answered.
        source: who answered. Left out of comparison: the answer is the same.
    """

    fen: str
    lines: tuple[Line, ...]
    depth: int
    nodes: int
    source: Literal["engine", "rules", "cache"] = field(default="engine", compare=False)

    @property
    def best(self) -> Line:
        return self.lines[0]

    @property
    def expected(self) -> float:
        """Expected score of the side to move, in [0, 1]."""
        return self.lines[0].score.expected


@dataclass(frozen=True)
class EngineFailure:
    """A position the engine could not answer, after one retry in a fresh process.

    `reason` is "crashed", "hung" or "rubbish" for what the engine did, "illegal" for a position
    or move that chess does not allow and that no engine was shown.
    """

    fen: str
    reason: FailureReason
    detail: str


@dataclass(frozen=True)
class EngineIdentity:
    """What makes two engines search alike.

    Attributes:
        name, version: as the engine says them.
        network_digest: of its network, not of the binary; "" if it has none.
        options: those set apart from the network's file, sorted. Source: METHOD section 1.
    """

    name: str
    version: str
    network_digest: str
    options: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, Any]:
        """For records: plain JSON."""
        return {
            "name": self.name,
            "version": self.version,
            "network_digest": self.network_digest,
            "options": dict(self.options),
        }

    def key(self, task: Mapping[str, Any]) -> str:
        """Canonical text of this engine doing one task: the cache's key beside the FEN."""
        whole = {"engine": self.as_dict(), "task": dict(task)}
        return orjson.dumps(whole, option=orjson.OPT_SORT_KEYS).decode()


def search_key(identity: EngineIdentity, limit: Limit, multipv: int) -> str:
    """The cache key of a search, without its FEN."""
    task = {"do": "search", "nodes": limit.nodes, "depth": limit.depth, "multipv": multipv}
    return identity.key(task)


def encode_analysis(analysis: Analysis) -> bytes:
    """Compact JSON: [depth, nodes, [[cp, mate, "moves"], ...]]."""
    lines = [[x.score.cp, x.score.mate, " ".join(x.moves)] for x in analysis.lines]
    return orjson.dumps([analysis.depth, analysis.nodes, lines])


def decode_analysis(fen: str, data: bytes) -> Analysis:
    """Inverse of `encode_analysis`, with source "cache"."""
    depth, nodes, rows = orjson.loads(data)
    lines = tuple(Line(Score(cp=cp, mate=mate), tuple(m.split())) for cp, mate, m in rows)
    return Analysis(fen, lines, depth, nodes, "cache")
