"""Hashes and links: every file is what its record says, every record's inputs are what is there."""

from __future__ import annotations

from collections.abc import Iterator

from queen.lineage.artifact import Artifact, Record, digest_of, hash_problems
from queen.lineage.store import MANIFEST, ShardStore
from stages.audit.opened import Opened

IN_RECIPE = ("engine", "classical", "generation")


def hash_faults(opened: Opened, artifact: Artifact) -> Iterator[str]:
    """Files that differ from the record, a record in another's place, a recipe that is not its."""
    name = artifact.path.relative_to(opened.project).as_posix()
    if artifact.name != name:
        yield f"its record says it is {artifact.name}"
    yield from hash_problems(artifact.path, artifact.record)
    if recipe_of(artifact.record) != artifact.record.recipe:
        yield "the recipe in its record is not that of its version, params, seed and inputs"


def recipe_of(record: Record) -> str:
    """The recipe that a record's own fields give."""
    return digest_of(
        {
            "stage": record.stage,
            "version": record.version,
            "params": record.params,
            "seed": record.seed,
            "inputs": {entry.role: entry.content for entry in record.inputs},
            "identities": {k: v for k, v in record.identities.items() if k in IN_RECIPE},
            "name": record.name,
            "names": {entry.role: entry.name for entry in record.inputs},
            "shards": record.shards,
        }
    )


def link_faults(opened: Opened, artifact: Artifact) -> Iterator[str]:
    """Inputs that are missing, or are not what the artifact was made from."""
    for entry in artifact.record.inputs:
        if entry.name in opened.broken:
            yield f"its input {entry.name} is no artifact: {opened.broken[entry.name]}"
        elif opened.artifacts[entry.name].content != entry.content:
            now = opened.artifacts[entry.name].content
            yield f"was made from {entry.name} at {entry.content[:12]}, which now is {now[:12]}"


def parent_faults(opened: Opened, artifact: Artifact) -> Iterator[str]:
    """A round's artifact whose parent is not the one in rounds.yaml."""
    if opened.parent is None or artifact.name not in opened.expected:
        return
    wanted = {"parent": f"models/{opened.parent}", "before": f"data/evaluate/{opened.parent}"}
    for entry in artifact.record.inputs:
        right = wanted.get(entry.role, entry.name)
        if entry.name != right:
            yield f"its {entry.role} is {entry.name}, but the parent of {opened.key} is {right}"


def shard_faults(store: ShardStore, artifact: Artifact) -> Iterator[str]:
    """Shards in the store that are not what their manifest says."""
    for key in artifact.record.shards:
        if (store.path(artifact.record.stage, key) / MANIFEST).is_file():
            yield from store.problems(artifact.record.stage, key)


def absent_shards(store: ShardStore, artifact: Artifact) -> int:
    """How many shards the store no longer has."""
    stage = artifact.record.stage
    keys = artifact.record.shards
    return sum(not (store.path(stage, key) / MANIFEST).is_file() for key in keys)
