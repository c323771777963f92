"""The one runner of every stage: `python -m stages NAME[@KEY]`.

It checks the verdict, opens the run for MLflow, hands the stage its job, runs shards, work and
assemble in this process, writes the record last, and after an evaluation writes the verdict.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.language.api.client import Api
from queen.language.api.settings import Limits
from queen.lineage import verdicts
from queen.lineage.artifact import (
    Artifact,
    Draft,
    InputEntry,
    Record,
    describe_files,
    digest_of,
    fresh_partial,
    open_artifact,
    publish,
    read_record,
    writing,
)
from queen.lineage.lock import stage_guard
from queen.lineage.state import open_state
from queen.lineage.store import ShardStore, shard_key
from queen.lineage.tracking import Input, Output, Tracker
from queen.lineage.yamlio import read_yaml
from stages.base import (
    EngineParams,
    GenerationParams,
    Job,
    Machine,
    Shard,
    StageSpec,
    engine_settings,
)
from stages.console import progress_printer
from stages.registry import find_stage
from stages.settings import build, relevant
from stages.versions import version_of

STOPPED = 2
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
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
        plan = _plan(spec, job)
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


@dataclass(frozen=True)
class Plan:
    """A stage's shards, the key of each, and the recipe of the artifact they make."""

    shards: tuple[Shard, ...]
    keys: tuple[str, ...]
    recipe: str


def _plan(spec: StageSpec, job: Job[Any]) -> Plan:
    """What is to be done; a source file's digest stands in its shard, so in the recipe too."""
    shards = tuple(spec.shards(job))
    keys = tuple(shard_key(_key_parts(spec, job, shard)) for shard in shards)
    return Plan(shards, keys, _recipe(spec, job, keys))


def _tracked(spec: StageSpec, job: Job[Any], plan: Plan, final: Path) -> Artifact:
    """Build the artifact inside a tracked run."""
    inputs = [Input(entry.name, entry.content) for entry in _input_entries(job)]
    tracker = Tracker(job.project, job.state.root)
    with tracker.run(spec.name, job.key, params=_plain(job.params), inputs=inputs) as run:
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


def prepare(spec: StageSpec, key: str | None, project: Path) -> Job[Any]:
    """The job of a stage: params read, inputs opened, engine asked for its name."""
    params = read_yaml(project / "params.yaml", "run `queen configure`")
    machine = build(Machine, params.get("machine", {}), "machine")
    engine = build(EngineParams, params.get("engine", {}), "engine")
    generation = build(GenerationParams, params.get("generation", {}), "generation")
    raw, seed, parent = _section(spec, key, params, project)
    state = open_state(project)
    return Job(
        stage=spec.name,
        key=key,
        params=spec.read_params(raw),
        seed=seed,
        inputs=_open_inputs(spec, key, parent, project),
        project=project,
        state=state,
        machine=machine,
        engine=engine,
        identities={
            **_identities(spec, engine, machine),
            **({"generation": generation.identity()} if "generation" in spec.uses else {}),
        },
        generation=generation,
        sink=lambda step, figures: None,
        progress=progress_printer(spec.name if key is None else f"{spec.name}@{key}"),
        api=Api(build(Limits, params.get("api", {}), "api"), state.answers),
    )


def output_path(spec: StageSpec, key: str | None) -> str:
    return spec.output.format(key=key)


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
    found = store.get(spec.name, key)
    if found is not None:
        return found
    job.shard_key = key
    return store.put(spec.name, key, lambda folder: spec.work(job, shard, folder))


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
        params=_plain(job.params),
        inputs=tuple(_input_entries(job)),
        shards=plan.keys,
        files=describe_files(partial),
        counts=dict(draft.counts),
        drops=dict(draft.drops),
        figures=dict(draft.figures),
        identities={**job.identities, **draft.identities},
        licences=dict(draft.licences),
    )


def _key_parts(spec: StageSpec, job: Job[Any], shard: Shard) -> dict[str, object]:
    return {**_work_parts(spec, job), "shard": dict(shard.spec)}


def _work_parts(spec: StageSpec, job: Job[Any]) -> dict[str, object]:
    return {
        "stage": spec.name,
        "version": version_of(spec.name),
        "params": _plain(job.params),
        "seed": job.seed,
        "inputs": {role: artifact.content for role, artifact in job.inputs.items()},
        "identities": dict(job.identities),
    }


def _recipe(spec: StageSpec, job: Job[Any], keys: tuple[str, ...]) -> str:
    """What makes an artifact this one: the work, its shards, its name and its inputs' names."""
    names = {role: artifact.name for role, artifact in job.inputs.items()}
    name = output_path(spec, job.key)
    return digest_of({**_work_parts(spec, job), "name": name, "names": names, "shards": keys})


def _plain(params: Any) -> dict[str, Any]:
    """A params dataclass as JSON values, without this machine's paths.

    An absolute path is reduced to its last part: what the file holds is in the shards' keys.
    """
    plain: dict[str, Any] = _listed(relevant(params))
    return plain


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    if isinstance(value, str) and os.path.isabs(value):
        return os.path.basename(value)
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _input_entries(job: Job[Any]) -> list[InputEntry]:
    return [InputEntry(role, a.name, a.content) for role, a in sorted(job.inputs.items())]


def _section(
    spec: StageSpec, key: str | None, params: Mapping[str, Any], project: Path
) -> tuple[Mapping[str, Any], int, str | None]:
    """The raw params, the seed and the parent of a stage."""
    if spec.per != "round":
        parent = {"pawn1": "pawn"}.get(key or "")
        raw = dict(_dig(params, spec.section, "params.yaml"))
        raw.update((name, _dig(params, name, "params.yaml")) for name in spec.also)
        return raw, int(params.get("seed", 0)), parent
    rounds = read_yaml(project / "params" / "rounds.yaml").get("rounds") or {}
    if key not in rounds:
        raise QueenError(
            f"no round {key!r}",
            where="params/rounds.yaml",
            remedy=f"known: {', '.join(rounds) or 'none'}; `queen round add` makes one",
        )
    entry = rounds[key]
    return _dig(entry, spec.section, f"rounds.{key}"), int(entry["seed"]), str(entry["parent"])


def _dig(raw: Mapping[str, Any], section: str, where: str) -> Mapping[str, Any]:
    here: Any = raw
    for part in section.split("."):
        if not isinstance(here, Mapping) or part not in here:
            raise QueenError(
                f"section {section!r} is missing", where=where, remedy="run `queen configure`"
            )
        here = here[part]
    return here  # type: ignore[no-any-return]


def _open_inputs(
    spec: StageSpec, key: str | None, parent: str | None, project: Path
) -> dict[str, Artifact]:
    """Inputs by role; a role whose path needs a parent there is none of is left out."""
    inputs = {}
    for role, template in spec.inputs.items():
        if "{parent}" in template and parent is None:
            continue
        inputs[role] = open_artifact(project / template.format(key=key, parent=parent))
    return inputs


def _identities(spec: StageSpec, engine: EngineParams, machine: Machine) -> dict[str, Any]:
    """Who searches: name, version, network digest and options, if the stage uses an engine."""
    if "engine" not in spec.uses:
        return {}
    from queen.engines.pool import Analyser

    with Analyser(engine_settings(engine, replace(machine, workers=1)), None) as analyser:
        found: dict[str, Any] = {"engine": analyser.identity.as_dict()}
    if "classical" in spec.uses:
        from queen.engines.classical import ClassicalEvaluator
        from queen.engines.locate import find_classical

        with ClassicalEvaluator(find_classical(engine.classical)) as classical:
            found["classical"] = classical.identity.as_dict()
    return found


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
