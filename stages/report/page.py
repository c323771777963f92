"""The page itself: everything gathered, one template, one file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.artifact import writing
from queen.lineage.params import PARAMS_FILE
from queen.lineage.state import State
from queen.lineage.yamlio import YamlError, read_yaml
from stages.declared import in_words
from stages.report import bulk, compared, flow, learning, models, prose, samples
from stages.report.boards import pieces
from stages.report.project import Project, Standing
from stages.shown import between, duration, percent

TEMPLATE = "report.html.jinja"
MADE_IN_ORDER = (
    *("data/games", "data/positions", "data/evalset", "data/questions", "data/seeds"),
    *("data/extract", "data/dedup", "data/label"),
)


@dataclass(frozen=True)
class Card:
    """One number at the top of the page."""

    value: str
    label: str
    note: str = ""


def write_report(root: Path, state: State, rows: Sequence[Standing], out: Path) -> int:
    """Write the page of a project; returns its size in bytes.

    Args:
        rows: the models' standing, as `queen rounds` has it.
        out: written whole or not at all.

    Raises QueenError if nothing was made yet, or the file cannot be written.
    """
    project = Project(root, state, rows, _params(root))
    if not project.artifacts:
        raise QueenError(
            "there is nothing to report yet", where=str(root), remedy="run `queen run` first"
        )
    text = render(project)
    with writing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = out.with_name(f".{out.name}.part")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(out)
    return len(text.encode())


def render(project: Project) -> str:
    """The page as HTML."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(TEMPLATE).render(_view(project))


def _params(root: Path) -> dict[str, Any]:
    try:
        return read_yaml(root / PARAMS_FILE)
    except YamlError:
        return {}


def _view(project: Project) -> dict[str, Any]:
    groups = samples.sampled(project)
    return {
        "project": project.root.name,
        "profile": project.params.get("profile", ""),
        "written": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "champion": project.champion,
        "cards": list(_cards(project)),
        "models": models.models_view(project),
        "prose": prose.prose_view(project),
        "comparisons": compared.compared(project),
        "taught": learning.taught(project),
        "trained": learning.trained(project),
        "rounds": flow.round_flows(project),
        "data_drops": flow.data_drops(project),
        "bulk": bulk.bulk_tables(project),
        "gates": flow.gates(project),
        "costs": flow.costs(project),
        "groups": groups,
        "pieces": pieces() if any(samples.boards_of(groups)) else "",
        "artifacts": sorted(project.artifacts.values(), key=lambda a: _place(a.name)),
        "broken": project.broken,
        "missing": list(_missing(project)),
    }


def _place(name: str) -> tuple[int, str]:
    known = MADE_IN_ORDER.index(name) if name in MADE_IN_ORDER else len(MADE_IN_ORDER)
    return known, name


def _cards(project: Project) -> Iterator[Card]:
    """The numbers worth a first look, as far as there are any."""
    champion = project.champion
    if champion is not None:
        notes = [champion.verdict or "", "† see Models" if in_words(champion.figures) else ""]
        yield Card(champion.key, "champion", ", ".join(filter(None, notes)))
        fnmr = champion.figures.get(f"{models.ALL}.fnmr")
        if fnmr is not None:
            base = models.baseline(project, "uniform", "all")
            note = f"a random move: {percent(base)}" if base is not None else ""
            yield Card(percent(fnmr), "first moves that are no mistake", note)
        truth = champion.figures.get("dev.truth")
        if truth is not None:
            note = f"put elsewhere: {percent(champion.figures.get('dev.truth_shuffled'))}"
            yield Card(percent(truth), "of its prose's claims hold", note)
        if champion.elo is not None:
            yield Card(f"{champion.elo:.0f}", "Elo on the opponents' scale", _elo_note(champion))
    yield from _counts(project)
    spent = sum(float(run.get("wall_s") or 0.0) for run in project.runs)
    if spent:
        yield Card(duration(spent), "of work in all runs", f"{len(project.runs)} runs")


def _elo_note(row: Standing) -> str:
    return f"95 %: {between(row.elo_interval or (None, None))}"


def _counts(project: Project) -> Iterator[Card]:
    wanted = (
        ("data/games", "kept", "games"),
        ("data/positions", "kept", "distinct positions"),
        ("data/seeds", "kept", "seeds kept"),
    )
    for name, count, label in wanted:
        artifact = project.artifacts.get(name)
        if artifact is not None:
            yield Card(f"{artifact.record.counts.get(count, 0):,}", label)


def _missing(project: Project) -> Iterator[tuple[str, str]]:
    """What the page would show further on, and the command that makes it."""
    have = project.artifacts
    if "data/seeds" not in have:
        yield "no seeds yet", "queen run seeds"
    if "models/pawn" not in have:
        yield "no trained model yet", "queen run pawn"
    if not any(name.startswith("data/evaluate/") for name in have):
        yield "nothing evaluated yet", "queen run judge@pawn1"
    if not project.rounds:
        yield "no round has begun", "queen run"
