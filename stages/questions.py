"""Stage `questions`: the curriculum's questions and answers about real positions."""

from __future__ import annotations

import difflib
import functools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.language.questions import bank
from queen.language.questions.bank import Question
from queen.lineage.artifact import Draft, read_json, write_json
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.decontaminate import Guard
from stages.positions import position_of

POSITIONS_PER_SHARD = 500
HELDOUT = "heldout"
DROPS = "drops.json"
QUESTIONS = pa.schema(
    [
        ("split", pa.string()),
        ("stage", pa.string()),
        ("type", pa.string()),
        ("subset", pa.string()),
        ("pid", pa.string()),
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("line", pa.string()),
        ("prompt", pa.string()),
        ("answer", pa.string()),
    ]
)


@dataclass(frozen=True)
class Params:
    """How many questions.

    Attributes:
        positions: training positions for each curriculum stage, all of them named.
        per_position: questions about one position, by stage; they form one conversation.
        heldout: positions of the development games for each stage, one question of each type.
        weights: how often a type is asked in training, 1 if it is not named.
    """

    positions: dict[str, int]
    per_position: int = 3
    heldout: int = 60
    weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Piece:
    """A run of positions of one split for one curriculum stage."""

    split: str
    stage: str
    start: int
    stop: int


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [
        Shard(f"{split}-{stage}-{piece.id}", {"split": split, "curriculum": stage, **piece.spec})
        for split, stage, count in _wanted(job.params)
        for piece in spans(count, POSITIONS_PER_SHARD)
    ]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Ask about a run of positions; each position's questions hang on the seed and its id."""
    piece = _Piece(*(shard.spec[name] for name in ("split", "curriculum", "start", "stop")))
    guard = Guard.of(job.inputs["evalset"])
    drops: Counter[str] = Counter()
    rows = _chosen(job, guard, piece.split, piece.stage)[piece.start : piece.stop]
    asked = [question for row in rows for question in _ask_about(job, guard, piece, row, drops)]
    write_rows(out / ROWS, rows_table(asked, QUESTIONS))
    write_json(out / DROPS, dict(sorted(drops.items())))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("questions", table)
    write_rows(out / ROWS, table)
    counts = Counter(zip(table["split"].to_pylist(), table["stage"].to_pylist(), strict=True))
    drops = sum((Counter(read_json(folder / DROPS)) for folder in folders), _left_out(job))
    return Draft(
        counts={f"{split}.{stage}": n for (split, stage), n in sorted(counts.items())},
        drops=drops,
        licences=job.inputs["positions"].record.licences,
    )


def _wanted(params: Params) -> list[tuple[str, str, int]]:
    """Split, curriculum stage and number of positions.

    Raises QueenError where the params name a stage that is none, or leave one out.
    """
    known = bank.stages()
    for name in params.positions:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise QueenError(
                f"no curriculum stage {name!r}",
                where="questions.positions",
                remedy=f"{hint}known: {', '.join(known)}",
            )
    types = [kind.name for kind in bank.BANK]
    for name in params.weights:
        if name not in types:
            near = difflib.get_close_matches(name, types, 1)
            raise QueenError(
                f"no question type {name!r}",
                where="questions.weights",
                remedy=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(types)}",
            )
    missing = [stage for stage in known if stage not in params.positions]
    if missing:
        raise QueenError(
            f"no number of positions for {', '.join(missing)}",
            where="questions.positions",
            remedy=f"name one, 0 for none: `queen configure questions.positions.{missing[0]}=0`",
        )
    wanted = [("train", stage, params.positions[stage]) for stage in known]
    return [*wanted, *((HELDOUT, stage, params.heldout) for stage in known)]


def _rows(job: Job[Params], split: str) -> list[dict[str, Any]]:
    """The positions of the games that a split asks about."""
    artifact = job.inputs["positions"]
    name = "train" if split == "train" else "dev"
    return list(_read_rows(artifact.file(ROWS), artifact.content, name))


@functools.lru_cache(maxsize=2)
def _read_rows(file: Path, content: str, split: str) -> tuple[dict[str, Any], ...]:
    """A split's rows, read once for all shards of a process (`content` names what is read)."""
    table = pq.read_table(file)
    return tuple(table.filter(pc.equal(table["split"], split)).to_pylist())


def _chosen(job: Job[Params], guard: Guard, split: str, stage: str) -> list[dict[str, Any]]:
    """The positions that may be asked about, in an order that differs from stage to stage."""
    rows = _rows(job, split)
    random.Random(f"{job.seed} {stage} {split}").shuffle(rows)
    return [row for row in rows if split != "train" or guard.reason(row) is None]


def _left_out(job: Job[Params]) -> Counter[str]:
    """Training positions of the evaluation sets, and how many fewer there were than wanted."""
    guard = Guard.of(job.inputs["evalset"])
    reasons = Counter(map(guard.reason, _rows(job, "train")))
    here = {"train": reasons.pop(None, 0), HELDOUT: len(_rows(job, HELDOUT))}
    drops = Counter({str(reason): n for reason, n in reasons.items()})
    for split, stage, count in _wanted(job.params):
        drops[f"fewer_than_wanted.{split}.{stage}"] = max(0, count - here[split])
    return +drops


def _ask_about(
    job: Job[Params], guard: Guard, piece: _Piece, row: Mapping[str, Any], drops: Counter[str]
) -> Iterator[dict[str, Any]]:
    """The questions about one position; those without an answer and lines cut are counted.

    Training questions look ahead no further than to before a position of an evaluation set: it
    would be the one asked about.
    """
    position = position_of(row)
    line = tuple(row["ahead"].split())
    if piece.split == "train" and piece.stage in (bank.STATIC_FUTURE, bank.DYNAMIC_FUTURE):
        clear = guard.clear_part(position, line)
        drops["line_cut"] += len(clear) < len(line)
        line = clear
    rng = random.Random(f"{job.seed} {piece.stage} {row['pid']}")
    names = [kind.name for kind in bank.BANK if kind.stage == piece.stage]
    if piece.split == "train":
        weights = [job.params.weights.get(name, 1.0) for name in names]
        names = rng.choices(names, weights, k=job.params.per_position)
    for name in names:
        question = bank.ask(position, line, name, rng)
        if question is None:
            drops["no_answer"] += 1
        else:
            yield _question_row(question, piece, row)


def _question_row(question: Question, piece: _Piece, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in ("pid", "game_id", "ply", "start", "moves")},
        "split": piece.split,
        "stage": question.stage,
        "type": question.type,
        "subset": question.subset,
        "line": " ".join(question.line),
        "prompt": question.prompt,
        "answer": question.answer,
    }


def conversations(
    file: Path, split: str, stages: Sequence[str], types: Sequence[str] = ()
) -> list[list[dict[str, Any]]]:
    """The questions about each position, in order, for some curriculum stages (and types)."""
    table = pq.read_table(file)
    table = table.filter(pc.equal(table["split"], split))
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["stage"] in stages and (not types or row["type"] in types):
            grouped.setdefault((row["stage"], row["pid"]), []).append(row)
    return list(grouped.values())


SPEC = StageSpec(
    name="questions",
    params=Params,
    section="questions",
    inputs={"positions": "data/positions", "evalset": "data/evalset"},
    output="data/questions",
    shards=shards,
    work=work,
    assemble=assemble,
)
