"""What a stage's run needs before it starts: its job, its shards and their keys."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.language.api.client import Api
from queen.language.api.settings import Limits
from queen.lineage.artifact import Artifact, InputEntry, digest_of, open_artifact
from queen.lineage.params import read_params
from queen.lineage.rounds import FILE as ROUNDS_FILE
from queen.lineage.state import open_state
from queen.lineage.store import shard_key
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
from stages.settings import build, relevant
from stages.versions import version_of


@dataclass(frozen=True)
class Plan:
    """A stage's shards, the key of each, and the recipe of the artifact they make."""

    shards: tuple[Shard, ...]
    keys: tuple[str, ...]
    recipe: str


@dataclass(frozen=True)
class Given:
    """What a job is made from where it is another machine's work, not this project's own.

    Attributes:
        params: that project's params.yaml.
        rounds: its rounds, by key.
        machine: this machine's own.
        inputs: the artifacts, by role.
    """

    params: Mapping[str, Any]
    rounds: Mapping[str, Any]
    machine: Machine
    inputs: Mapping[str, Artifact]


def make_plan(spec: StageSpec, job: Job[Any]) -> Plan:
    """What is to be done; a source file's digest stands in its shard, so in the recipe too."""
    shards = tuple(spec.shards(job))
    keys = tuple(shard_key(_key_parts(spec, job, shard)) for shard in shards)
    return Plan(shards, keys, _recipe(spec, job, keys))


def prepare(
    spec: StageSpec, key: str | None, project: Path, given: Given | None = None
) -> Job[Any]:
    """The job of a stage: params read, inputs opened, engine asked for its name.

    Args:
        given: what stands in the place of the project's own params and inputs.
    """
    params = read_params(project) if given is None else given.params
    machine = machine_of(params) if given is None else given.machine
    rounds = written_rounds(project) if given is None else given.rounds
    engine = build(EngineParams, params.get("engine", {}), "engine")
    generation = build(GenerationParams, params.get("generation", {}), "generation")
    raw, seed, parent = _section(spec, key, params, rounds)
    read, state = spec.read_params(raw), open_state(project)
    uses = spec.uses if spec.wants(read) else ()
    return Job(
        stage=spec.name,
        key=key,
        params=read,
        seed=seed,
        inputs=_open_inputs(spec, key, parent, project) if given is None else given.inputs,
        project=project,
        state=state,
        machine=machine,
        engine=engine,
        identities={
            **_identities(uses, engine, machine),
            **({"generation": generation.identity()} if "generation" in uses else {}),
        },
        generation=generation,
        sink=lambda step, figures: None,
        progress=progress_printer(spec.name if key is None else f"{spec.name}@{key}"),
        api=Api(build(Limits, params.get("api", {}), "api"), state.answers),
    )


def written_rounds(project: Path) -> Mapping[str, Any]:
    """The project's rounds by key, as plain values; none where there is no file of them.

    `queen run` has checked them; a worker elsewhere is sent them as they are.
    """
    path = project / ROUNDS_FILE
    return (read_yaml(path).get("rounds") or {}) if path.is_file() else {}


def machine_of(params: Mapping[str, Any]) -> Machine:
    return build(Machine, params.get("machine", {}), "machine")


def output_path(spec: StageSpec, key: str | None) -> str:
    return spec.output.format(key=key)


def _key_parts(spec: StageSpec, job: Job[Any], shard: Shard) -> dict[str, object]:
    return {**_work_parts(spec, job), "shard": dict(shard.spec)}


def _work_parts(spec: StageSpec, job: Job[Any]) -> dict[str, object]:
    return {
        "stage": spec.name,
        "version": version_of(spec.name),
        "params": plain_params(job.params),
        "seed": job.seed,
        "inputs": {role: artifact.content for role, artifact in job.inputs.items()},
        "identities": dict(job.identities),
    }


def _recipe(spec: StageSpec, job: Job[Any], keys: tuple[str, ...]) -> str:
    """What makes an artifact this one: the work, its shards, its name and its inputs' names."""
    names = {role: artifact.name for role, artifact in job.inputs.items()}
    name = output_path(spec, job.key)
    return digest_of({**_work_parts(spec, job), "name": name, "names": names, "shards": keys})


def plain_params(params: Any) -> dict[str, Any]:
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


def input_entries(job: Job[Any]) -> list[InputEntry]:
    return [InputEntry(role, a.name, a.content) for role, a in sorted(job.inputs.items())]


def _section(
    spec: StageSpec, key: str | None, params: Mapping[str, Any], rounds: Mapping[str, Any]
) -> tuple[Mapping[str, Any], int, str | None]:
    """The raw params, the seed and the parent of a stage."""
    if spec.per != "round":
        parent = {"pawn1": "pawn"}.get(key or "")
        raw = dict(_dig(params, spec.section, "params.yaml"))
        raw.update((name, _dig(params, name, "params.yaml")) for name in spec.also)
        return raw, int(params.get("seed", 0)), parent
    if key is None or key not in rounds:
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


def _identities(uses: Collection[str], engine: EngineParams, machine: Machine) -> dict[str, Any]:
    """Who searches: name, version, network digest and options, if the stage uses an engine."""
    if "engine" not in uses:
        return {}
    from queen.engines.pool import Analyser

    with Analyser(engine_settings(engine, replace(machine, workers=1)), None) as analyser:
        found: dict[str, Any] = {"engine": analyser.identity.as_dict()}
    if "classical" in uses:
        from queen.engines.classical import ClassicalEvaluator
        from queen.engines.locate import find_classical

        with ClassicalEvaluator(find_classical(engine.classical)) as classical:
            found["classical"] = classical.identity.as_dict()
    return found
