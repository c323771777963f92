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
from queen.games.chess.position import Position
from queen.language.questions import bank
from queen.language.questions.bank import Question, QuestionType
from queen.lineage.artifact import Draft, read_json, write_json
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.declared import declare
from stages.decontaminate import Guard
from stages.models import load_expert
from stages.positions import position_of

POSITIONS_PER_SHARD = 500
DRAWS = 4  # for each question wanted, before a position is left with fewer
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
        expert_move: weight of the further type of dynamic-current "which move does the expert
            prefer" (METHOD, Curriculum: ours, off by default); 0 asks it nowhere. It is asked at
            most once about a position, and held out too; models that learn it are declared so.
    """

    positions: dict[str, int]
    per_position: int = 3
    heldout: int = 60
    weights: dict[str, float] = field(default_factory=dict)
    expert_move: float = 0.0


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
    types = _types(job, piece.stage, rows)
    asked = [q for row in rows for q in _ask_about(job, guard, piece, types, row, drops)]
    write_rows(out / ROWS, rows_table(asked, QUESTIONS))
    write_json(out / DROPS, dict(sorted(drops.items())))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("questions", table)
    write_rows(out / ROWS, table)
    counts = Counter(zip(table["split"].to_pylist(), table["stage"].to_pylist(), strict=True))
    drops = sum((Counter(read_json(folder / DROPS)) for folder in folders), _left_out(job))
    expert = job.inputs["encoder"].record if job.params.expert_move else None
    return Draft(
        counts={f"{split}.{stage}": n for (split, stage), n in sorted(counts.items())},
        drops=drops,
        figures=_declared(table, job.params.expert_move),
        identities={"expert": expert.identities["expert"]} if expert else {},
        licences={**job.inputs["positions"].record.licences, **(expert.licences if expert else {})},
    )


def _declared(table: pa.Table, weight: float) -> dict[str, float]:
    """That the expert's move is asked, with what weight, and how often it was."""
    if not weight:
        return {}
    asked = table.filter(pc.equal(table["type"], bank.EXPERT_MOVE))["split"].to_pylist()
    figures = {f"asked.{bank.EXPERT_MOVE}.{s}": float(asked.count(s)) for s in ("train", HELDOUT)}
    return {**declare(bank.EXPERT_MOVE, weight), **figures}


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
    _check_weights(params)
    missing = [stage for stage in known if stage not in params.positions]
    if missing:
        raise QueenError(
            f"no number of positions for {', '.join(missing)}",
            where="questions.positions",
            remedy=f"name one, 0 for none: `queen configure questions.positions.{missing[0]}=0`",
        )
    wanted = [("train", stage, params.positions[stage]) for stage in known]
    return [*wanted, *((HELDOUT, stage, params.heldout) for stage in known)]


def _check_weights(params: Params) -> None:
    """Raises QueenError for the weight of a type that is none, or one below 0."""
    types = [kind.name for kind in bank.BANK]
    for name in params.weights:
        if name == bank.EXPERT_MOVE:
            raise QueenError(
                f"the type {name!r} is asked by a param of its own",
                where="questions.weights",
                remedy=f"`queen configure questions.{name}={params.weights[name]}`",
            )
        if name not in types:
            near = difflib.get_close_matches(name, types, 1)
            raise QueenError(
                f"no question type {name!r}",
                where="questions.weights",
                remedy=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(types)}",
            )
    if params.expert_move < 0:
        raise QueenError(
            f"no type can be asked {params.expert_move} times as often as another",
            where=f"questions.{bank.EXPERT_MOVE}",
            remedy="give a weight above 0, or 0 to ask it nowhere",
        )


def _chosen(job: Job[Params], guard: Guard, split: str, stage: str) -> Sequence[Mapping[str, Any]]:
    """The positions that may be asked about, in an order that differs from stage to stage."""
    artifact = job.inputs["positions"]
    return _ordered(artifact.file(ROWS), artifact.content, guard, job.seed, split, stage)


@functools.lru_cache(maxsize=1)
def _ordered(
    file: Path, content: str, guard: Guard, seed: int, split: str, stage: str
) -> tuple[dict[str, Any], ...]:
    """Kept for the next shard of a process (`content` names what is read)."""
    name = "train" if split == "train" else "dev"
    rows = list(_read_rows(file, content, name))
    random.Random(f"{seed} {stage} {split}").shuffle(rows)
    return tuple(row for row in rows if split != "train" or guard.reason(row) is None)


@functools.lru_cache(maxsize=2)
def _read_rows(file: Path, content: str, split: str) -> tuple[dict[str, Any], ...]:
    """The positions of a split's games."""
    table = pq.read_table(file)
    return tuple(table.filter(pc.equal(table["split"], split)).to_pylist())


def _left_out(job: Job[Params]) -> Counter[str]:
    """Training positions of the evaluation sets, and how many fewer there were than wanted."""
    guard = Guard.of(job.inputs["evalset"])
    artifact = job.inputs["positions"]
    train, dev = (_read_rows(artifact.file(ROWS), artifact.content, x) for x in ("train", "dev"))
    reasons = Counter(map(guard.reason, train))
    here = {"train": reasons.pop(None, 0), HELDOUT: len(dev)}
    drops = Counter({str(reason): n for reason, n in reasons.items()})
    for split, stage, count in _wanted(job.params):
        drops[f"fewer_than_wanted.{split}.{stage}"] = max(0, count - here[split])
    return +drops


def _types(
    job: Job[Params], stage: str, rows: Sequence[Mapping[str, Any]]
) -> dict[str, QuestionType]:
    """What a curriculum stage asks about, by name; last the expert's move, if that is asked."""
    types = {kind.name: kind for kind in bank.BANK if kind.stage == stage}
    if job.params.expert_move and stage == bank.DYNAMIC_CURRENT:
        favourites = _favourites(job, [position_of(row) for row in rows])
        types[bank.EXPERT_MOVE] = bank.expert_move_type(favourites.__getitem__)
    return types


def _favourites(job: Job[Params], positions: Sequence[Position]) -> dict[Position, str]:
    """The legal move of which the frozen expert is surest, where there is one."""
    policies = load_expert(job.inputs["encoder"], (0,), job.machine).policy(positions)
    return {
        position: max(sorted(policy), key=policy.__getitem__)
        for position, policy in zip(positions, policies, strict=True)
        if policy
    }


def _ask_about(
    job: Job[Params],
    guard: Guard,
    piece: _Piece,
    types: Mapping[str, QuestionType],
    row: Mapping[str, Any],
    drops: Counter[str],
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
    train = piece.split == "train"
    left = job.params.per_position if train else len(types)
    asked: set[str] = set()
    for name in _drawn(job.params, list(types), rng) if train else types:
        question = types[name].ask(position, line, rng)
        if question is None:
            drops["no_answer"] += 1
        elif question.prompt in asked:
            drops["asked_already"] += 1  # its answer would be copied: another type has its place
            continue
        else:
            asked.add(question.prompt)
            yield _question_row(question, piece, row)
        left -= 1
        if not left:
            return


def _drawn(params: Params, names: Sequence[str], rng: random.Random) -> list[str]:
    """Types to ask about one training position, more than are wanted: some repeat a question."""
    weights = {bank.EXPERT_MOVE: params.expert_move, **params.weights}
    odds = [weights.get(name, 1.0) for name in names]
    return rng.choices(names, odds, k=DRAWS * params.per_position)


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
    wanted = (pc.field("split") == split) & pc.field("stage").isin(pa.array(stages, pa.string()))
    if types:
        wanted &= pc.field("type").isin(pa.array(types, pa.string()))
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in pq.read_table(file, filters=wanted).to_pylist():
        grouped.setdefault((row["stage"], row["pid"]), []).append(row)
    return list(grouped.values())


SPEC = StageSpec(
    name="questions",
    params=Params,
    section="questions",
    inputs={
        "positions": "data/positions",
        "evalset": "data/evalset",
        "encoder": "models/encoder",
    },
    output="data/questions",
    shards=shards,
    work=work,
    assemble=assemble,
    side_by_side=lambda params: True,
)
