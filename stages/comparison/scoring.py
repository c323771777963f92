"""A model's answers and games on a split, kept in the state folder by what made them.

The work is that of the stage `judge`, part by part, so that figures agree with a judged model's;
but it stands outside the pipeline: no artifact is written, no verdict follows. Each finished part
is kept, and what a judged model's own evaluation holds by the same means is taken from there. How
often a model has been scored on a split is written down: a test set is for few looks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queen.engines.match import read_record
from queen.errors import QueenError
from queen.evaluation.elo import Rating
from queen.lineage.artifact import RECORD, Artifact, digest_of, open_artifact
from queen.lineage.lock import exclusive
from queen.lineage.store import ShardStore, shard_key
from stages import evaluate
from stages.base import ROWS, Job, Shard, concat_shards
from stages.comparison.result import FOLDER
from stages.console import progress_printer
from stages.evaluate import GAMES, JUDGE, Params
from stages.matches import ModelPlayer, rate
from stages.play.explaining import MODELS, NOT_MODELS
from stages.preparing import prepare
from stages.settings import relevant
from stages.shares import shares
from stages.versions import version_of

LOG, LOCK = "scored.jsonl", "compare.lock"
HOW = ("judge", "max_tokens", "batch_size")
MATCH = ("opening_plies", "max_plies", "adjudicate_nodes", "opponents")
SCORE = replace(JUDGE, inputs={r: path for r, path in JUDGE.inputs.items() if r != "before"})


@dataclass(frozen=True)
class Scores:
    """What a model does on a split.

    Attributes:
        key, content: the model's name in the project, and the hash of its folder.
        rows: of `stages.answers`. figures: of `stages.shares`, and Elo where games were played.
        rating, games: where games were played.
        times: how often this very model has been scored on this split of this evaluation set.
        source: `compare`, or the evaluation that the answers were taken from.
    """

    key: str
    content: str
    rows: pa.Table
    figures: Mapping[str, float]
    rating: Rating | None
    games: int
    times: int
    source: str


def scoring_job(project: Path, key: str, split: str, games: int) -> Job[Params]:
    """The job that scores a model: the params of `evaluation`, both ways of decoding.

    Raises QueenError where there is no such model, evaluation set or section.
    """
    if not (project / MODELS / key / RECORD).is_file():
        here = sorted(p.parent.name for p in (project / MODELS).glob(f"*/{RECORD}"))
        known = [name for name in here if name not in NOT_MODELS]
        raise QueenError(
            f"no model {key!r}",
            where=str(project / MODELS),
            remedy=f"models here: {', '.join(known) or 'none; `queen run` makes the first'}",
        )
    job = prepare(SCORE, key, project)
    params = replace(job.params, splits=(split,), games=games, guided=True)
    return replace(job, params=params, progress=progress_printer(f"{key} on {split}"))


def score(job: Job[Params]) -> Scores:
    """Score a model on a split, or take what is known of it.

    Raises QueenError where the split holds no position.
    """
    folder = job.state.root / FOLDER
    with exclusive(folder / LOCK):
        rows, source = _answers(job, folder)
        played, rating = _games(job, folder)
    figures = shares(rows.to_pylist(), job.params.splits, job.params.bootstrap)
    return Scores(
        key=str(job.key),
        content=job.inputs["model"].content,
        rows=rows,
        figures={**figures, **evaluate.elo_figures(rating)},
        rating=rating,
        games=played,
        times=sum(1 for entry in _scorings(folder) if _about(entry, job)),
        source=source,
    )


def _answers(job: Job[Params], folder: Path) -> tuple[pa.Table, str]:
    """The rows of the split, and where they are from."""
    (split,) = job.params.splits
    parts = [part for part in evaluate.shards(job) if part.spec["part"] == "positions"]
    if not parts:
        raise QueenError(
            f"the evaluation set has no position in the split {split}",
            where=job.inputs["evalset"].name,
            remedy="`queen configure evalset.general.SPLIT=N`, or name the other split",
        )
    known = _evaluated(job)
    if known is not None:
        table = pq.read_table(known.file(ROWS))
        _note(job, folder, parts, known.name, worked=False)
        return table.filter(pc.equal(table["split"], split)), known.name
    found, worked = _done(job, folder, parts, {name: _plain(job, name) for name in HOW})
    _note(job, folder, parts, "compare", worked=worked)
    return concat_shards(found), "compare"


def _games(job: Job[Params], folder: Path) -> tuple[int, Rating | None]:
    """How many games were played, and the rating they give."""
    if not job.params.games:
        return 0, None
    how = {name: _plain(job, name) for name in ("batch_size", "games", *MATCH)}
    parts = [part for part in evaluate.shards(job) if part.spec["part"] == "games"]
    ((played,), _) = _done(job, folder, parts, {**how, "seed": job.seed})
    record = read_record(played / GAMES)
    return len(record), rate(job.params.match, record, ModelPlayer.name)


def _done(
    job: Job[Params], folder: Path, parts: Sequence[Shard], how: Mapping[str, Any]
) -> tuple[list[Path], bool]:
    """The folders of finished parts; whether any had to be worked for."""
    store, found, worked = ShardStore(folder / "parts"), [], False
    for done, part in enumerate(parts):
        key = shard_key({**_made_from(job), "params": how, "shard": dict(part.spec)})
        job.progress(done, len(parts), part.id)
        kept = store.get("judge", key)
        if kept is None:
            job.shard_key, worked = key, True
            kept = store.put("judge", key, partial(evaluate.work, job, part))
        found.append(kept)
    job.progress(len(parts), len(parts))
    return found, worked


def _made_from(job: Job[Params]) -> dict[str, object]:
    """What every part of a model's score depends on."""
    return {
        "version": version_of("judge"),
        "inputs": {role: artifact.content for role, artifact in job.inputs.items()},
        "identities": dict(job.identities),
        "split": list(job.params.splits),
    }


def _plain(job: Job[Params], name: str) -> Any:
    return orjson.loads(orjson.dumps(relevant(getattr(job.params, name))))


def _evaluated(job: Job[Params]) -> Artifact | None:
    """The model's own evaluation, if it holds this split's answers by the same means."""
    try:
        found = open_artifact(job.project / "data" / "evaluate" / str(job.key))
    except QueenError:
        return None
    record, params = found.record, found.record.params
    read = {entry.role: entry.content for entry in record.inputs}
    told = orjson.loads(orjson.dumps(dict(job.identities)))
    same = (
        record.version == version_of(record.stage),
        all(read.get(role) == artifact.content for role, artifact in job.inputs.items()),
        all(record.identities.get(name) == one for name, one in told.items()),
        all(params.get(name) == _plain(job, name) for name in HOW),
        params.get("guided") or params.get("verdict_by") == "guided",
        set(job.params.splits) <= set(params.get("splits", ())),
    )
    return found if all(same) else None


def _note(
    job: Job[Params], folder: Path, parts: Sequence[Shard], source: str, *, worked: bool
) -> None:
    """Write down that a model has been scored, once for each time the work was done."""
    entry = {
        "key": job.key,
        "model": job.inputs["model"].content,
        "evalset": job.inputs["evalset"].content,
        "split": job.params.splits[0],
        "positions": sum(part.spec["stop"] - part.spec["start"] for part in parts),
        "how": digest_of({**_made_from(job), "params": {n: _plain(job, n) for n in HOW}})[:12],
        "source": source,
    }
    same = [{n: old.get(n) for n in ("model", "how")} for old in _scorings(folder)]
    if worked or {n: entry[n] for n in ("model", "how")} not in same:
        at = datetime.now(UTC).isoformat(timespec="seconds")
        _append(folder / LOG, json.dumps({**entry, "at": at}))


def _append(path: Path, line: str) -> None:
    """A line of its own, whatever a kill left of the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.is_file() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as log:
        log.write(("\n" if torn else "") + line + "\n")


def _scorings(folder: Path) -> Iterator[dict[str, Any]]:
    """Every scoring written down; a line that a kill left half written is none."""
    path = folder / LOG
    for line in path.read_text().splitlines() if path.is_file() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _about(entry: Mapping[str, Any], job: Job[Params]) -> bool:
    """Whether a scoring was of this model on this split."""
    told = (entry.get("model"), entry.get("evalset"), entry.get("split"))
    inputs = job.inputs
    return told == (inputs["model"].content, inputs["evalset"].content, job.params.splits[0])
