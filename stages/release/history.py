"""What else is known of a model that is released: how it was made, and figures of the test set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from queen.errors import QueenError
from queen.lineage.artifact import RECORD, Artifact, read_record
from queen.lineage.state import State
from queen.lineage.tracking import DONE, read_run, run_folders
from stages.comparison.result import comparisons
from stages.shown import duration


@dataclass(frozen=True)
class History:
    """How a model was made and what it did on the test set.

    Attributes:
        made: a line each: profile and seed, code, cost.
        test: figures of the newest comparison on the test set; empty where it was not scored.
        times: how often the model was scored there.
    """

    made: tuple[str, ...] = ()
    test: Mapping[str, float] | None = None
    times: int = 0


def history(project: Path, state: State, model: Artifact) -> History:
    """Gather it from the state folder; a model made elsewhere has less of it."""
    tested = _tested(project, state, model.content)
    return History(
        made=tuple(_made(project, state, model)),
        test=tested["figures"] if tested else None,
        times=tested["times_scored"] if tested else 0,
    )


def _tested(project: Path, state: State, content: str) -> dict[str, Any] | None:
    for table in comparisons(project, state):
        for model in table["models"]:
            if table["split"] == "test" and model["content"] == content:
                return dict(model)
    return None


def _made(project: Path, state: State, model: Artifact) -> Iterator[str]:
    profile = _profile(project)
    yield f"{f'profile `{profile}`, ' if profile else ''}seed {model.record.seed}"
    lineage = _lineage(project, model)
    runs = [run for run in _runs(project, state) if _outputs(run) & lineage]
    commits = {run["commit"] for run in runs if run.get("commit")}
    if commits:
        yield f"code: {', '.join(f'commit {commit[:12]}' for commit in sorted(commits))}"
    if runs:
        wall, cpu = (sum(float(run.get(n) or 0.0) for run in runs) for n in ("wall_s", "cpu_s"))
        cores = max(int(run.get("cpus") or 1) for run in runs)
        yield (
            f"cost: {duration(wall)} of stages on {cores} cores ({duration(cpu)} of processor "
            "time), from the games to its training"
        )


def _profile(project: Path) -> str:
    file = project / "params.yaml"
    values = yaml.safe_load(file.read_text()) if file.is_file() else {}
    return str((values or {}).get("profile", ""))


def _lineage(project: Path, model: Artifact) -> set[str]:
    """Contents of the model and of all it was made from, as far as that is still here."""
    found, left = {model.content}, list(model.record.inputs)
    while left:
        entry = left.pop()
        if entry.content in found:
            continue
        found.add(entry.content)
        folder = project / entry.name
        if (folder / RECORD).is_file():
            record = read_record(folder)
            left += record.inputs if record.content == entry.content else ()
    return found


def _runs(project: Path, state: State) -> Iterator[dict[str, Any]]:
    for folder in run_folders(state.root):
        try:
            run = read_run(folder)
        except QueenError:
            continue
        if run.get("project") == str(project) and run["status"] in DONE:
            yield run


def _outputs(run: Mapping[str, Any]) -> set[str]:
    return {output["digest"] for output in run.get("outputs", ())}
