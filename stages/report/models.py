"""The models of a project over time: strength with intervals, baselines, verdicts, cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from queen.lineage.artifact import Artifact
from stages.declared import in_words
from stages.report.charts import Point, interval_chart, series_chart
from stages.report.project import Project, Standing
from stages.shown import duration, elo, percent, share

ALL = "dev.all"
KINDS = {"better": "better", "worse": "worse", "no evidence": "even"}
SHARES = {
    "FNMR": "fnmr",
    "guided": "fnmr_guided",
    "legal only": "fnmr_constrained",
    "NMR@1": "nmr1",
    "NMR@3": "nmr3",
    "NMR@5": "nmr5",
}
FORM = {
    "legal": "legal",
    "of the right form": "parseable",
    "sound throughout": "whole",
    "independent": "independence",
}


@dataclass(frozen=True)
class ModelRow:
    """One line of the table of models, ready to print."""

    key: str
    parent: str
    examples: str
    fnmr: str
    bounds: str
    general: str
    tactical: str
    nmr: str
    constrained: str
    constrained_bounds: str
    guided: str
    guided_bounds: str
    legal: str
    elo: str
    verdict: str
    kind: str
    reason: str
    champion: bool
    set_aside: bool
    cost: str
    declared: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelsView:
    """What the page shows of all models; charts are empty where there is nothing to draw."""

    rows: tuple[ModelRow, ...]
    baselines: tuple[tuple[str, str, str, str], ...]
    fnmr: Markup
    shares: Markup
    form: Markup
    elo: Markup


def models_view(project: Project) -> ModelsView:
    """Gather it."""
    rows = [row for row in project.rows if row.figures or row.verdict or _made(project, row)]
    judged = [row for row in rows if f"{ALL}.fnmr" in row.figures]
    return ModelsView(
        rows=tuple(map(_model_row, rows)),
        baselines=tuple(_baseline_rows(project)),
        fnmr=_fnmr_chart(project, judged),
        shares=_series(judged, SHARES, "Share of development positions by model"),
        form=_series(judged, FORM, "Form of the answers by model"),
        elo=_elo_chart(project, [row for row in rows if row.elo is not None]),
    )


def _made(project: Project, row: Standing) -> bool:
    return f"models/{row.key}" in project.artifacts


def _model_row(row: Standing) -> ModelRow:
    figures = row.figures
    return ModelRow(
        key=row.key,
        parent=row.parent or "–",
        examples="–" if row.examples is None else f"{row.kept} of {row.examples}",
        fnmr=percent(figures.get(f"{ALL}.fnmr")),
        bounds=_bounds(figures, f"{ALL}.fnmr"),
        general=percent(figures.get("dev.general.fnmr")),
        tactical=percent(figures.get("dev.tactical.fnmr")),
        nmr=" / ".join(share(figures.get(f"{ALL}.nmr{n}")) for n in (1, 3, 5)),
        constrained=percent(figures.get(f"{ALL}.fnmr_constrained")),
        constrained_bounds=_bounds(figures, f"{ALL}.fnmr_constrained"),
        guided=percent(figures.get(f"{ALL}.fnmr_guided")),
        guided_bounds=_bounds(figures, f"{ALL}.fnmr_guided"),
        legal=percent(figures.get(f"{ALL}.legal")),
        elo=elo(row.elo, row.elo_interval),
        verdict=row.verdict or "–",
        kind=KINDS.get(row.verdict or "", "base"),
        reason=row.reason or "",
        champion=row.champion,
        set_aside=row.set_aside,
        cost=duration(row.seconds) if row.seconds else "–",
        declared=tuple(in_words(figures)),
    )


def _bounds(figures: Mapping[str, float], name: str) -> str:
    low, high = figures.get(f"{name}_low"), figures.get(f"{name}_high")
    return "" if low is None or high is None else f"[{100 * low:.1f}, {100 * high:.1f}]"


def _fnmr_chart(project: Project, rows: list[Standing]) -> Markup:
    points = [
        Point(
            label=row.key,
            value=row.figures[f"{ALL}.fnmr"],
            low=row.figures.get(f"{ALL}.fnmr_low"),
            high=row.figures.get(f"{ALL}.fnmr_high"),
            kind=KINDS.get(row.verdict or "", "base"),
            parent=row.parent,
            starred=row.champion,
        )
        for row in rows
    ]
    names = {"uniform": "random move", "encoder": "encoder alone"}
    references = [
        (name, value)
        for who, name in names.items()
        if (value := baseline(project, who, "all")) is not None
    ]
    title = "Share of development positions whose first move is no mistake"
    return interval_chart(points, references, share=True, title=title) if points else Markup("")


def baseline(project: Project, who: str, kind: str) -> float | None:
    """FNMR of a player without thought on the development positions of a kind, or of all."""
    artifact = project.artifacts.get("data/evalset")
    if artifact is None:
        return None
    kinds = ("general", "tactical") if kind == "all" else (kind,)
    known = [
        (_baseline(artifact, who, k), artifact.record.counts.get(f"dev.{k}", 0)) for k in kinds
    ]
    weighted = [(value, n) for value, n in known if value is not None and n]
    total = sum(n for _, n in weighted)
    return sum(value * n for value, n in weighted) / total if total else None


def _baseline(evalset: Artifact, who: str, kind: str) -> float | None:
    return evalset.record.figures.get(f"dev.{kind}.{who}.fnmr")


def _baseline_rows(project: Project) -> Iterator[tuple[str, str, str, str]]:
    names = {"uniform": "a random legal move", "encoder": "the encoder's own policy"}
    for who, name in names.items():
        shares = [percent(baseline(project, who, kind)) for kind in ("all", "general", "tactical")]
        if shares != ["–"] * 3:
            yield (name, *shares)  # type: ignore[misc]


def _series(rows: list[Standing], names: Mapping[str, str], title: str) -> Markup:
    if not rows:
        return Markup("")
    series = {
        words: [row.figures.get(f"{ALL}.{name}") for row in rows] for words, name in names.items()
    }
    return series_chart([row.key for row in rows], series, title=title)


def _elo_chart(project: Project, rows: list[Standing]) -> Markup:
    points = []
    for row in rows:
        low, high = row.elo_interval or (None, None)
        assert row.elo is not None
        kind = KINDS.get(row.verdict or "", "base")
        points.append(Point(row.key, row.elo, low, high, kind, row.parent, row.champion))
    if not points:
        return Markup("")
    title = "Elo by model, on the scale of the opponents"
    return interval_chart(points, _opponents(project), share=False, title=title)


def _opponents(project: Project) -> list[tuple[str, float]]:
    """The opponents' nominal ratings, from any evaluation."""
    for row in reversed(project.rows):
        artifact = project.artifacts.get(f"data/evaluate/{row.key}")
        if artifact is not None:
            opponents = artifact.record.params.get("opponents", {})
            return [(name, float(one["rating"])) for name, one in opponents.items()]
    return []
