"""A worker: shards of any stage, worked for runs on other machines that share a store.

It takes no lock, writes no artifact and knows nothing of DVC. Work comes as the offers of runs, or,
for a named stage that nobody offers, from this project's own params and inputs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.artifact import Artifact, open_artifact
from queen.lineage.params import read_params
from queen.lineage.remote import Remote
from queen.lineage.shared import SharedStore, store_url
from queen.lineage.state import State, open_state
from queen.lineage.store import ShardStore
from stages.base import Job, Machine, StageSpec
from stages.preparing import Given, Plan, machine_of, make_plan, prepare
from stages.registry import find_stage
from stages.sharing import Party

RECEIVED = "received"
POLL_S = 2.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Task:
    """A plan to take part in."""

    spec: StageSpec
    job: Job[Any]
    plan: Plan


@dataclass
class Worker:
    """One machine that works for others.

    Attributes:
        project: a checkout of the project; its own artifacts are used where they are the same.
        store: URL of the shared store.
        machine: what this machine may use.
        engine: where its engines are, in the place of what offers say; what an engine *is* stands
            in a plan's recipe, so that no other one can take part.
        say: told what happens, a line at a time.
    """

    project: Path
    store: str
    machine: Machine
    say: Say
    engine: Mapping[str, Any] = field(default_factory=dict)
    declined: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._state = open_state(self.project)
        self._shared = SharedStore(Remote(self.store), ShardStore(self._state.shards))

    def run(self, target: str | None, stay_s: float = 0.0) -> int:
        """Take part in what is offered, or in one stage; returns the shards worked.

        Args:
            target: `stage` or `stage@key`; None for whatever runs offer.
            stay_s: seconds to wait for further work after the last; with 0 it leaves when no run
                waits for anything.

        Raises:
            QueenError: a target that nobody offers and that this project cannot plan by itself.
        """
        worked, waiting = 0, time.monotonic()
        while True:
            tasks = [task for offer in self._wanted(target) if (task := self._accept(offer))]
            over = time.monotonic() - waiting >= stay_s
            if target and not tasks and not self.declined:
                tasks = self._own(target, must=over)
            for task in tasks:
                worked += self._take_part(task)
                waiting = time.monotonic()
            if (target and tasks) or (over and not tasks):
                return worked
            time.sleep(POLL_S)

    def _wanted(self, target: str | None) -> Iterator[dict[str, Any]]:
        for offer in self._shared.offers():
            if offer["recipe"] not in self.declined and target in (None, _name(offer)):
                yield offer

    def _take_part(self, task: Task) -> int:
        name = task.job.name
        self.say(f"{name}: taking part in {len(task.plan.shards)} shards")
        done = Party(task.spec, task.job, task.plan, self._shared).work(takes=False)
        self.say(f"{name}: {done} shards worked here, none left")
        return done

    def _accept(self, offer: Mapping[str, Any]) -> Task | None:
        """The offer as a task, or None, once and for all, if this machine cannot do the same."""
        try:
            task = self._task(offer)
        except QueenError as error:
            self._decline(offer, str(error))
            return None
        if task.plan.recipe != offer["recipe"]:
            self._decline(
                offer,
                "this machine would make something else: its engine, its code's stage versions or "
                f"its source files differ (engine here: {task.job.identities.get('engine')})",
            )
            return None
        return task

    def _task(self, offer: Mapping[str, Any]) -> Task:
        spec, key = find_stage(_name(offer))
        inputs = {
            role: self._input(entry["name"], entry["content"])
            for role, entry in offer["inputs"].items()
        }
        params = {**offer["params"], "engine": {**offer["params"].get("engine", {}), **self.engine}}
        given = Given(params, offer["rounds"], self.machine, inputs)
        job = prepare(spec, key, self.project, given)
        return Task(spec, job, make_plan(spec, job))

    def _input(self, name: str, content: str) -> Artifact:
        """An input from this project if it has the same, else from the store."""
        try:
            own = open_artifact(self.project / name)
            if own.content == content:
                return own
        except QueenError:
            pass
        return self._shared.pull_artifact(content, received(self._state))

    def _decline(self, offer: Mapping[str, Any], why: str) -> None:
        self.declined.add(offer["recipe"])
        self.say(f"{_name(offer)}: declined: {why}")

    def _own(self, target: str, *, must: bool) -> list[Task]:
        """A stage that nobody offers now, by this project's own params and inputs.

        None where they are not all here, unless it `must` be now.
        """
        spec, key = find_stage(target)
        try:
            job = replace(prepare(spec, key, self.project), machine=self.machine)
            task = Task(spec, job, make_plan(spec, job))
        except QueenError:
            if must:
                raise
            return []
        self.say(f"{target}: nobody offers it; by this project's own params and inputs")
        return [task]


def make_worker(project: Path, store: str, workers: int, say: Say) -> Worker:
    """A worker from the project's params, or without any: store and engines may be given.

    Args:
        store: URL; empty for QUEEN_STORE or machine.store.
        workers: engine processes; 0 for machine.workers, or one for each core without params.
    """
    params = read_params(project) if (project / "params.yaml").is_file() else {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = machine_of(params) if params else Machine(workers=cores or 1)
    machine = replace(machine, workers=workers or machine.workers)
    engine = {n: v for n, v in params.get("engine", {}).items() if n in ("command", "classical")}
    url = store or store_url(machine.store)
    if not url:
        raise QueenError(
            "no shared store is named",
            where="machine.store",
            remedy="`queen work --store URL`, QUEEN_STORE, or `queen configure machine.store=URL`",
        )
    return Worker(project, url, machine, say, engine)


def received(state: State) -> Path:
    """Where inputs from the store lie; `queen gc` clears them like unfinished work."""
    folder = state.scratch / RECEIVED
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _name(offer: Mapping[str, Any]) -> str:
    return f"{offer['stage']}@{offer['key']}" if offer["key"] else str(offer["stage"])
