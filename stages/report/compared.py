"""The comparisons that `queen compare` made, ready to print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.comparison.result import WAYS, bounded, comparisons, interval, rating
from stages.report.project import Project
from stages.shown import share


@dataclass(frozen=True)
class Line:
    """One row of a table: its name and its cells."""

    name: str
    cells: tuple[str, ...]
    quiet: bool = False


@dataclass(frozen=True)
class Comparison:
    """One comparison: models with baselines, and differences."""

    title: str
    models: tuple[Line, ...]
    pairs: tuple[Line, ...]
    note: str


def compared(project: Project) -> list[Comparison]:
    """Every comparison of this project, then those of checkouts that share its state folder."""
    return [_comparison(project, table) for table in comparisons(project.root, project.state)]


def _comparison(project: Project, table: Mapping[str, Any]) -> Comparison:
    names = " · ".join(model["key"] for model in table["models"])
    where = "" if _own(project, table) else f"In {Path(table['project']).name}: "
    return Comparison(
        title=f"{where}{names}: {table['positions']:,} positions of the split {table['split']}",
        models=(*_models(table), *_baselines(table)),
        pairs=tuple(_pairs(table)),
        note="; ".join(_notes(project, table)),
    )


def _own(project: Project, table: Mapping[str, Any]) -> bool:
    return bool(table["project"] == str(project.root))


def _models(table: Mapping[str, Any]) -> Iterator[Line]:
    split = table["split"]
    for model in table["models"]:
        figures = model["figures"]
        moves = (interval(figures, f"{split}.all.{name}") for name in WAYS.values())
        lines = " / ".join(share(figures.get(f"{split}.all.nmr{n}")) for n in (1, 3, 5))
        form = (share(figures.get(f"{split}.all.{n}")) for n in ("legal", "parseable", "whole"))
        prose = [
            interval(figures, f"{split}.{n}") for n in ("checkable", "truth", "truth_shuffled")
        ]
        prose.append(interval(figures, f"{split}.truth_gain", sign="+"))
        yield Line(model["key"], (*moves, lines, *form, *prose, rating(model["rating"])))


def _baselines(table: Mapping[str, Any]) -> Iterator[Line]:
    """They play legal moves alone, so theirs is the constrained column."""
    for base in table["baselines"]:
        yield Line(base["name"], ("", bounded(base.get("all")), *[""] * 10), quiet=True)


def _pairs(table: Mapping[str, Any]) -> Iterator[Line]:
    for pair in table["pairs"]:
        cells = tuple(bounded(pair.get(way), sign="+") for way in WAYS)
        yield Line(f"{pair['first']} – {pair['second']}", cells)


def _notes(project: Project, table: Mapping[str, Any]) -> Iterator[str]:
    """How often each model was scored there, and which are no longer what they were."""
    times = (f"{model['key']} {model['times_scored']}×" for model in table["models"])
    yield f"scored on this split: {', '.join(times)}"
    for model in table["models"] if _own(project, table) else ():
        here = project.artifacts.get(f"models/{model['key']}")
        if here is None or here.content != model["content"]:
            yield f"{model['key']} is another model now"
    evalset = project.artifacts.get("data/evalset")
    if evalset is not None and evalset.content != table["evalset"]:
        yield "on other positions than this project's now"
    yield f"written {table['written']}"
