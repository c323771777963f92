"""What every flow shares: the session, one stage as a task, and the walk from upstream down."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run
from prefect.tasks import Task

from queen.lineage.dvcio import (
    Pipeline,
    StageFailedError,
    is_judged,
    lock_as_dvc,
    reproduce,
    round_of,
)
from queen.lineage.lock import NO_WAIT, workspace
from queen.lineage.params import read_params
from queen.lineage.state import find_project, open_state
from queen.lineage.tracking import FLOW_RUN, sender
from queen.lineage.verdicts import artifact_judgement, read_verdicts, record_artifact

PROJECT = "QUEEN_PROJECT"
ON_TERMINAL = "QUEEN_ON_TERMINAL"


@dataclass
class Walked:
    """What a walk did: stages run, left alone as judged, and the round that stopped it."""

    ran: list[str] = field(default_factory=list)
    judged: list[str] = field(default_factory=list)
    stopped_by: str | None = None


def project() -> Path:
    """The project the flows work in: QUEEN_PROJECT, else the one around the working folder."""
    named = os.environ.get(PROJECT)
    return find_project(Path(named) if named else None)


@contextlib.contextmanager
def session(what: str) -> Iterator[Path]:
    """Hold the workspace, carry figures to MLflow, leave dvc.lock as DVC would; may be nested."""
    root = project()
    wait = os.environ.get(NO_WAIT, "") in ("", "0")
    with (
        workspace(root, what=what, wait=wait),
        sender(root, open_state(root).root),
        lock_as_dvc(root),
    ):
        yield root


def bring_up_to_date(name: str, upstream: bool) -> Walked:
    """The body of a stage's flow: the stage itself, and before it all it stands on that is stale.

    Raises:
        StageFailedError: a stage failed after its retries.
    """
    with session(name) as root:
        if upstream:
            return walk(root, name)
        walked = Walked()
        _run(root, name, walked)
        return walked


def walk(root: Path, target: str | None = None) -> Walked:
    """Bring a target, or everything, up to date: each stale stage one flow run, upstream first.

    A judged round is left alone. Without a target the walk ends before a new round where one
    came out worse and nobody has rolled it back (`flow.stop_after_worse`).
    """
    pipeline = Pipeline(root)
    walked = Walked()
    for name in pipeline.names(target):
        if not pipeline.reasons([name])[name]:
            continue
        if is_judged(read_verdicts(root), name):
            _leave(name, walked)
            continue
        walked.stopped_by = None if target else _stopped(root, name)
        if walked.stopped_by:
            tell(f"stopping before {name}: the round {walked.stopped_by} came out worse")
            break
        if name == target:
            _run(root, name, walked)
        else:
            walked.ran += stage_flow(name)(**_arguments(name), upstream=False).ran
    return walked


def _leave(name: str, walked: Walked) -> None:
    key = round_of(name)
    if key is not None and key not in walked.judged:
        walked.judged.append(key)
        tell(f"the round {key} has its verdict and is left alone (`queen round reopen {key}`)")


def _stopped(root: Path, name: str) -> str | None:
    """The worse round that keeps a round's stage from running, if the params say so."""
    if round_of(name) is None or not read_params(root).get("flow", {}).get("stop_after_worse"):
        return None
    return read_verdicts(root).halted_by()


def stage_flow(name: str) -> Any:
    """The flow of a stage, from its own file."""
    stage = name.partition("@")[0]
    return getattr(importlib.import_module(f"flows.{stage}"), f"{stage}_flow")


def _arguments(name: str) -> dict[str, str]:
    key = name.partition("@")[2]
    return {"key": key} if key else {}


def _run(root: Path, name: str, walked: Walked) -> None:
    tell(f"{name}: running")
    if with_retries(root)(str(root), name):
        walked.ran.append(name)
        _take_up_verdict(root, name)


def _take_up_verdict(root: Path, name: str) -> None:
    """What came out of DVC's run cache never ran, so nobody wrote its verdict."""
    stage, _, key = name.partition("@")
    if stage in ("evaluate", "judge") and artifact_judgement(root, key) is not None:
        record_artifact(root, key)


def with_retries(root: Path) -> Task[Any, Any]:
    """The task with the retries that params ask for."""
    settings = read_params(root).get("flow", {})
    return reproduce_stage.with_options(
        retries=int(settings.get("retries", 0)),
        retry_delay_seconds=float(settings.get("retry_delay_s", 0)),
        retry_condition_fn=worth_retrying,
    )


@task(name="reproduce", task_run_name="reproduce {name}", cache_policy=NO_CACHE)
def reproduce_stage(root: str, name: str) -> bool:
    """`dvc repro --single-item` of one stage; returns whether anything was done."""
    before = os.environ.get(FLOW_RUN)
    os.environ[FLOW_RUN] = str(flow_run.get_id() or "")
    try:
        return reproduce(Path(root), name)
    finally:
        if before is None:
            os.environ.pop(FLOW_RUN, None)
        else:
            os.environ[FLOW_RUN] = before


def worth_retrying(task: Task[Any, Any], run: TaskRun, state: State[Any]) -> bool:
    """Only a stage whose process died: one that refused with a reason would refuse again."""
    try:
        state.result()
    except StageFailedError as error:
        return error.crashed
    except Exception:
        return False
    return False


def drain() -> None:
    """Send what Prefect still holds (logs, states of tasks), before the server is stopped."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        worker.drain_all(timeout=10)


def tell(text: str) -> None:
    """Say something where it is looked for: the terminal of `queen run`, else the run's log."""
    if os.environ.get(ON_TERMINAL):
        print(text, file=sys.stderr, flush=True)
    else:
        get_run_logger().info(text)
