"""A model against one engine at several depths: games, a table with Elo intervals, a plot.

The games are kept in the state folder under a digest of everything that they depend on, a file
for each depth and a line for each game as it ends. So the same match again plays only what is
missing, also after a kill, and more games of it begin with those that are there.
Source: METHOD section 2 (against Stockfish at depths 1 to 10).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from queen.engines.analysis import Limit
from queen.engines.locate import AUTO, find_engine
from queen.engines.match import (
    GameRecord,
    Pairing,
    Rules,
    Verdict,
    engine_verdict,
    paired,
    play,
    to_pgn,
)
from queen.engines.openings import OpeningRules, draw_openings
from queen.engines.players import FULL_SKILL, EnginePlayer, Player, PlayLimit
from queen.engines.pool import Analyser
from queen.errors import QueenError
from queen.evaluation.elo import fit_player
from queen.games.chess.position import Position
from queen.lineage.artifact import digest_of, write_json
from stages.base import EngineParams, Machine, engine_settings
from stages.opponents import CHECK_EVERY, identity_of
from stages.shown import between

TOGETHER = 64  # games between two looks at the progress
NAMES = ("games", "won", "drawn", "lost", "score", "Elo difference", "95 % interval")


@dataclass(frozen=True)
class MatchPlan:
    """What is played.

    Attributes:
        depths: of the opponent's searches.
        games: at each depth; even, for each opening is played with both colours.
        seed: of openings and of an opponent below full skill.
        opponent: the engine's program; `auto` and `stockfish` are the project's own.
        skill: Stockfish's Skill Level, 20 for all it can.
        opening_plies: shortest and longest opening.
        max_plies: games are adjudicated then, by a search of `adjudicate_nodes`.
    """

    depths: tuple[int, ...] = tuple(range(1, 11))
    games: int = 20
    seed: int = 1
    opponent: str = AUTO
    skill: int = FULL_SKILL
    opening_plies: tuple[int, int] = (2, 6)
    max_plies: int = 200
    adjudicate_nodes: int = 500

    def __post_init__(self) -> None:
        if self.games < 2 or self.games % 2:
            raise QueenError(
                f"{self.games} games cannot be shared between the colours",
                where="games",
                remedy="give an even number, at least 2",
            )
        if not self.depths or min(self.depths) < 1:
            raise QueenError(
                "no depths to play at",
                where="depths",
                remedy="give depths from 1, like 1-10 or 1,3,5",
            )


@dataclass(frozen=True)
class Row:
    """The games at one depth.

    Attributes:
        score: share of the points.
        elo: the model above the opponent, by `queen.evaluation.elo.fit_player`.
        low, high: its 95 % interval; None where all games were won (lost): no bound on that side.
        endings: games by how they ended.
    """

    depth: int
    games: int
    won: int
    drawn: int
    lost: int
    score: float
    elo: float
    low: float | None
    high: float | None
    endings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A match: who played, how, and a row for each depth."""

    model: str
    content: str
    opponent: str
    plan: MatchPlan
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Side:
    """The model: its name, content hash, and how to load it (only if games are missing)."""

    name: str
    content: str
    load: Callable[[], Player]


Told = Callable[[int, int, str], None]
"""Takes how many games are done, of how many, and a note."""


def play_table(
    plan: MatchPlan, side: Side, engine: EngineParams, kept: Path, told: Told
) -> tuple[Table, list[GameRecord]]:
    """Play what is missing of a match; its table and all its games.

    Args:
        engine: the project's own, which also adjudicates.
        kept: where games of all matches are kept.
        told: told of the progress.

    Raises QueenError where an engine is missing or fails twice.
    """
    command = _command(plan, engine)
    with ExitStack() as stack:
        settings = engine_settings(engine, Machine(workers=1))
        analyser = stack.enter_context(Analyser(settings))
        verdict = engine_verdict(analyser, Limit(nodes=plan.adjudicate_nodes))
        who, identity = _identity(command, engine)
        folder = kept / _key(plan, side, identity, analyser.identity.as_dict())
        openings = _openings(plan, verdict)
        player = _Late(side)
        rows, games = [], []
        for place, depth in enumerate(plan.depths):
            opponent = stack.enter_context(_opponent(plan, command, depth, engine))
            pairings = paired([(player, opponent)], openings)
            before, total = place * plan.games, plan.games * len(plan.depths)
            found: list[GameRecord] = []
            for part in _parts(pairings):
                told(before + len(found), total, f"depth {depth}")
                found += _played(part, plan, verdict, folder / f"depth-{depth:02d}.jsonl")
            rows.append(row_of(depth, found, side.name))
            games += found
        told(total, total, "")
    return Table(side.name, side.content, who, plan, tuple(rows)), games


def row_of(depth: int, games: Sequence[GameRecord], name: str) -> Row:
    """What the games of one depth come to for the player of that name."""
    points = [game.score_of(name) for game in games]
    rating = fit_player([0.0] * len(points), points)
    tally = Counter(points)
    return Row(
        depth=depth,
        games=len(points),
        won=tally[1.0],
        drawn=tally[0.5],
        lost=tally[0.0],
        score=round(sum(points) / len(points), 4),
        elo=round(rating.elo, 1),
        low=_rounded(rating.low),
        high=_rounded(rating.high),
        endings=dict(sorted(Counter(game.termination for game in games).items())),
    )


def text_of(table: Table) -> str:
    """The table as plain text."""
    head = ("depth", *NAMES)
    cells = [head, *(_cells(row) for row in table.rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    rows = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in cells]
    title = f"{table.model} ({table.content[:12]}) against {table.opponent}{_skill(table.plan)}"
    return "\n".join([title, "", *rows, "", _note(table.plan)]) + "\n"


def chart_of(table: Table) -> str:
    """The Elo difference by depth with its intervals, as an SVG document."""
    from stages.report.charts import Point, interval_chart
    from stages.report.standalone import standalone

    points = [
        Point(f"d{row.depth}", row.elo, row.low, row.high, kind=_standing(row))
        for row in table.rows
    ]
    title = f"Elo of {table.model} above {table.opponent} by the engine's depth"
    chart = interval_chart(points, [("equal", 0.0)], share=False, title=title)
    return standalone(chart, f"{title}, with 95 % intervals")


def write_table(table: Table, games: Sequence[GameRecord], out: Path) -> None:
    """table.json, table.txt, chart.svg and games.pgn into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "table.json", table.as_json())
    (out / "table.txt").write_text(text_of(table))
    (out / "chart.svg").write_text(chart_of(table))
    (out / "games.pgn").write_text("\n".join(to_pgn(game) for game in games))


class _Late:
    """The model's player, loaded at its first move: a finished match needs none."""

    def __init__(self, side: Side) -> None:
        self.side, self.name = side, side.name
        self.player: Player | None = None

    def moves(self, boards: Sequence[Any]) -> Sequence[Any]:
        if self.player is None:
            self.player = self.side.load()
        return self.player.moves(boards)


def _command(plan: MatchPlan, engine: EngineParams) -> str:
    own = plan.opponent in (AUTO, "stockfish") and engine.command != AUTO
    return find_engine(engine.command if own else plan.opponent)


def _identity(command: str, engine: EngineParams) -> tuple[str, dict[str, Any]]:
    """The opponent's name, and all that tells it from others."""
    found = identity_of(command, engine)
    return f"{found.name} {found.version}".strip(), found.as_dict()


def _key(plan: MatchPlan, side: Side, opponent: Any, adjudicator: Any) -> str:
    """What games depend on, but for depth and number: those are the file and the line."""
    aside = ("depths", "games", "opponent")
    told = {name: value for name, value in asdict(plan).items() if name not in aside}
    return digest_of([side.name, side.content, opponent, adjudicator, told])[:24]


def _openings(plan: MatchPlan, verdict: Verdict) -> list[Position]:
    low, high = plan.opening_plies
    return draw_openings(plan.games // 2, plan.seed, verdict, OpeningRules(low, high))


def _opponent(plan: MatchPlan, command: str, depth: int, engine: EngineParams) -> EnginePlayer:
    options: dict[str, str | int] = {}
    if plan.skill < FULL_SKILL:
        options["Skill Level"] = plan.skill
    limit = PlayLimit(depth=depth)
    name = f"depth {depth}"
    return EnginePlayer(command, limit, options, name, engine.timeout_s, plan.seed)


def _parts(pairings: Sequence[Pairing]) -> Iterator[Sequence[Pairing]]:
    for start in range(0, len(pairings), TOGETHER):
        yield pairings[start : start + TOGETHER]


def _played(
    pairings: Sequence[Pairing], plan: MatchPlan, verdict: Verdict, record: Path
) -> list[GameRecord]:
    record.parent.mkdir(parents=True, exist_ok=True)
    rules = Rules(max_plies=plan.max_plies, check_every=CHECK_EVERY)
    return play(pairings, rules, verdict, record=record)


def _cells(row: Row) -> tuple[str, ...]:
    interval = between((row.low, row.high), sign="+")
    numbers = (row.depth, row.games, row.won, row.drawn, row.lost)
    return (*map(str, numbers), f"{row.score:.1%}", f"{row.elo:+.0f}", interval)


def _note(plan: MatchPlan) -> str:
    low, high = plan.opening_plies
    return (
        f"openings of {low} to {high} random plies, each with both colours, seed {plan.seed}; "
        f"games end by rule, or by a search of {plan.adjudicate_nodes} nodes (decided, or at ply "
        f"{plan.max_plies});\nElo is fitted with a prior of 400 about 0, draws count as half"
    )


def _skill(plan: MatchPlan) -> str:
    return "" if plan.skill == FULL_SKILL else f", Skill Level {plan.skill}"


def _standing(row: Row) -> str:
    """A mark of the chart: clearly above, clearly below, or neither."""
    if row.low is not None and row.low > 0:
        return "better"
    return "worse" if row.high is not None and row.high < 0 else "even"


def _rounded(value: float | None) -> float | None:
    return round(value, 1) if value is not None and math.isfinite(value) else None
