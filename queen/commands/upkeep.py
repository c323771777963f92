"""`queen verify` and `queen gc`: everything is what its record says; what nothing needs may go."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from queen.engines.cache import Pruned, SearchCache
from queen.errors import QueenError
from queen.lineage.artifact import (
    RECORD,
    Artifact,
    artifact_folders,
    hash_problems,
    read_record,
)
from queen.lineage.dvcio import Pipeline, locked_shards
from queen.lineage.state import State, sharers
from queen.lineage.store import ShardStore
from queen.lineage.verdicts import FILE as VERDICTS_FILE
from queen.lineage.verdicts import read_verdicts

DAY_S = 86_400.0


@dataclass(frozen=True)
class Garbage:
    """What nothing refers to.

    Attributes:
        shards, shard_bytes: folders of finished or half-made shards.
        searches: what pruning the engine cache would remove.
        kept: keys of the shards that stay; searches are kept by them.
        open_stages: stages with stale work, whose shards and unfinished work all stay.
        scratch, scratch_bytes: unfinished work that nobody goes on with.
        absent: projects that once used the state folder and are not where they were; nothing is
            kept for them.
    """

    shards: tuple[Path, ...]
    shard_bytes: int
    searches: Pruned
    kept: frozenset[str]
    open_stages: tuple[str, ...]
    scratch: tuple[Path, ...] = ()
    scratch_bytes: int = 0
    absent: tuple[Path, ...] = ()

    @property
    def nothing(self) -> bool:
        return not (self.shards or self.searches.searches or self.scratch)


def verify(root: Path, state: State) -> Iterator[str]:
    """Every fault of the artifacts in the workspace, of the shard store and of the verdicts.

    Hashes of all files against the records; inputs against the artifacts that are there; outputs
    against dvc.lock; judged models against verdicts.json; finished shards against their manifests.
    """
    found: dict[str, Artifact] = {}
    for folder in sorted(artifact_folders(root)):
        yield from _verify_folder(root, folder, found)
    for record in sorted(root.glob(f"models/released/*/{RECORD}")):
        # What a release was made from may have been made anew since.
        yield from _verify_folder(root, record.parent, {})
    yield from _verify_inputs(found)
    yield from _verify_lock(root)
    yield from _verify_verdicts(root, found)
    store = ShardStore(state.shards)
    for stage, key, folder in _shards(state):
        if not key.startswith(".") and (folder / "shard.json").is_file():
            yield from store.problems(stage, key)


def _verify_folder(root: Path, folder: Path, found: dict[str, Artifact]) -> Iterator[str]:
    name = folder.relative_to(root).as_posix()
    try:
        record = read_record(folder)
    except QueenError as error:
        yield str(error).splitlines()[0]
        return
    if record.name != name:
        yield f"{name}: its record says it is {record.name}"
    found[name] = Artifact(folder, record)
    for problem in hash_problems(folder, record):
        yield f"{name}: {problem}"


def _verify_inputs(found: dict[str, Artifact]) -> Iterator[str]:
    for name, artifact in sorted(found.items()):
        for entry in artifact.record.inputs:
            other = found.get(entry.name)
            if other is not None and other.content != entry.content:
                yield (
                    f"{name}: was made from {entry.name} at {entry.content[:12]}, "
                    f"which now is {other.content[:12]}"
                )


def _verify_lock(root: Path) -> Iterator[str]:
    pipeline = Pipeline(root)
    for name, reasons in pipeline.reasons(pipeline.every()).items():
        for reason in reasons:
            if reason.startswith("outs: ") and reason.endswith(" modified"):
                yield f"{reason[6:-9]}: is not what dvc.lock says of {name}"


def _verify_verdicts(root: Path, found: dict[str, Artifact]) -> Iterator[str]:
    for key, judgement in read_verdicts(root).models.items():
        model = found.get(f"models/{key}")
        if model is not None and not judgement.reopened and model.content != judgement.model:
            yield (
                f"{VERDICTS_FILE}: {key} was judged as {judgement.model[:12]}, "
                f"models/{key} is {model.content[:12]}"
            )


def find_garbage(root: Path, state: State, *, young: bool = False) -> Garbage:
    """Shards, searches and unfinished work that no project sharing the state folder needs.

    A project needs what an artifact in its lock or workspace refers to. Of a stage that is stale
    in one of them everything is kept: an interrupted run of it will take that up.

    Args:
        young: unfinished work younger than a day is garbage too.

    Raises:
        QueenError: what one of the projects needs cannot be told.
    """
    here, absent = sharers(state)
    referred: set[str] = set()
    open_stages: set[str] = set()
    for project in sorted({root.resolve(), *here}):
        keys, stages = _needed(project)
        referred |= keys
        open_stages |= stages
    shards: list[Path] = []
    for stage, key, folder in _shards(state):
        if stage in open_stages:
            referred.add(key)
        elif key not in referred:
            shards.append(folder)
    scratch = _left_lying(state, open_stages, DAY_S if not young else 0.0)
    found = Garbage(
        shards=tuple(shards),
        shard_bytes=sum(_size(folder) for folder in shards),
        searches=Pruned(0, 0, 0),
        kept=frozenset(referred),
        open_stages=tuple(sorted(open_stages)),
        scratch=tuple(scratch),
        scratch_bytes=sum(_size(folder) for folder in scratch),
        absent=tuple(absent),
    )
    return replace(found, searches=_prune(state, found, dry_run=True))


def remove_garbage(state: State, garbage: Garbage) -> None:
    """Remove what `find_garbage` found."""
    for folder in (*garbage.shards, *garbage.scratch):
        shutil.rmtree(folder, ignore_errors=True)
    _prune(state, garbage, dry_run=False)


def _needed(project: Path) -> tuple[set[str], set[str]]:
    """Keys of the shards that a project refers to, and its stages that are not up to date."""
    try:
        keys = locked_shards(project)
        for folder in artifact_folders(project):
            keys.update(read_record(folder).shards)
        return keys, _open_stages(project)
    except QueenError as error:
        raise QueenError(
            f"cannot tell what this project needs: {error.what}",
            where=str(project),
            remedy=f"{error.remedy}; a project that is no longer used may be deleted",
        ) from error


def _left_lying(state: State, open_stages: set[str], age_s: float) -> list[Path]:
    """Scratch folders of stages that are done everywhere, untouched for so long."""
    now = time.time()
    folders = sorted(path for path in state.scratch.glob("*/*") if path.is_dir())
    idle = [path for path in folders if path.parent.name not in open_stages]
    return [path for path in idle if now - _last_change(path) >= age_s]


def _last_change(folder: Path) -> float:
    return max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))


def _open_stages(root: Path) -> set[str]:
    """Names of stages (without key) of which some are stale and may still run."""
    steps = Pipeline(root).walk()
    return {s.name.partition("@")[0] for s in steps if (s.stale or s.after) and not s.judged}


def _prune(state: State, garbage: Garbage, *, dry_run: bool) -> Pruned:
    """Drop searches that no kept shard used.

    While work is open, or where no search says who used it, searches without a user stay.
    """
    if not state.searches.is_file():
        return Pruned(0, 0, 0)
    with SearchCache(state.searches) as cache:
        since = 0.0 if garbage.open_stages or not cache.labels() else None
        return cache.prune(garbage.kept.__contains__, used_since=since, dry_run=dry_run)


def _shards(state: State) -> list[tuple[str, str, Path]]:
    """Every shard folder: stage, key, path."""
    store = ShardStore(state.shards)
    return list(store.keys())


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
