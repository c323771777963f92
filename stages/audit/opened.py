"""A round's artifacts and everything upstream of them, opened once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.lineage.artifact import RECORD, Artifact, read_record
from queen.lineage.params import unknown
from queen.lineage.rounds import read_rounds
from queen.lineage.verdicts import BASES
from stages.base import ROWS

DATA_STEPS = ("sample", "explain", "recurse", "consolidate", "filter")
BASE_PARENTS = {"pawn": None, "pawn1": "pawn"}


@dataclass(frozen=True)
class Opened:
    """Artifacts by name.

    Attributes:
        project: the root.
        key: the round or model audited.
        parent: the model it starts from; None for `pawn`.
        expected: names of the key's own artifacts, in order of making.
        artifacts: those that are there, and what they were made from.
        broken: why a folder is no artifact, by name.
    """

    project: Path
    key: str
    parent: str | None
    expected: tuple[str, ...]
    artifacts: Mapping[str, Artifact]
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        """The key's own artifacts that are not there."""
        return [n for n in self.expected if n not in self.artifacts and n not in self.broken]

    def own(self, step: str) -> Artifact | None:
        """The artifact of one of the key's steps, if it is there."""
        return self.artifacts.get(f"data/{step}/{self.key}")

    def input_of(self, artifact: Artifact, role: str) -> Artifact | None:
        """What an artifact took in that role, as it is on disk now."""
        names = [entry.name for entry in artifact.record.inputs if entry.role == role]
        return self.artifacts.get(names[0]) if names else None

    @cached_property
    def _tables(self) -> dict[str, pa.Table]:
        return {}

    def table(self, artifact: Artifact, name: str = ROWS) -> pa.Table:
        """A table of an artifact, read once. Raises QueenError naming a file that is no table."""
        path = artifact.file(name)
        if str(path) not in self._tables:
            try:
                self._tables[str(path)] = pq.read_table(path)
            except (pa.ArrowException, OSError) as error:
                raise QueenError(
                    f"not a parquet table: {error}",
                    where=str(path),
                    remedy="dvc checkout, or run the stage again",
                ) from error
        return self._tables[str(path)]


def open_round(project: Path, key: str) -> Opened:
    """Open what a key made and all of its ancestors.

    Raises QueenError: no such round or model, or nothing of it is there yet.
    """
    parent = _parent(project, key)
    expected = _expected(key)
    artifacts: dict[str, Artifact] = {}
    broken: dict[str, str] = {}
    waiting = [name for name in expected if (project / name / RECORD).is_file()]
    if not waiting:
        raise QueenError(
            f"nothing of {key!r} has been made yet",
            where=str(project),
            remedy=f"run `queen run {key}`" if key not in BASES else "run `queen run`",
        )
    while waiting:
        name = waiting.pop()
        if name in artifacts or name in broken:
            continue
        try:
            artifacts[name] = Artifact(project / name, read_record(project / name))
        except QueenError as error:
            broken[name] = error.what
            continue
        waiting += [entry.name for entry in artifacts[name].record.inputs]
    return Opened(project, key, parent, expected, artifacts, broken)


def _parent(project: Path, key: str) -> str | None:
    if key in BASES:
        return BASE_PARENTS[key]
    rounds = read_rounds(project)
    if key not in rounds:
        raise unknown("round or model", key, [*rounds, *BASES], "queen audit")
    return rounds[key].parent


def _expected(key: str) -> tuple[str, ...]:
    steps = () if key in BASES else DATA_STEPS
    return (*(f"data/{step}/{key}" for step in steps), f"models/{key}", f"data/evaluate/{key}")


def in_order(opened: Opened) -> Iterator[Artifact]:
    """Every artifact, what it was made from before it."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[Artifact]:
        if name in done or name not in opened.artifacts:
            return
        done.add(name)
        artifact = opened.artifacts[name]
        for entry in artifact.record.inputs:
            yield from visit(entry.name)
        yield artifact

    for name in sorted(opened.artifacts):
        yield from visit(name)
