"""One stage's shards, worked by whoever reaches the shared store.

A shard is a function of its key, so nothing here is needed for a right result: leases only keep
two from the same shard. The run that wants the artifact works beside the others, takes over what
they finish, and ends when every shard is in its own store; no worker's death can keep it from that.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import xxhash

from queen.lineage.leases import Leases, worker_name
from queen.lineage.params import read_params
from queen.lineage.shared import SharedStore
from queen.lineage.store import ShardStore
from stages.base import Job, Shard, StageSpec
from stages.preparing import Plan, written_rounds

NOT_OFFERED = ("machine", "flow", "plan")
LOOKS = 10  # looks around within a lease's time
LONGEST_LOOK_S = 5.0


def work_one(spec: StageSpec, job: Job[Any], store: ShardStore, shard: Shard, key: str) -> Path:
    """Do one shard's work; returns its folder."""
    job.shard_key = key
    return store.put(spec.name, key, lambda folder: spec.work(job, shard, folder))


def work_with_others(spec: StageSpec, job: Job[Any], plan: Plan, shared: SharedStore) -> None:
    """Offer a plan's open shards to other machines, and end when this one has them all."""
    store = ShardStore(job.state.shards)
    missing = sum(store.get(spec.name, key) is None for key in plan.keys)
    with _offered(spec, job, plan, shared) if missing > 1 else nullcontext():
        Party(spec, job, plan, shared).work(takes=True)


class Party:
    """One machine's part in a plan.

    Args:
        spec, job, plan: the work.
        shared: where machines meet.
    """

    def __init__(self, spec: StageSpec, job: Job[Any], plan: Plan, shared: SharedStore) -> None:
        self._spec, self._job, self._shared = spec, job, shared
        self._store = ShardStore(job.state.shards)
        self._leases = Leases(shared.remote, spec.name, job.machine.lease_s)
        self._look_s = min(LONGEST_LOOK_S, job.machine.lease_s / LOOKS)
        self._open = dict(zip(plan.keys, plan.shards, strict=True))
        self._total, self._worked = len(self._open), 0
        self._looked = float("-inf")

    def work(self, *, takes: bool) -> int:
        """Work open shards until none is left anywhere; returns how many were worked here.

        Args:
            takes: also take over what others finished.
        """
        for key in list(self._open):
            if self._store.get(self._spec.name, key) is not None:
                self._shared.push(self._spec.name, key)
                self._done(key)
        order = list(self._open) if takes else _turned(list(self._open))
        while self._open:
            self._look(takes=takes)
            if not any(self._try(key) for key in order if key in self._open):
                time.sleep(self._look_s if self._open else 0.0)
        return self._worked

    def _look(self, *, takes: bool) -> None:
        """See what others finished and hold, at most every so often."""
        if time.monotonic() - self._looked < self._look_s:
            return
        stage = self._spec.name
        finished = self._shared.finished(stage)
        self._leases.look()
        for key in [key for key in self._open if key in finished]:
            if not takes or self._store.get(stage, key) or self._shared.pull(stage, key):
                self._done(key)
        self._looked = time.monotonic()

    def _try(self, key: str) -> bool:
        """Work a shard, if it is to be had; whether there may be news to look at."""
        stage, shard = self._spec.name, self._open[key]
        with self._leases.claimed(key) as ours:
            if not ours:
                return False
            if self._shared.has(stage, key):  # finished between our look and our claim
                self._looked = float("-inf")
                return True
            self._job.progress(self._total - len(self._open), self._total, shard.id)
            work_one(self._spec, self._job, self._store, shard, key)
            self._shared.push(stage, key)
        self._worked += 1
        self._done(key)
        return True

    def _done(self, key: str) -> None:
        del self._open[key]
        self._job.progress(self._total - len(self._open), self._total, "")


def _turned(keys: Sequence[str]) -> list[str]:
    """Each worker begins elsewhere, so that they seldom reach for the same shard."""
    start = xxhash.xxh3_64_intdigest(worker_name().encode()) % max(1, len(keys))
    return [*keys[start:], *keys[:start]]


@contextmanager
def _offered(spec: StageSpec, job: Job[Any], plan: Plan, shared: SharedStore) -> Iterator[None]:
    """While it lasts, workers without a target find this plan."""
    if job.machine.send_inputs:
        for artifact in job.inputs.values():
            shared.push_artifact(artifact)
    shared.offer(plan.recipe, _offer(spec, job, plan))
    try:
        yield
    finally:
        shared.withdraw(plan.recipe)


def _offer(spec: StageSpec, job: Job[Any], plan: Plan) -> dict[str, Any]:
    params = read_params(job.project)
    return {
        "stage": spec.name,
        "key": job.key,
        "recipe": plan.recipe,
        "shards": len(plan.shards),
        "params": {name: value for name, value in params.items() if name not in NOT_OFFERED},
        "rounds": dict(written_rounds(job.project)) if spec.per == "round" else {},
        "inputs": {r: {"name": a.name, "content": a.content} for r, a in job.inputs.items()},
    }
