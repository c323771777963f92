"""What stages ask of engines alike: how moves are judged, plain searches, classical tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from queen.engines.analysis import Analysis, Limit
from queen.engines.cache import SearchCache
from queen.engines.classical import ClassicalEvaluator
from queen.engines.judge import MoveJudge
from queen.engines.pool import Analyser
from queen.games.chess.position import Position
from queen.language.engine_facts import TermTable, term_table
from stages.base import Job, engine_settings


@dataclass(frozen=True)
class JudgeParams:
    """How a move is judged.

    Attributes:
        nodes: search of clear cases.
        close_nodes: search where the loss is within `margin` of the threshold; 0 for none.
        mistake: expected score a mistake gives away (METHOD: 0.10, absolute).
        margin: how near to the threshold a case is close.
    """

    nodes: int = 2000
    close_nodes: int = 10_000
    mistake: float = 0.10
    margin: float = 0.04

    def build(self, analyser: Analyser) -> MoveJudge:
        close = Limit(nodes=self.close_nodes) if self.close_nodes else None
        return MoveJudge(analyser, Limit(nodes=self.nodes), close, self.mistake, self.margin)


def searched(analyser: Analyser, fens: Sequence[str], limit: Limit) -> Iterator[tuple[str, float]]:
    """FEN and expected score of the side to move, where the engine answered."""
    for analysis in analyser.analyse(fens, limit):
        if isinstance(analysis, Analysis):
            yield analysis.fen, analysis.lines[0].score.expected


def classical_tables(
    job: Job[Any], cache: SearchCache, fens: Sequence[str]
) -> dict[str, TermTable]:
    """The classical terms of each position that has a table, by FEN."""
    settings = engine_settings(job.engine, job.machine)
    settings = replace(settings, command=job.engine.classical, options={})
    with ClassicalEvaluator(settings, cache) as classical:
        found = zip(fens, map(term_table, classical.terms(fens)), strict=True)
        return {fen: table for fen, table in found if table is not None}


def position_after(position: Position, line: tuple[str, ...]) -> Position:
    """The position after a line of moves."""
    return Position(position.start, (*position.moves, *line))
