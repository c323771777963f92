"""Where examples come from and where they go: counts and drops of every stage, gates, cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow.parquet as pq
from markupsafe import Markup

from queen.lineage.artifact import Artifact, Record
from queen.lineage.tracking import run_name
from stages.base import ROWS
from stages.report.charts import Bar, bar_list
from stages.report.project import Project
from stages.shown import duration, percent

SHOWN = 8
DATA = ("games", "positions", "evalset", "questions", "seeds", "extract", "dedup", "label")
STEPS = ("sample", "explain", "recurse", "consolidate", "filter")
GATED = {
    "data/games": "games",
    "data/positions": "positions",
    "data/evalset": "evalset",
    "data/questions": "questions",
    "data/seeds": "seeds",
    "data/sample": "roots",
    "data/explain": "explained",
    "data/recurse": "trees",
    "data/consolidate": "consolidated",
    "data/filter": "training",
    "data/extract": "extract",
    "data/dedup": "dedup",
    "data/label": "label",
}
GATE_ERROR = "GateError"


@dataclass(frozen=True)
class Dropped:
    """Why a stage dropped things."""

    stage: str
    total: int
    chart: Markup


@dataclass(frozen=True)
class RoundFlow:
    """A round's way from roots to kept examples."""

    key: str
    funnel: Markup
    drops: tuple[Dropped, ...]
    model_share: str
    sentences: int
    model_sentences: int
    statements: Markup


@dataclass(frozen=True)
class Gate:
    """One data gate: its artifact, how many expectations, and what last failed."""

    artifact: str
    suite: str
    expectations: int
    rows: str
    passed: bool
    failure: str


@dataclass(frozen=True)
class StageCost:
    """The last run of a stage that did its work."""

    stage: str
    wall: str
    cpu: str
    peak: str
    runs: int
    failed: int


def data_drops(project: Project) -> list[Dropped]:
    """Drops of the stages before any round."""
    found = []
    for stage in DATA:
        artifact = project.artifacts.get(f"data/{stage}")
        if artifact is not None and any(artifact.record.drops.values()):
            found.append(_dropped(stage, artifact.record.drops))
    return found


def _dropped(stage: str, drops: Mapping[str, int]) -> Dropped:
    ranked = sorted(((n, r) for r, n in drops.items() if n), key=lambda pair: (-pair[0], pair[1]))
    shown = [(n, reason) for n, reason in ranked[:SHOWN]]
    rest = sum(n for n, _ in ranked[SHOWN:])
    if rest:
        shown.append((rest, f"{len(ranked) - SHOWN} other reasons"))
    most = max(n for n, _ in shown)
    bars = [Bar(_words(reason), n / most, f"{n:,}", kind="drop") for n, reason in shown]
    total = sum(n for n, _ in ranked)
    return Dropped(stage, total, bar_list(bars, title=f"Why {stage} dropped", wide=215))


def _words(reason: str) -> str:
    """`unparsed.illegal_in_line` as `unparsed: illegal in line`."""
    return reason.replace(".", ": ").replace("_", " ")


def round_flows(project: Project) -> list[RoundFlow]:
    """Every round, the newest first."""
    return [_round_flow(project, key) for key in reversed(project.rounds)]


def _round_flow(project: Project, key: str) -> RoundFlow:
    records = {
        step: project.artifacts[f"data/{step}/{key}"].record
        for step in STEPS
        if f"data/{step}/{key}" in project.artifacts
    }
    folded = records.get("consolidate")
    counts = folded.counts if folded else {}
    return RoundFlow(
        key=key,
        funnel=bar_list(list(_funnel(records)), title=f"From roots to kept examples, {key}"),
        drops=tuple(
            _dropped(step, record.drops)
            for step, record in records.items()
            if any(record.drops.values())
        ),
        model_share=percent(folded.figures.get("model_share")) if folded else "–",
        sentences=counts.get("sentences", 0),
        model_sentences=counts.get("model_sentences", 0),
        statements=_statements(counts) if counts.get("sentences") else Markup(""),
    )


def _funnel(records: Mapping[str, Record]) -> Iterator[Bar]:
    """How many there are at each step, each bar as a share of the longest."""
    wanted = (
        ("roots sampled", "sample", "kept"),
        ("candidates explained", "explain", "texts"),
        ("of them read", "explain", "parsed"),
        ("children explained", "recurse", "children"),
        ("of them read", "recurse", "parsed"),
        ("explanations folded", "consolidate", "folded"),
        ("positions among them", "filter", "examples"),
        ("of them with no old line", "filter", "uncompared"),
        ("kept for training", "filter", "kept"),
        ("of them roots", "filter", "kept_roots"),
    )
    found = [
        (label, records[step].counts.get(name, 0))
        for label, step, name in wanted
        if step in records
    ]
    most = max((n for _, n in found), default=0) or 1
    for label, count in found:
        yield Bar(label, count / most, f"{count:,}", minor=label.startswith("of them"))


def _statements(counts: Mapping[str, int]) -> Markup:
    sentences, model = counts["sentences"], counts.get("model_sentences", 0)
    bars = [
        Bar("written by the model", model / sentences, f"{model:,}", kind="model"),
        Bar("engine and rules", 1 - model / sentences, f"{sentences - model:,}", kind="engine"),
    ]
    return bar_list(bars, title="Who wrote the statements")


def gates(project: Project) -> list[Gate]:
    """Every data gate: passed where its artifact was written, failed as the runs say."""
    from stages.gates import SUITES

    failures = _failures(project)
    names = [name for name in project.artifacts if _suite(name)]
    names += [name for name in failures if name not in names and _suite(name)]
    found = []
    for name in names:
        suite = _suite(name) or ""
        artifact = project.artifacts.get(name)
        expectations = len(SUITES[suite].rules) if suite in SUITES else 0
        rows = f"{_rows(artifact):,}" if artifact else "–"
        failure = failures.get(name, "")
        found.append(Gate(name, suite, expectations, rows, artifact is not None, failure))
    return found


def _rows(artifact: Artifact) -> int:
    """Rows of an artifact's table, or of the files that make it up."""
    names = [entry.name for entry in artifact.record.files]
    tables = [ROWS] if ROWS in names else [n for n in names if n.endswith(".parquet")]
    return sum(pq.read_metadata(artifact.file(name)).num_rows for name in tables)


def _suite(name: str) -> str | None:
    return GATED.get("/".join(name.split("/")[:2]))


def _failures(project: Project) -> dict[str, str]:
    """What the last run of a stage failed on, if it was a gate."""
    found: dict[str, str] = {}
    for run in project.runs:
        name = f"data/{run['stage']}" + (f"/{run['key']}" if run["key"] else "")
        error = str(run.get("error", ""))
        if run["status"] == "failed" and error.startswith(GATE_ERROR):
            found[name] = error.partition(": ")[2]
        elif run["status"] == "done":
            found.pop(name, None)
    return found


def costs(project: Project) -> list[StageCost]:
    """The last run of each stage, in order of its first."""
    by_stage: dict[str, list[Mapping[str, object]]] = {}
    for run in project.runs:
        by_stage.setdefault(run_name(run["stage"], run["key"]), []).append(run)
    found = []
    for stage, runs in by_stage.items():
        done = [run for run in runs if run["status"] == "done"]
        failed = sum(run["status"] in ("failed", "killed") for run in runs)
        if done:
            found.append(_cost(stage, done[-1], len(runs), failed))
    return found


def _cost(stage: str, run: Mapping[str, object], runs: int, failed: int) -> StageCost:
    wall, cpu, peak = (float(str(run.get(n) or 0.0)) for n in ("wall_s", "cpu_s", "peak_mb"))
    return StageCost(stage, duration(wall), duration(cpu), f"{peak:,.0f} MB", runs, failed)
