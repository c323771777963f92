"""Stage `evalset`: held-out general and tactical positions, judged, with two plain baselines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge, RootVerdict, tactical_gap
from queen.engines.pool import Analyser
from queen.lineage.artifact import Draft
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, write_rows
from stages.engine import JudgeParams, searched
from stages.models import load_expert
from stages.positions import position_of

Row = Mapping[str, Any]
EVALSET = pa.schema(
    [
        ("pid", pa.string()),
        ("kind", pa.string()),
        ("split", pa.string()),
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("fen", pa.string()),
        ("best", pa.float64()),
        ("best_move", pa.string()),
        ("gap", pa.float64()),
        ("uniform_move", pa.string()),
        ("uniform_ok", pa.bool_()),
        ("encoder_move", pa.string()),
        ("encoder_ok", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Params:
    """How many positions, and what makes one tactical.

    Attributes:
        general: number of general positions for each split.
        tactical: number of tactical positions for each split.
        scan_nodes: search of every position of a game when looking for mistakes.
        gap_nodes: two-line search that measures the gap to the second best move.
        gap: expected score by which the best move must lead (METHOD: 0.20).
        judge: how the baselines' moves are judged.
    """

    general: dict[str, int] = field(default_factory=lambda: {"dev": 600, "test": 1500})
    tactical: dict[str, int] = field(default_factory=lambda: {"dev": 200, "test": 500})
    scan_nodes: int = 500
    gap_nodes: int = 2000
    gap: float = 0.20
    judge: JudgeParams = field(default_factory=JudgeParams)


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [Shard(split, {"split": split}) for split in ("dev", "test")]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Choose the split's positions, then judge what two players without thought would do."""
    split = shard.spec["split"]
    table = job.table("positions")
    rows = sorted(
        table.filter(pc.equal(table["split"], split)).to_pylist(), key=lambda row: row["pid"]
    )
    with job.searches() as cache, job.analyser(cache) as analyser:
        general = [{**row, "kind": "general"} for row in rows[: job.params.general[split]]]
        taken = {row["pid"] for row in general}
        chosen = [*general, *_tactical(job, analyser, rows, taken, job.params.tactical[split])]
        judge = job.params.judge.build(analyser)
        judged = list(_with_baselines(job, judge, chosen))
    write_rows(out / ROWS, rows_table(judged, EVALSET))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("evalset", table)
    write_rows(out / ROWS, table)
    named = zip(table["split"].to_pylist(), table["kind"].to_pylist(), strict=True)
    counts = Counter(f"{split}.{kind}" for split, kind in named)
    wanted = {"general": job.params.general, "tactical": job.params.tactical}
    fewer = {
        f"fewer_than_wanted.{split}.{kind}": number - counts[f"{split}.{kind}"]
        for kind, numbers in wanted.items()
        for split, number in sorted(numbers.items())
        if number > counts[f"{split}.{kind}"]
    }
    return Draft(
        counts=counts,
        drops=fewer,
        figures=dict(_baseline_figures(table)),
        licences=job.inputs["positions"].record.licences,
    )


def _tactical(
    job: Job[Params], analyser: Analyser, rows: Sequence[Row], taken: set[str], wanted: int
) -> list[dict[str, Any]]:
    """Positions right after a mistake with one clearly best move, game by game until enough."""
    found: list[dict[str, Any]] = []
    for games in _batches(_by_game(rows), 20):
        if len(found) >= wanted:
            break
        after = [row for row in _after_mistakes(job, analyser, games) if row["pid"] not in taken]
        limit = Limit(nodes=job.params.gap_nodes)
        gaps = tactical_gap(analyser, [row["fen"] for row in after], limit)
        for row, gap in zip(after, gaps, strict=True):
            if gap is not None and gap >= job.params.gap:
                found.append({**row, "kind": "tactical", "gap": gap})
        job.progress(min(len(found), wanted), wanted, "tactical positions")
    return found[:wanted]


def _after_mistakes(
    job: Job[Params], analyser: Analyser, games: Sequence[Sequence[Row]]
) -> Iterator[Row]:
    """Positions where the move before them gave away a mistake's worth of expected score."""
    rows = [row for game in games for row in game]
    limit = Limit(nodes=job.params.scan_nodes)
    values = dict(searched(analyser, [row["fen"] for row in rows], limit))
    for game in games:
        for before, after in pairwise(game):
            if after["ply"] != before["ply"] + 1:
                continue
            had, has = values.get(before["fen"]), values.get(after["fen"])
            if had is not None and has is not None and 1 - has <= had - job.params.judge.mistake:
                yield after


def _with_baselines(
    job: Job[Params], judge: MoveJudge, rows: Sequence[Row]
) -> Iterator[dict[str, Any]]:
    """Add the uniform legal mover's and the encoder's own move, and whether they are mistakes."""
    positions = [position_of(row) for row in rows]
    policies = load_expert(job.inputs["encoder"], (0,), job.machine).policy(positions)
    uniform = [_uniform_move(row, job.seed) for row in rows]
    greedy = [max(sorted(policy), key=policy.__getitem__) for policy in policies]
    items = [(row["fen"], sorted({u, e})) for row, u, e in zip(rows, uniform, greedy, strict=True)]
    for row, u, e, verdict in zip(rows, uniform, greedy, judge.judge(items), strict=True):
        if isinstance(verdict, RootVerdict):
            yield {
                **row,
                "best": verdict.best,
                "best_move": verdict.best_move,
                "uniform_move": u,
                "uniform_ok": not verdict.is_mistake(u),
                "encoder_move": e,
                "encoder_ok": not verdict.is_mistake(e),
            }


def _uniform_move(row: Row, seed: int) -> str:
    moves = sorted(move.uci() for move in chess.Board(row["fen"]).legal_moves)
    rng = np.random.default_rng([seed, int(row["pid"][:12], 16)])
    return moves[int(rng.integers(len(moves)))]


def _by_game(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of each game in ply order, games in order of their ids."""
    games: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        games[row["game_id"]].append(row)
    return [sorted(games[g], key=lambda row: row["ply"]) for g in sorted(games)]


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _baseline_figures(table: pa.Table) -> Iterator[tuple[str, float]]:
    for split in ("dev", "test"):
        for kind in ("general", "tactical"):
            chosen = pc.and_(pc.equal(table["split"], split), pc.equal(table["kind"], kind))
            part = table.filter(chosen)
            for who in ("uniform", "encoder"):
                if part.num_rows:
                    share = pc.mean(part[f"{who}_ok"].cast(pa.float64())).as_py()
                    yield f"{split}.{kind}.{who}.fnmr", round(share, 6)


SPEC = StageSpec(
    name="evalset",
    params=Params,
    section="evalset",
    inputs={"positions": "data/positions", "encoder": "models/encoder"},
    output="data/evalset",
    shards=shards,
    work=work,
    assemble=assemble,
    uses=("engine",),
)
