"""Stage `questions`: the curriculum's questions and answers about real positions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queen.language.questions import bank
from queen.language.questions.bank import Question
from queen.lineage.artifact import Draft
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.decontaminate import Guard
from stages.positions import position_of

POSITIONS_PER_SHARD = 500
HELDOUT = "heldout"
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
        positions: training positions for each curriculum stage.
        per_position: questions about one position, by stage; they form one conversation.
        heldout: positions of the development games for each stage, one question of each type.
        expert_move: ask "which move does the expert prefer" too (ours, off by default).
    """

    positions: dict[str, int]
    per_position: int = 3
    heldout: int = 60
    expert_move: bool = False


@dataclass(frozen=True)
class _Piece:
    """A run of positions of one split for one curriculum stage."""

    split: str
    stage: str
    start: int
    stop: int


def shards(job: Job[Params]) -> Sequence[Shard]:
    wanted = [("train", stage, job.params.positions[stage]) for stage in bank.stages()]
    wanted += [(HELDOUT, stage, job.params.heldout) for stage in bank.stages()]
    return [
        Shard(f"{split}-{stage}-{piece.id}", {"split": split, "curriculum": stage, **piece.spec})
        for split, stage, count in wanted
        for piece in spans(count, POSITIONS_PER_SHARD)
    ]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Ask about a run of positions; each position's questions hang on the seed and its id."""
    piece = _Piece(*(shard.spec[name] for name in ("split", "curriculum", "start", "stop")))
    rows, drops = _chosen(job, piece)
    asked = [question for row in rows for question in _ask_about(job, piece, row)]
    table = rows_table(asked, QUESTIONS)
    table = table.replace_schema_metadata({f"drop.{k}": str(v) for k, v in drops.items()})
    write_rows(out / ROWS, table)


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("questions", table)
    write_rows(out / ROWS, table.replace_schema_metadata(None))
    counts = Counter(zip(table["split"].to_pylist(), table["stage"].to_pylist(), strict=True))
    return Draft(
        counts={f"{split}.{stage}": n for (split, stage), n in sorted(counts.items())},
        licences=job.inputs["positions"].record.licences,
    )


def _chosen(job: Job[Params], piece: _Piece) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The piece's positions: in order of a hash that differs from stage to stage."""
    table = job.table("positions")
    split = "train" if piece.split == "train" else "dev"
    rows = table.filter(pc.equal(table["split"], split)).to_pylist()
    rng = random.Random(f"{job.seed} {piece.stage} {piece.split}")
    rng.shuffle(rows)
    guard = Guard.of(job.inputs["evalset"])
    reasons = [guard.reason(row) if split == "train" else None for row in rows]
    clean = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
    return clean[piece.start : piece.stop], Counter(r for r in reasons if r is not None)


def _ask_about(job: Job[Params], piece: _Piece, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    position = position_of(row)
    line = tuple(row["ahead"].split())
    rng = random.Random(f"{job.seed} {piece.stage} {row['pid']}")
    names = [kind.name for kind in bank.BANK if kind.stage == piece.stage]
    if piece.split == "train":
        names = rng.choices(names, k=job.params.per_position)
    for name in names:
        question = bank.ask(position, line, name, rng)
        if question is not None:
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


def conversations(file: Path, split: str, stages: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The questions about each position, in order, for some curriculum stages."""
    table = pq.read_table(file)
    table = table.filter(pc.equal(table["split"], split))
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["stage"] in stages:
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
