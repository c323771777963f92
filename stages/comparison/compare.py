"""Models beside one another on a split: figures, baselines, paired differences with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.evaluation.intervals import Interval, cluster_bootstrap, paired_difference
from queen.lineage.artifact import digest_of, write_json
from queen.lineage.state import State
from stages.base import ROWS, Job
from stages.comparison.result import FOLDER, TABLES
from stages.comparison.scoring import Scores, score, scoring_job
from stages.evaluate import OUTCOMES, Params, outcomes

BASELINES = {"a uniform legal move": "uniform_ok", "the encoder's policy": "encoder_ok"}
KINDS = ("all", "general", "tactical")


@dataclass(frozen=True)
class Asked:
    """What is to be compared.

    Attributes:
        models: names, in the order of the table.
        pairs: (first, second): the difference is first minus second.
        split: `dev` or `test`. games: for each model, 0 for none.
    """

    models: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    split: str
    games: int = 0


def asked_for(
    models: Sequence[str], pairs: Sequence[tuple[str, str]], split: str, games: int
) -> Asked:
    """What is compared: consecutive models are paired, and so are the pairs.

    Raises QueenError for a model paired with itself, or fewer than one model.
    """
    for first, second in pairs:
        if first == second:
            raise QueenError(
                f"{first!r} with itself is no pair", where="pairs", remedy="name two models"
            )
    every = tuple(dict.fromkeys([*models, *(key for pair in pairs for key in pair)]))
    if not every:
        raise QueenError("no model named", where="models", remedy="say queen compare r1 r2")
    given = tuple(dict.fromkeys(models))
    steps = [(later, earlier) for earlier, later in pairwise(given)]
    return Asked(every, tuple(dict.fromkeys([*steps, *pairs])), split, games)


def compare(project: Path, state: State, asked: Asked) -> dict[str, Any]:
    """Score the models, compare them, and keep the table in the state folder.

    Returns:
        Plain values for JSON: `models` with figures, `baselines`, `pairs`.

    Raises QueenError where a model is not there; all names are looked at before any work.
    """
    jobs = [scoring_job(project, key, asked.split, asked.games) for key in asked.models]
    scored = {str(job.key): score(job) for job in jobs}
    job = jobs[0]
    table = {
        "project": str(project),
        "split": asked.split,
        "evalset": job.inputs["evalset"].content,
        "positions": next(iter(scored.values())).rows.num_rows,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "models": [_plain(one) for one in scored.values()],
        "baselines": list(_baselines(job)),
        "pairs": [
            _pair(scored[first], scored[second], asked.split, job.params.bootstrap)
            for first, second in asked.pairs
        ],
    }
    name = digest_of([str(project), asked.models, asked.pairs, asked.games])[:12]
    folder = state.root / FOLDER / TABLES
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{asked.split}-{name}.json", table)
    return table


def _plain(scores: Scores) -> dict[str, Any]:
    return {
        "key": scores.key,
        "content": scores.content,
        "figures": dict(scores.figures),
        "rating": asdict(scores.rating) if scores.rating else None,
        "games": scores.games,
        "times_scored": scores.times,
        "source": scores.source,
    }


def _pair(ours: Scores, theirs: Scores, split: str, samples: int) -> dict[str, Any]:
    """Differences in FNMR by each way of decoding, on the positions judged for both."""
    found: dict[str, Any] = {"first": ours.key, "second": theirs.key}
    for way in OUTCOMES:
        mine, other = (outcomes(one.rows, way, split) for one in (ours, theirs))
        shared = sorted(mine.keys() & other.keys())
        if shared:
            difference = paired_difference(
                [mine[pid][0] for pid in shared],
                [other[pid][0] for pid in shared],
                [mine[pid][1] for pid in shared],
                seed=0,
                samples=samples,
            )
            found[way] = {**_bounded(difference), "positions": len(shared)}
    return found


def _bounded(interval: Interval) -> dict[str, Any]:
    """An interval as plain values; bounds that games do not give are null."""
    many = interval.clusters > 1
    return {
        "value": round(interval.estimate, 6),
        "low": round(interval.low, 6) if many else None,
        "high": round(interval.high, 6) if many else None,
        "games": interval.clusters,
    }


def _baselines(job: Job[Params]) -> Iterator[dict[str, Any]]:
    """FNMR of two players without thought, from the evaluation set."""
    rows = pq.read_table(job.inputs["evalset"].file(ROWS)).to_pylist()
    here = [row for row in rows if row["split"] in job.params.splits]
    for name, column in BASELINES.items():
        told: dict[str, Any] = {"name": name}
        for kind in KINDS:
            part = [row for row in here if kind in (row["kind"], "all")]
            if part:
                values = [float(row[column]) for row in part]
                games = [row["game_id"] for row in part]
                samples = job.params.bootstrap
                told[kind] = _bounded(cluster_bootstrap(values, games, seed=0, samples=samples))
        yield told
