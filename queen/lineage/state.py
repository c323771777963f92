"""Where a project keeps what it can rebuild: caches, shards, run records, servers' files."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from queen.errors import QueenError
from queen.lineage.artifact import read_json, write_json


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
    def answers(self) -> Path:
        """Answers of language models behind an API (SQLite): paid for, so never cleared."""
        return self.root / "answers.sqlite"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def downloads(self) -> Path:
        return self.root / "downloads"

    @property
    def projects(self) -> Path:
        """One small file for each project that shares this folder."""
        return self.root / "projects"


def is_project(folder: Path) -> bool:
    """Whether a folder is the root of a project."""
    return (folder / "dvc.yaml").is_file() and (folder / "params").is_dir()


def find_project(start: Path | None = None) -> Path:
    """The project's root: the nearest folder upwards that holds dvc.yaml and params/."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if is_project(folder):
            return folder
    raise QueenError(
        "no Queen project here or above",
        where=str(here),
        remedy="change into the project's folder (the one that holds dvc.yaml and params/)",
    )


def open_state(project: Path) -> State:
    """The state folder of a project, made if it is missing.

    A project whose state lies outside it is written down there: what several share may be
    cleared only of what none of them needs.
    """
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
    state = State(root)
    # Where nothing can be written, nothing of this project's gets in.
    with contextlib.suppress(OSError):
        _write_down(state, project.resolve())
    return state


def _write_down(state: State, project: Path) -> None:
    if state.root.resolve().is_relative_to(project) or not is_project(project):
        return
    file = state.projects / f"{hashlib.sha256(str(project).encode()).hexdigest()[:16]}.json"
    if not file.is_file():
        state.projects.mkdir(exist_ok=True)
        write_json(file, {"project": str(project)})


def sharers(state: State) -> tuple[list[Path], list[Path]]:
    """The projects known to share a state folder: those that are there, and those that are not.

    The project that the folder lies in counts too.
    """
    files = sorted(state.projects.glob("*.json"))
    found = {Path(read_json(file)["project"]) for file in files}
    owner = state.root.resolve().parent
    found |= {owner} if is_project(owner) else set()
    here = sorted(project for project in found if is_project(project))
    return here, sorted(found - set(here))
