"""The tables that `queen compare` keeps, and how their figures are told."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queen.lineage.artifact import read_json
from queen.lineage.state import State
from stages.shown import NONE, elo

FOLDER, TABLES = "compare", "tables"
WAYS = {"free": "fnmr", "constrained": "fnmr_constrained", "guided": "fnmr_guided"}


def comparisons(project: Path, state: State) -> list[dict[str, Any]]:
    """The tables kept in a state folder, the newest first, those of the project itself before any.

    Other checkouts that share the folder (ablations, other seeds) have theirs there too.
    """
    found = [read_json(path) for path in sorted((state.root / FOLDER / TABLES).glob("*.json"))]
    newest = sorted(found, key=lambda table: str(table["written"]), reverse=True)
    return sorted(newest, key=lambda table: table["project"] != str(project))


def interval(figures: Mapping[str, float], name: str, sign: str = "") -> str:
    """A figure with its bounds, in percent."""
    value = figures.get(name)
    if value is None:
        return NONE
    low, high = figures.get(f"{name}_low"), figures.get(f"{name}_high")
    return bounded({"value": value, "low": low, "high": high}, sign)


def bounded(value: Mapping[str, Any] | None, sign: str = "") -> str:
    """`49.6 [47.0, 52.1]` in percent; no bounds where there are none."""
    if value is None:
        return NONE
    form = f"{{:{sign}.1f}}"
    told = form.format(100 * value["value"])
    if value["low"] is None or value["high"] is None:
        return told
    return f"{told} [{form.format(100 * value['low'])}, {form.format(100 * value['high'])}]"


def rating(value: Mapping[str, Any] | None) -> str:
    """`1203 (1100 .. 1300)`, an open side infinite."""
    return NONE if value is None else elo(value["elo"], (value["low"], value["high"]))
