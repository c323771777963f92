"""`queen plan`: what would run, what is cached, and what it will cost by the last runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.commands.run import full_target, require_resolved
from queen.lineage.dvcio import Pipeline, Step
from queen.lineage.rounds import read_rounds
from queen.lineage.state import State
from queen.lineage.tracking import last_run


@dataclass(frozen=True)
class Planned:
    """One stage of a plan.

    Attributes:
        name: `stage` or `stage@key`.
        action: `unchanged`, `judged`, `restore` (DVC's run cache has it), `run`, or `run or
            restore` where it depends on what comes out upstream.
        why: its own reasons, or the stale stages upstream.
        seconds, cpu_seconds, peak_mb: of the last run of this stage; None if there was none.
        measured_on: the stage of that run, if it was another round's.
    """

    name: str
    action: str
    why: tuple[str, ...]
    seconds: float | None
    cpu_seconds: float | None
    peak_mb: float | None
    measured_on: str | None

    @property
    def works(self) -> bool:
        return self.action in ("run", "run or restore")


def make_plan(root: Path, state: State, target: str | None) -> list[Planned]:
    """The plan for a target, or for everything; starts and changes nothing."""
    require_resolved(root)
    pipeline = Pipeline(root)
    steps = pipeline.walk(full_target(target, read_rounds(root)))
    return [_planned(pipeline, step, state) for step in steps]


def _planned(pipeline: Pipeline, step: Step, state: State) -> Planned:
    action = _action(pipeline, step)
    stage, _, key = step.name.partition("@")
    found = last_run(state.root, stage, key or None) if action.startswith("run") else None
    cost: dict[str, Any] = found or {}
    same = found is None or (found["key"] or "") in (key, stage)
    return Planned(
        name=step.name,
        action=action,
        why=step.reasons or (f"after {', '.join(step.after)}",) if action != "unchanged" else (),
        seconds=cost.get("wall_s"),
        cpu_seconds=cost.get("cpu_s"),
        peak_mb=cost.get("peak_mb"),
        measured_on=None if same else f"{cost['stage']}@{cost['key']}",
    )


def _action(pipeline: Pipeline, step: Step) -> str:
    if not step.stale and not step.after:
        return "unchanged"
    if step.judged:
        return "judged"
    if step.after:
        return "run or restore"
    return "restore" if pipeline.cached(step.name) else "run"
