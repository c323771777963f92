"""Where a project keeps what it can rebuild: caches, shards, run records, servers' files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from queen.errors import QueenError


@dataclass(frozen=True)
class State:
    """The state folder (`QUEEN_STATE`, else `.state` in the project); nothing in it is in git."""

    root: Path

    @property
    def shards(self) -> Path:
        return self.root / "shards"

    @property
    def scratch(self) -> Path:
        """Resumable work in progress, one folder for each shard key."""
        return self.root / "scratch"

    @property
    def searches(self) -> Path:
        """The engine cache (SQLite)."""
        return self.root / "searches.sqlite"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def downloads(self) -> Path:
        return self.root / "downloads"


def find_project(start: Path | None = None) -> Path:
    """The project's root: the nearest folder upwards that holds dvc.yaml and params/."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "dvc.yaml").is_file() and (folder / "params").is_dir():
            return folder
    raise QueenError(
        "no Queen project here or above",
        where=str(here),
        remedy="change into the project's folder (the one that holds dvc.yaml and params/)",
    )


def open_state(project: Path) -> State:
    """The state folder of a project, made if it is missing."""
    named = os.environ.get("QUEEN_STATE")
    root = Path(named) if named else project / ".state"
    if named and not root.is_absolute():
        raise QueenError(
            f"QUEEN_STATE is {named!r}, not an absolute path",
            where="environment",
            remedy="give an absolute path, so that every checkout means the same folder",
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise QueenError(
            f"cannot make the state folder: {error.strerror}",
            where=str(root),
            remedy="point QUEEN_STATE to a folder that may be written",
        ) from error
    return State(root)
