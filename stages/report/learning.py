"""What was learnt and how: accuracy by question type, training curves, gates of the bridge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from queen.language.questions.bank import EXPERT_MOVE
from stages.report.charts import Bar, Curve, bar_list, curve_chart
from stages.report.project import Project
from stages.shown import percent

TRAINING = "training.json"
STAGES = {
    "static-current": "The board now",
    "dynamic-current": "Moves and interactions now",
    "static-future": "The board after a line",
    "dynamic-future": "Moves and interactions after a line",
}


@dataclass(frozen=True)
class Taught:
    """One curriculum stage: its name, macro averages, bars by type, and by kind of answer too.

    `ours` says of a question that the published recipe has not that it is in no average.
    """

    name: str
    title: str
    accuracy: str
    majority: str
    asked: int
    chart: Markup
    subsets: Markup
    ours: Markup


@dataclass(frozen=True)
class Trained:
    """One model's training."""

    key: str
    chart: Markup
    steps: int
    tokens: int
    final: str
    examples: str
    gates: str


def taught(project: Project) -> list[Taught]:
    """Held-out accuracy by question type, of `pawn`; empty if it was not trained yet."""
    told = project.json("models/pawn", TRAINING) or {}
    heldout = told.get("heldout")
    if not heldout:
        return []
    names = [
        *(n for n in STAGES if n in heldout["types"]),
        *sorted(set(heldout["types"]) - {*STAGES}),
    ]
    return [_taught(name, heldout) for name in names]


def _taught(name: str, heldout: Mapping[str, Any]) -> Taught:
    types = heldout["types"][name]
    subsets = heldout.get("subsets", {}).get(name, {})
    whole = [b for kind in sorted(types) for b in _bars(kind, types[kind], subsets.get(kind))]
    apart = {kind: found for kind, found in subsets.items() if "occupied" in found}
    bars = [b for kind in sorted(types) for b in _bars(kind, types[kind], apart.get(kind))]
    shares = [(t["accuracy"], t["majority"]) for k, t in types.items() if k != EXPERT_MOVE]
    right, majority = (sum(column) / len(shares) for column in zip(*shares, strict=True))
    return Taught(
        name=name,
        title=STAGES.get(name, name),
        accuracy=percent(right),
        majority=percent(majority),
        asked=sum(int(t["asked"]) for t in types.values()),
        chart=bar_list(bars, title=f"Held-out accuracy by question type, {name}"),
        subsets=bar_list(whole, title=f"By kind of answer, {name}") if subsets else Markup(""),
        ours=Markup("; “expert move” is a question of ours and not in the mean")
        if EXPERT_MOVE in types
        else Markup(""),
    )


def _bars(
    kind: str, tally: Mapping[str, float], subsets: Mapping[str, Any] | None
) -> Iterator[Bar]:
    yield _bar(kind.replace("_", " ").replace("-", " "), tally, minor=False)
    for name in sorted(subsets or {}):
        yield _bar(name, (subsets or {})[name], minor=True)


def _bar(label: str, tally: Mapping[str, float], *, minor: bool) -> Bar:
    below = "below" if tally["accuracy"] < tally["majority"] else ""
    text = f"{percent(tally['accuracy'])} of {tally['asked']:.0f}"
    return Bar(label, tally["accuracy"], text, tally["majority"], minor, below)


def trained(project: Project) -> list[Trained]:
    """The training of every model that is here, parents first."""
    found = []
    for row in project.rows:
        told = project.json(f"models/{row.key}", TRAINING)
        if told and told.get("phases"):
            found.append(_trained(row.key, told))
    return found


def _trained(key: str, told: Mapping[str, Any]) -> Trained:
    phases = told["phases"]
    many = len(phases) > 1
    curves = [
        Curve(str(n) if many else p["phase"], p.get("losses", []), int(p["steps"]))
        for n, p in enumerate(phases, start=1)
    ]
    return Trained(
        key=key,
        chart=curve_chart(curves, title=f"Training loss of {key}"),
        steps=sum(int(p["steps"]) for p in phases),
        tokens=sum(int(p["tokens"]) for p in phases),
        final=", ".join(
            f"{f'{n} ' if many else ''}{p['phase']} ends at {p['final_loss']:.3f}"
            for n, p in enumerate(phases, start=1)
        ),
        examples="; ".join(filter(None, map(_examples, phases))),
        gates=_gates(told.get("gates")),
    )


def _examples(phase: Mapping[str, Any]) -> str:
    parts = [f"{name} {count}" for name, count in sorted(phase.get("examples", {}).items())]
    lost = sum(sum(r.values()) for r in phase.get("rejected", {}).values())
    return ", ".join(parts) + (f" ({lost} too long)" if lost else "")


def _gates(gates: Any) -> str:
    """The gates' values in the model's order."""
    return ", ".join(f"{value:+.3f}" for value in _numbers(gates))


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield float(value)
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _numbers(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _numbers(one)
