"""The bulk data set on the page: how many, of which phase and material, how labels are spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from markupsafe import Markup

from stages.bulk.survey import NAMES, Surveyed, surveyed
from stages.report.charts import Bar, bar_list
from stages.report.project import Project

LOOKED_AT = 1_000_000
WIDE = 150


@dataclass(frozen=True)
class BulkChart:
    """One histogram."""

    title: str
    chart: Markup


@dataclass(frozen=True)
class BulkTable:
    """One artifact of the bulk data set."""

    name: str
    rows: str
    note: str
    licences: str
    charts: tuple[BulkChart, ...]


def bulk_tables(project: Project) -> list[BulkTable]:
    """What there is of it; a large table by row groups at even distances."""
    there = [project.artifacts[name] for name in NAMES if name in project.artifacts]
    return [_table(surveyed(artifact, LOOKED_AT)) for artifact in there]


def _table(found: Surveyed) -> BulkTable:
    record = found.artifact.record
    return BulkTable(
        name=record.name,
        rows=f"{found.total:,}",
        note="" if found.whole else f"{found.survey.rows:,} of them looked at",
        licences=", ".join(f"{k}: {v}" for k, v in sorted(record.licences.items())),
        charts=tuple(_charts(found)),
    )


def _charts(found: Surveyed) -> Iterator[BulkChart]:
    for title, counts in found.survey.histograms.items():
        shares = found.survey.share(title)
        longest = max([*shares.values(), 1e-9])
        bars = [Bar(n, shares[n] / longest, f"{100 * shares[n]:.1f} %") for n in counts]
        yield BulkChart(title, bar_list(bars, title=f"{found.artifact.name}: {title}", wide=WIDE))
