"""What a project holds so far, for the report: whatever is missing is simply not told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.lineage.artifact import Artifact, artifact_folders, read_json, whole_artifacts
from queen.lineage.state import State
from queen.lineage.tracking import read_run, run_folders
from stages.base import ROWS

Row = Mapping[str, Any]


class Standing(Protocol):
    """Where one model stands: a row of `queen rounds`."""

    @property
    def key(self) -> str: ...
    @property
    def parent(self) -> str | None: ...
    @property
    def examples(self) -> int | None: ...
    @property
    def kept(self) -> int | None: ...
    @property
    def figures(self) -> Mapping[str, float]: ...
    @property
    def elo(self) -> float | None: ...
    @property
    def elo_interval(self) -> tuple[float | None, float | None] | None: ...
    @property
    def verdict(self) -> str | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def champion(self) -> bool: ...
    @property
    def set_aside(self) -> bool: ...
    @property
    def seconds(self) -> float: ...
    @property
    def cpu_seconds(self) -> float: ...


@dataclass(frozen=True)
class Project:
    """A project as it stands.

    Attributes:
        root, state: its folders.
        rows: its models, parents first.
        params: params.yaml.
    """

    root: Path
    state: State
    rows: Sequence[Standing]
    params: Row

    @cached_property
    def artifacts(self) -> dict[str, Artifact]:
        """Every complete artifact by name."""
        return {self._name(each.path): each for each in whole_artifacts(self.root)}

    @cached_property
    def broken(self) -> list[str]:
        """Artifacts that are there and cannot be read whole."""
        names = map(self._name, artifact_folders(self.root))
        return sorted(name for name in names if name not in self.artifacts)

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self.root).as_posix()

    def table(self, name: str, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Rows of an artifact's table; none if it is not here."""
        artifact = self.artifacts.get(name)
        if artifact is None:
            return []
        rows: list[dict[str, Any]] = pq.read_table(artifact.file(ROWS), columns=columns).to_pylist()
        return rows

    def json(self, name: str, file: str) -> Any:
        """A JSON file of an artifact; None if it is not here."""
        artifact = self.artifacts.get(name)
        if artifact is None or not any(e.name == file for e in artifact.record.files):
            return None
        return read_json(artifact.file(file))

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """Every recorded run of this project, oldest first."""
        found = []
        for folder in run_folders(self.state.root):
            try:
                values = read_run(folder)
            except QueenError:
                continue
            if values.get("project") == str(self.root):
                found.append(values)
        return sorted(found, key=lambda run: float(run["started"]))

    @property
    def rounds(self) -> list[str]:
        """Keys of the rounds of which something was made, in order."""
        keys = [row.key for row in self.rows]
        return [key for key in keys if f"data/sample/{key}" in self.artifacts]

    @property
    def champion(self) -> Standing | None:
        """The champion, if that model was made."""
        return next(
            (r for r in self.rows if r.champion and f"models/{r.key}" in self.artifacts), None
        )
