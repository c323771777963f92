"""The one runner of every stage: `python -m stages NAME[@KEY]`.

It checks the verdict, opens the run for MLflow, hands the stage its job, runs shards, work and
assemble, writes the record last, and after an evaluation writes the verdict.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage import verdicts
from queen.lineage.artifact import (
    Artifact,
    Draft,
    Record,
    describe_files,
    fresh_partial,
    open_artifact,
    publish,
    read_record,
    writing,
)
from queen.lineage.lock import stage_guard
from queen.lineage.remote import Remote
from queen.lineage.shared import SharedStore, store_url
from queen.lineage.store import ShardStore
from queen.lineage.tracking import Input, Output, Tracker
from stages.base import Job, Shard, StageSpec
from stages.preparing import (
    Plan,
    input_entries,
    make_plan,
    output_path,
    plain_params,
    prepare,
)
from stages.registry import find_stage
from stages.sharing import work_one, work_with_others
from stages.side_by_side import work_side_by_side
from stages.versions import version_of

STOPPED = 2
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
VERDICT = "verdict.json"


def run_stage(name: str, project: Path) -> Artifact:
    """Run one stage to a complete artifact.

    A stage whose artifact is already there, made by this very recipe, is done: so a run killed
    between the record and DVC's lock goes on, and a judged round is not run again.

    Args:
        name: stage, with `@key` for a stage of a round.
        project: the project's root.

    Raises:
        QueenError: bad params, missing inputs, a failed gate, a judged round; says what to do.
    """
    spec, key = find_stage(name)
    with stage_guard(project, stage=name):
        job = prepare(spec, key, project)
        plan = make_plan(spec, job)
        final = project / output_path(spec, key)
        artifact = finished(final, plan.recipe)
        if artifact is None:
            if spec.per == "round":
                verdicts.require_open(project, stage=spec.name, key=key)
            artifact = _tracked(spec, job, plan, final)
        else:
            _take_verdict(job, artifact)
        return artifact


def _take_verdict(job: Job[Any], artifact: Artifact) -> None:
    """Record the verdict that an evaluation holds, before its run closes: the alias follows."""
    if (artifact.path / VERDICT).is_file():
        verdicts.record_artifact(job.project, str(job.key))


def _tracked(spec: StageSpec, job: Job[Any], plan: Plan, final: Path) -> Artifact:
    """Build the artifact inside a tracked run."""
    inputs = [Input(entry.name, entry.content) for entry in input_entries(job)]
    tracker = Tracker(job.project, job.state.root)
    with tracker.run(spec.name, job.key, params=plain_params(job.params), inputs=inputs) as run:
        job.sink = run.log
        artifact = _build(spec, job, plan, final)
        _take_verdict(job, artifact)
        run.finish(
            "done",
            outputs=[Output(artifact.name, artifact.content)],
            figures={**_figures(artifact.record), **job.api.figures()},
        )
    return artifact


def _figures(record: Record) -> dict[str, float]:
    """Counts, drops and results as one flat table of numbers."""
    named = (("count", record.counts), ("drop", record.drops), ("", record.figures))
    return {f"{p}.{k}" if p else k: float(v) for p, group in named for k, v in group.items()}


def finished(final: Path, recipe: str) -> Artifact | None:
    """The artifact already there, if it was made by this very recipe."""
    try:
        if read_record(final).recipe == recipe:
            return open_artifact(final)
    except QueenError:
        pass
    return None


def _build(spec: StageSpec, job: Job[Any], plan: Plan, final: Path) -> Artifact:
    store, total = ShardStore(job.state.shards), len(plan.shards)
    url = store_url(job.machine.store)
    if url:
        work_with_others(spec, job, plan, SharedStore(Remote(url), store))
    else:
        work_side_by_side(spec, job, plan)
    folders = [
        _work(spec, job, store, shard, key, done, total)
        for done, (shard, key) in enumerate(zip(plan.shards, plan.keys, strict=True))
    ]
    job.progress(total, total, "assembling")
    with writing(final):
        partial = fresh_partial(final)
        draft = spec.assemble(job, folders, partial)
        record = _record(spec, job, plan, partial, draft)
        artifact = publish(partial, final, record)
    for key in plan.keys:
        shutil.rmtree(job.state.scratch / spec.name / key, ignore_errors=True)
    return artifact


def _work(
    spec: StageSpec,
    job: Job[Any],
    store: ShardStore,
    shard: Shard,
    key: str,
    done: int,
    total: int,
) -> Path:
    job.progress(done, total, shard.id)
    return store.get(spec.name, key) or work_one(spec, job, store, shard, key)


def _record(
    spec: StageSpec,
    job: Job[Any],
    plan: Plan,
    partial: Path,
    draft: Draft,
) -> Record:
    return Record(
        name=output_path(spec, job.key),
        stage=spec.name,
        version=version_of(spec.name),
        recipe=plan.recipe,
        seed=job.seed,
        params=plain_params(job.params),
        inputs=tuple(input_entries(job)),
        shards=plan.keys,
        files=describe_files(partial),
        counts=dict(draft.counts),
        drops=dict(draft.drops),
        figures=dict(draft.figures),
        identities={**job.identities, **draft.identities},
        licences=dict(draft.licences),
    )


def _disk_fault(error: OSError, stage: str) -> QueenError:
    """A disk that is full or read-only, met in the middle of a stage's work."""
    return QueenError(
        f"cannot write: {error.strerror or error}",
        where=str(error.filename or stage),
        remedy="make room or mend permissions, then run again: finished shards are kept",
    )


def main(arguments: Sequence[str]) -> int:
    """Run one stage from the command line; returns the exit status."""
    import sys

    if len(arguments) != 1:
        print("usage: python -m stages NAME[@KEY]", file=sys.stderr)
        return 2
    project = Path(os.environ.get("QUEEN_PROJECT", os.getcwd()))
    try:
        artifact = run_stage(arguments[0], project)
    except QueenError as error:
        print(error, file=sys.stderr)
        return STOPPED
    except OSError as error:
        if error.errno not in DISK_FAULTS:
            raise
        print(_disk_fault(error, arguments[0]), file=sys.stderr)
        return STOPPED
    print(f"{artifact.name}: {artifact.content[:12]} {dict(artifact.record.counts)}")
    return 0
