"""Stage `seeds`: a teacher explains positions; the engine filters what it says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from queen.engines.analysis import Analysis, EngineFailure
from queen.engines.judge import RootVerdict
from queen.engines.pool import Analyser
from queen.games.chess.position import Position
from queen.language.api.settings import Endpoint
from queen.language.engine_facts import EngineFacts, Node
from queen.language.explanation import Explanation, render
from queen.language.teacher_frontier import prompts_digest
from queen.language.teacher_hce import Style, TeacherInput, write
from queen.lineage.artifact import Draft
from queen.search.candidates import draw
from stages import asking, frontier, gates
from stages.base import (
    ROWS,
    Job,
    Shard,
    StageSpec,
    concat_shards,
    rows_table,
    spans,
    write_rows,
)
from stages.decontaminate import Guard
from stages.engine import JudgeParams, position_after
from stages.explain import root_seed
from stages.facts import facts_to_json
from stages.models import load_expert
from stages.positions import position_of
from stages.settings import only
from stages.teaching import with_terms

POSITIONS_PER_SHARD = 100
SEEDS = pa.schema(
    [
        ("pid", pa.string()),
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("fen", pa.string()),
        ("text", pa.string()),
        ("explanation", pa.string()),
        ("facts", pa.string()),
        ("sentences", pa.int32()),
        ("dropped", pa.string()),
    ]
)


@dataclass(frozen=True)
class TeacherParams:
    """Who writes the seeds.

    Attributes:
        kind: `hce`, the embedded teacher (Stockfish's classical terms and human mistakes), or
            `frontier`, a language model behind an API.
        llm: that model.
    """

    kind: Literal["hce", "frontier"] = "hce"
    llm: Endpoint = field(default_factory=Endpoint, metadata=only("kind", "frontier"))


@dataclass(frozen=True)
class Params:
    """How seeds are made and which are kept.

    Attributes:
        teacher: who writes.
        positions: positions explained.
        human_moves: moves drawn from the human-move net for each.
        temperature: of that draw.
        style: how much the teacher says.
        judge: the teacher's own searches.
        filter: the searches that check what it says; a bigger budget than `judge`.
        checked_plies: plies of the line that must hold no mistake.
    """

    teacher: TeacherParams
    positions: int
    human_moves: int = 3
    temperature: float = 1.0
    style: Style = field(default_factory=Style)
    judge: JudgeParams = field(default_factory=JudgeParams)
    filter: JudgeParams = field(default_factory=lambda: JudgeParams(10_000, 0))
    checked_plies: int = 3


def shards(job: Job[Params]) -> Sequence[Shard]:
    return spans(job.params.positions, POSITIONS_PER_SHARD)


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Explain a run of positions and check each explanation."""
    rows = _chosen(job, shard.spec["start"], shard.spec["stop"])
    positions = [position_of(row) for row in rows]
    if job.params.teacher.kind == "frontier":
        judged = _by_frontier(job, rows, positions, out)
    else:
        judged = _by_hce(job, shard, rows, positions)
    write_rows(out / ROWS, rows_table(judged, SEEDS))


def _by_hce(
    job: Job[Params],
    shard: Shard,
    rows: Sequence[Mapping[str, Any]],
    positions: Sequence[Position],
) -> list[dict[str, Any]]:
    """The rows of the embedded teacher, who is told what the engine holds of each position."""
    moves = _human_moves(job, rows, positions)
    with job.searches() as cache, job.analyser(cache) as analyser:
        inputs = _inputs(job, analyser, positions, moves)
        inputs = with_terms(job, cache, inputs, job.params.style)
        told = {
            i: write(given, job.seed, shard.spec["start"] + i, job.params.style)
            for i, given in inputs.items()
        }
        reasons = _reasons(told, _checked(job.params, analyser, positions, told))
    facts = {i: given.facts for i, given in inputs.items()}
    return [
        _row(row, facts.get(i), told.get(i), reasons.get(i, "engine_failed"))
        for i, row in enumerate(rows)
    ]


def _by_frontier(
    job: Job[Params], rows: Sequence[Mapping[str, Any]], positions: Sequence[Position], out: Path
) -> list[dict[str, Any]]:
    """The rows of a language model, who is told the position alone; the facts beside what it
    wrote are those of the searches that checked it."""
    params = job.params
    answers = frontier.explain(job, params.teacher.llm, params.style, rows, positions, out)
    told = {i: a.explanation for i, a in enumerate(answers) if a.explanation is not None}
    with job.searches() as cache, job.analyser(cache) as analyser:
        checked = _checked(params, analyser, positions, told)
    reasons = _reasons(told, checked)
    facts: dict[int, dict[tuple[str, ...], Node]] = {i: {} for i in told}
    for (i, ply), _, verdict in checked:
        if isinstance(verdict, RootVerdict):
            facts[i][told[i].line[:ply]] = Node.from_verdict(verdict)
    return [
        _row(row, EngineFacts(facts[i]), told[i], reasons[i])
        if i in told
        else _row(row, None, None, answers[i].reason)
        for i, row in enumerate(rows)
    ]


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("seeds", table.filter(pc.greater(table["sentences"], 0)))
    write_rows(out / ROWS, table)
    reasons = Counter(table["dropped"].to_pylist())
    kept = reasons.pop("", 0)
    counts = {"explained": table.num_rows, "kept": kept}
    counts["fewer_than_wanted"] = job.params.positions - table.num_rows
    counts["sentences"] = pc.sum(table["sentences"]).as_py() or 0
    licences = {**job.inputs["positions"].record.licences, "engine": "GPL-3.0"}
    if job.params.teacher.kind == "hce":
        return Draft(counts=counts, drops=reasons, licences=licences)
    llm = job.params.teacher.llm
    counts.update(asking.counted(folders))
    teacher = {"kind": "frontier", **asking.identity(llm, prompts_digest(), folders)}
    licences["teacher"] = f"answers of {llm.model}: see the terms of {llm.base_url}"
    return Draft(counts, reasons, identities={"teacher": teacher}, licences=licences)


def _chosen(job: Job[Params], start: int, stop: int) -> list[dict[str, Any]]:
    """A run of the training positions in order of their ids, clear of the evaluation sets."""
    table = job.table("positions")
    training = Guard.of(job.inputs["evalset"]).clear(
        table.filter(pc.equal(table["split"], "train"))
    )
    wanted = training.sort_by("pid").slice(0, job.params.positions).slice(start, stop - start)
    rows: list[dict[str, Any]] = wanted.to_pylist()
    return rows


def _human_moves(
    job: Job[Params], rows: Sequence[Mapping[str, Any]], positions: Sequence[Position]
) -> list[tuple[str, ...]]:
    """Moves people would try, drawn from the human-move net."""
    expert = load_expert(job.inputs["encoder"], (0,), job.machine, role="human")
    drawn = []
    for row, policy in zip(rows, expert.policy(positions), strict=True):
        logs = {move: math.log(max(p, 1e-12)) for move, p in policy.items()}
        seed = root_seed(job.seed, row["pid"])
        drawn.append(draw(logs, job.params.human_moves, job.params.temperature, seed))
    return drawn


def _inputs(
    job: Job[Params],
    analyser: Analyser,
    positions: Sequence[Position],
    human: Sequence[tuple[str, ...]],
) -> dict[int, TeacherInput]:
    """What the engine says of each root and of each human move's refutation, by index."""
    judge = job.params.judge.build(analyser)
    fens = [position.fen for position in positions]
    first = judge.judge(list(zip(fens, human, strict=True)))
    roots = {i: v for i, v in enumerate(first) if isinstance(v, RootVerdict)}
    items = [(fens[i], (*human[i], v.best_move)) for i, v in roots.items()]
    verdicts = dict(zip(roots, judge.judge(items), strict=True))
    children = [(i, m, positions[i].child(m)) for i in roots for m in human[i]]
    searched = analyser.analyse([child.fen for _, _, child in children], judge.limit)
    nodes: dict[int, dict[tuple[str, ...], Node]] = {
        i: {(): Node.from_verdict(v)} for i, v in verdicts.items() if isinstance(v, RootVerdict)
    }
    for (i, move, _), analysis in zip(children, searched, strict=True):
        if i in nodes and isinstance(analysis, Analysis) and analysis.best.moves:
            nodes[i][(move,)] = _node_of(analysis)
    return {
        i: TeacherInput(positions[i], EngineFacts(known), human[i]) for i, known in nodes.items()
    }


def _node_of(analysis: Analysis) -> Node:
    best = analysis.best
    value = best.score.expected
    return Node(value, best.moves[0], best.moves, {best.moves[0]: value})


Checked = tuple[tuple[int, int], str, RootVerdict | EngineFailure]


def _checked(
    params: Params,
    analyser: Analyser,
    positions: Sequence[Position],
    told: Mapping[int, Explanation],
) -> list[Checked]:
    """The engine's verdict on the first moves of each line: ((row, ply), move, verdict)."""
    asked = [
        ((i, ply), position_after(positions[i], said.line[:ply]).fen, said.line[ply])
        for i, said in told.items()
        for ply in range(min(params.checked_plies, len(said.line)))
    ]
    judge = params.filter.build(analyser)
    verdicts = judge.judge([(fen, (move,)) for _, fen, move in asked])
    return [(at, move, found) for (at, _, move), found in zip(asked, verdicts, strict=True)]


def _reasons(told: Iterable[int], checked: Sequence[Checked]) -> dict[int, str]:
    """Why each explanation is dropped: a mistake in the first plies of its line, or ""."""
    reasons = dict.fromkeys(told, "")
    for (i, ply), move, verdict in checked:
        if not isinstance(verdict, RootVerdict):
            reasons[i] = reasons[i] or f"engine_{verdict.reason}"
        elif verdict.is_mistake(move):
            reasons[i] = reasons[i] or ("best_is_mistake" if ply == 0 else "line_has_mistake")
    return reasons


def _row(
    row: Mapping[str, Any], facts: EngineFacts | None, said: Explanation | None, reason: str
) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("pid", "game_id", "ply", "start", "moves", "fen")},
        "text": render(said) if said else "",
        "explanation": orjson.dumps(said.to_json()).decode() if said else None,
        "facts": orjson.dumps(facts_to_json(facts)).decode() if facts is not None else None,
        "sentences": len(said.prose) if said else 0,
        "dropped": reason,
    }


SPEC = StageSpec(
    name="seeds",
    params=Params,
    section="seeds",
    also=("teacher",),
    inputs={
        "positions": "data/positions",
        "evalset": "data/evalset",
        "encoder": "models/encoder",
    },
    output="data/seeds",
    shards=shards,
    work=work,
    assemble=assemble,
    side_by_side=lambda params: params.teacher.kind == "hce",
    uses=("engine", "classical"),
)
