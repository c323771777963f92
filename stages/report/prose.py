"""Is the prose about its position? Claims that hold there, beside the same prose elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from stages.comparison.result import interval
from stages.report.charts import series_chart
from stages.report.project import Project, Standing
from stages.shown import share

WAYS = {"as it writes": "dev.", "moves held to legal ones": "dev.guided."}


@dataclass(frozen=True)
class ProseRow:
    """What the prose of one model is worth, by one way of decoding; ready to print."""

    key: str
    way: str
    truth: str
    shuffled: str
    gain: str
    playable: str
    checkable: str
    readable: str
    sentences: str


@dataclass(frozen=True)
class ProseView:
    """What the page shows of the prose; empty where none was checked."""

    rows: tuple[ProseRow, ...]
    chart: Markup


def prose_view(project: Project) -> ProseView:
    """Gather it from the models' evaluations."""
    rows = tuple(row for standing in project.rows for row in _rows(standing))
    told = [standing for standing in project.rows if _said(standing, "dev.")]
    series = {
        "true of it": [row.figures.get("dev.truth") for row in told],
        "true elsewhere": [row.figures.get("dev.truth_shuffled") for row in told],
        "checkable": [row.figures.get("dev.checkable") for row in told],
    }
    title = "Claims of the prose by model"
    chart = series_chart([row.key for row in told], series, title=title) if told else Markup("")
    return ProseView(rows, chart)


def _rows(standing: Standing) -> Iterator[ProseRow]:
    figures = standing.figures
    for way, at in WAYS.items():
        if _said(standing, at):
            playable = (figures.get(f"{at}truth{n}_playable") for n in ("", "_shuffled"))
            yield ProseRow(
                key=standing.key,
                way=way,
                truth=interval(figures, f"{at}truth"),
                shuffled=interval(figures, f"{at}truth_shuffled"),
                gain=interval(figures, f"{at}truth_gain", sign="+"),
                playable=" / ".join(map(share, playable)),
                checkable=interval(figures, f"{at}checkable"),
                readable=share(figures.get(f"{at}readable")),
                sentences=f"{figures[f'{at}sentences']:.1f}",
            )


def _said(standing: Standing, at: str) -> bool:
    return f"{at}sentences" in standing.figures
