"""One stage's shards, worked by several processes of this machine.

Each process works whole shards with its share of the machine: while one waits for its engine,
another writes. A shard is a function of its key, so nothing depends on who worked it; the run
that wants the artifact finds finished shards in its store.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from queen.children import follow_parent
from queen.errors import QueenError
from queen.lineage.store import ShardStore
from stages.base import Job, Machine, Shard, StageSpec
from stages.preparing import Plan
from stages.registry import find_stage
from stages.sharing import work_one

LEAST = 3  # open shards for each process: with fewer, one of them ends with nothing to do
_job: Job[Any] | None = None  # a process's own, for all its shards


def work_side_by_side(spec: StageSpec, job: Job[Any], plan: Plan) -> None:
    """Put a plan's open shards into this machine's store, if several processes are any use.

    Raises:
        QueenError: what a shard raised, or that a process died; those under way are finished first.
    """
    if job.machine.shards < 2 or not spec.side_by_side(job.params):
        return
    store = ShardStore(job.state.shards)
    pairs = zip(plan.shards, plan.keys, strict=True)
    waiting = [(shard, key) for shard, key in pairs if store.get(spec.name, key) is None]
    count = min(job.machine.shards, len(waiting) // LEAST)
    if count < 2:
        return
    ours = replace(
        job, machine=_part(job.machine, count), sink=_mute, progress=_mute, api=_Nobody()
    )
    pool = ProcessPoolExecutor(count, get_context("spawn"), _begin, (ours,))
    try:
        _follow(job, pool, waiting, len(plan.shards))
    except BrokenProcessPool as error:
        raise QueenError(
            "a process that worked a shard died",
            where=job.name,
            remedy="see whether memory runs out (`queen configure machine.shards=1` takes least), "
            "then run again: finished shards are kept",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _follow(
    job: Job[Any], pool: ProcessPoolExecutor, waiting: Sequence[tuple[Shard, str]], total: int
) -> None:
    """Hand the shards out, and show how far they are as they end."""
    done = total - len(waiting)
    job.progress(done, total)
    futures = {pool.submit(_work, shard, key): shard for shard, key in waiting}
    for number, future in enumerate(as_completed(futures), done + 1):
        future.result()
        job.progress(number, total, futures[future].id)


def _part(machine: Machine, count: int) -> Machine:
    """What each of so many processes may use."""
    return replace(
        machine,
        workers=max(1, machine.workers // count),
        threads=max(1, machine.threads // count),
        cache_mb=machine.cache_mb // count,
        generators=1,
    )


def _begin(job: Job[Any]) -> None:
    global _job
    follow_parent()
    _job = job


def _work(shard: Shard, key: str) -> None:
    assert _job is not None
    spec, _ = find_stage(_job.name)
    work_one(spec, _job, ShardStore(_job.state.shards), shard, key)


def _mute(*_: Any, **__: Any) -> None:
    """No figures and no progress within a shard: several at once would talk over each other."""


@dataclass(frozen=True)
class _Nobody:
    """In the place of language models behind an API: one process counts what is spent."""

    def ask(self, *_: object) -> list[Any]:
        raise QueenError(
            "a stage that asks language models works its shards one after another",
            where="machine.shards",
            remedy="`queen configure machine.shards=1`",
        )

    def figures(self) -> dict[str, float]:
        return {}
