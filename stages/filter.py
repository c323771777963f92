"""Stage `filter`: keep an example if its new line is not worse where it leaves the old one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from queen.engines.judge import MoveJudge, RootVerdict
from queen.games.chess.position import Position
from queen.language.explanation import ExplanationError, parse
from queen.lineage.artifact import Draft
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.consolidate import CONSOLIDATED
from stages.decontaminate import Guard
from stages.engine import JudgeParams
from stages.positions import position_of

ROWS_PER_SHARD = 1024
FILTERED = pa.schema(
    [
        *CONSOLIDATED,
        ("differs_at", pa.int32()),
        ("old_value", pa.float64()),
        ("new_value", pa.float64()),
        ("barred", pa.bool_()),
        ("dropped", pa.string()),
    ]
)


@dataclass(frozen=True)
class Params:
    """What is kept.

    Attributes:
        max_loss: expected score by which the new move may be worse than the old (METHOD: 0).
        inner: keep explanations of positions below the roots too (ours).
        min_sentences: examples with fewer sentences of prose are dropped, those apart that are to
            have none.
        judge: the engine's budget for the comparison.
    """

    max_loss: float = 0.0
    inner: bool = True
    min_sentences: int = 1
    judge: JudgeParams = field(default_factory=JudgeParams)


@dataclass(frozen=True)
class Fork:
    """Where two lines part: the position there and the two moves."""

    ply: int
    position: Position
    old: str
    new: str


def shards(job: Job[Params]) -> Sequence[Shard]:
    return spans(job.table("consolidated").num_rows, ROWS_PER_SHARD)


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    start, stop = shard.spec["start"], shard.spec["stop"]
    rows = job.table("consolidated").slice(start, stop - start).to_pylist()
    forks = [fork_of(row) for row in rows]
    with job.searches() as cache, job.analyser(cache) as analyser:
        values = _compare(job.params.judge.build(analyser), forks)
    guard = Guard.of(job.inputs["evalset"])
    judged = [
        _row(job.params, guard, row, fork, pair)
        for row, fork, pair in zip(rows, forks, values, strict=True)
    ]
    write_rows(out / ROWS, rows_table(judged, FILTERED))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """Each position once; `repeated` counts rows merged, `uncompared` those without an old line."""
    seen = concat_shards(folders)
    table = _first_of_each(seen)
    gates.check("training", table)
    write_rows(out / ROWS, table)
    reasons = Counter(table["dropped"].to_pylist())
    kept = reasons.pop("", 0)
    counts = {"seen": seen.num_rows, "repeated": seen.num_rows - table.num_rows}
    counts |= {"examples": table.num_rows, "kept": kept}
    counts["uncompared"] = table["old_line"].to_pylist().count("")
    roots = pc.and_(pc.equal(table["dropped"], ""), pc.equal(table["path"], ""))
    counts["kept_roots"] = table.filter(roots).num_rows
    return Draft(counts=counts, drops=reasons, licences=job.inputs["consolidated"].record.licences)


def fork_of(row: Mapping[str, Any]) -> Fork | None:
    """Where the new line leaves the old one; None if it does not, or there was no old one."""
    position = position_of(row)
    lines = zip(row["old_line"].split(), row["line"].split(), strict=False)
    for ply, (old, new) in enumerate(lines):
        if old != new:
            return Fork(ply, position, old, new)
        position = position.child(new)
    return None


def _compare(
    judge: MoveJudge, forks: Sequence[Fork | None]
) -> list[tuple[float, float] | str | None]:
    """The values of old and new move at each fork; None without one, a reason if it failed."""
    asked = [fork for fork in forks if fork is not None]
    verdicts = judge.judge([(fork.position.fen, (fork.old, fork.new)) for fork in asked])
    answers = iter(zip(asked, verdicts, strict=True))
    values: list[tuple[float, float] | str | None] = []
    for fork in forks:
        if fork is None:
            values.append(None)
            continue
        _, verdict = next(answers)
        if isinstance(verdict, RootVerdict):
            values.append((verdict.values[fork.old], verdict.values[fork.new]))
        else:
            values.append(f"engine_{verdict.reason}")
    return values


def _row(
    params: Params,
    guard: Guard,
    row: Mapping[str, Any],
    fork: Fork | None,
    pair: tuple[float, float] | str | None,
) -> dict[str, Any]:
    barred = guard.reason(row)
    old, new = pair if isinstance(pair, tuple) else (None, None)
    return {
        **row,
        "differs_at": fork.ply if fork else None,
        "old_value": old,
        "new_value": new,
        "barred": barred is not None,
        "dropped": barred or _reason(params, row, pair),
    }


def _reason(params: Params, row: Mapping[str, Any], pair: tuple[float, float] | str | None) -> str:
    """Why an example is dropped; "" if it is kept."""
    if row["path"] and not params.inner:
        return "inner"
    try:
        explanation = parse(row["text"], position_of(row))
    except ExplanationError as error:
        return f"unparsed.{error.reason}"
    if row["told"] and len(explanation.prose) < params.min_sentences:
        return "too_few_sentences"
    if isinstance(pair, str):
        return pair
    if pair is not None and pair[1] < pair[0] - params.max_loss:
        return "line_worse"
    return ""


def _first_of_each(table: pa.Table) -> pa.Table:
    """Each position once: of several trees that reach it, the first row that is kept."""
    best: dict[str, int] = {}
    dropped = table["dropped"].to_pylist()
    for index, pid in enumerate(table["pid"].to_pylist()):
        if pid not in best or (dropped[best[pid]] != "" and dropped[index] == ""):
            best[pid] = index
    return table.take(pa.array(sorted(best.values()), pa.int64()))


SPEC = StageSpec(
    name="filter",
    params=Params,
    section="filter",
    inputs={"consolidated": "data/consolidate/{key}", "evalset": "data/evalset"},
    output="data/filter/{key}",
    shards=shards,
    work=work,
    assemble=assemble,
    side_by_side=lambda params: True,
    per="round",
    uses=("engine",),
)
