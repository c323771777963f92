"""`queen rounds`: a row for each model: what went in and was kept, its verdict, its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from queen.lineage.artifact import ArtifactError, Record, open_artifact
from queen.lineage.lock import lock_folder
from queen.lineage.params import STEPS
from queen.lineage.rounds import models_in_order, read_rounds
from queen.lineage.state import State
from queen.lineage.tracking import DONE, read_run, run_folders
from queen.lineage.verdicts import BASES, Verdicts, mend, read_verdicts
from stages.declared import declarations

PARENTS = {"pawn": None, "pawn1": "pawn"}
SPLIT = "dev.all"


@dataclass(frozen=True)
class Row:
    """Where one model stands.

    Attributes:
        key, parent: the model, and the one it started from.
        model: content hash of its weights' folder, if it is there.
        examples, kept: training examples before and after the filter.
        dropped: how many were dropped, by reason, over all steps of the round.
        figures: of its evaluation on the development positions, and what is declared of the model
            (`stages.declared`).
        elo, elo_interval: fitted rating; an open side is None.
        verdict, reason, difference, interval: as in verdicts.json.
        champion, judged, set_aside: where it stands.
        seconds, cpu_seconds: spent on it in all recorded runs.
    """

    key: str
    parent: str | None
    model: str | None = None
    examples: int | None = None
    kept: int | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    elo: float | None = None
    elo_interval: tuple[float | None, float | None] | None = None
    verdict: str | None = None
    reason: str | None = None
    difference: float | None = None
    interval: tuple[float | None, float | None] | None = None
    champion: bool = False
    judged: bool = False
    set_aside: bool = False
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def standing(root: Path, state: State) -> tuple[list[Row], list[str]]:
    """Every model's row, parents first, and the models whose verdicts had to be mended."""
    lock_folder(root)
    rounds = read_rounds(root)
    order = models_in_order(rounds)
    mended = mend(root, order)
    verdicts = read_verdicts(root)
    costs = _costs(root, state)
    parents = {**PARENTS, **{key: entry.parent for key, entry in rounds.items()}}
    return [_row(root, key, parents[key], verdicts, costs) for key in order], mended


def _row(
    root: Path,
    key: str,
    parent: str | None,
    verdicts: Verdicts,
    costs: Mapping[str, tuple[float, float]],
) -> Row:
    evaluation = _record(root / "data" / "evaluate" / key)
    weights = _record(root / "models" / key)
    filtered = None if key in BASES else _record(root / "data" / "filter" / key)
    figures = dict(evaluation.figures) if evaluation else {}
    figures |= declarations(weights.figures) if weights else {}
    found = verdicts.models.get(key)
    seconds, cpu_seconds = costs.get(key, (0.0, 0.0))
    return Row(
        key=key,
        parent=parent,
        model=weights.content if weights else (found.model if found else None),
        examples=filtered.counts.get("examples") if filtered else None,
        kept=filtered.counts.get("kept") if filtered else None,
        dropped=_dropped(root, key),
        figures=figures,
        elo=figures.get("elo", found.elo if found else None),
        elo_interval=_elo_interval(figures) or (found.elo_interval if found else None),
        verdict=found.verdict if found else None,
        reason=found.reason if found else None,
        difference=found.difference if found else None,
        interval=found.interval if found else None,
        champion=verdicts.champion == key,
        judged=verdicts.judged(key),
        set_aside=found.set_aside if found else False,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
    )


def _elo_interval(figures: Mapping[str, float]) -> tuple[float | None, float | None] | None:
    low, high = figures.get("elo_low"), figures.get("elo_high")
    return None if low is None and high is None else (low, high)


def _dropped(root: Path, key: str) -> dict[str, int]:
    """Drops of every data step of a round, as `step.reason`."""
    drops: dict[str, int] = {}
    for step in STEPS[:-2]:
        record = _record(root / "data" / step / key) if key not in BASES else None
        for reason, count in sorted(record.drops.items()) if record else ():
            if count:
                drops[f"{step}.{reason}"] = count
    return drops


def _record(folder: Path) -> Record | None:
    try:
        return open_artifact(folder).record
    except ArtifactError:
        return None


def _costs(root: Path, state: State) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds by model, over all its runs in this project that came to an end."""
    costs: dict[str, tuple[float, float]] = {}
    for folder in run_folders(state.root):
        values = read_run(folder)
        key = values["key"] or values["stage"]
        if values["project"] == str(root) and values["status"] in (*DONE, "failed"):
            wall, cpu = costs.get(key, (0.0, 0.0))
            wall, cpu = wall + values.get("wall_s", 0.0), cpu + values.get("cpu_s", 0.0)
            costs[key] = (round(wall, 3), round(cpu, 3))
    return costs
