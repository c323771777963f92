"""Figures of an evaluation from its rows: shares with intervals by bootstrap over games."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from queen.evaluation.intervals import Interval, cluster_bootstrap
from queen.evaluation.truth import ProseCount, truth_of
from stages.answers import FREE, GUIDED, PLIES, PROSE, SHUFFLE

Row = Mapping[str, Any]
KINDS = ("general", "tactical", "all")
COLUMNS = {
    "fnmr": "first_ok",
    "fnmr_constrained": "constrained_ok",
    "parseable": "parseable",
    "whole": "whole",
    "legal": "legal",
    "independence": "encoder_agrees",
    **{f"nmr{n}": f"line_ok_{n}" for n in PLIES},
}
GUIDED_COLUMNS = {
    "fnmr_guided": "guided_ok",
    "parseable_guided": "guided_parseable",
    "whole_guided": "guided_whole",
    "legal_guided": "guided_legal",
    **{f"nmr{n}_guided": f"guided_line_ok_{n}" for n in PLIES},
}
BOUNDED = ("fnmr", "fnmr_constrained", "fnmr_guided")


def shares(rows: Sequence[Row], splits: Sequence[str], bootstrap: int) -> dict[str, float]:
    """FNMR, NMR and form by split and kind, truth of the prose by split; free and guided.

    Args:
        rows: of `stages.answers`.
        bootstrap: samples.
    """
    figures: dict[str, float] = {}
    for split in splits:
        here = [row for row in rows if row["split"] == split]
        for kind in KINDS:
            part = [r for r in here if r["judged"] and kind in (r["kind"], "all")]
            if part:
                named = _part(part, bootstrap).items()
                figures.update({f"{split}.{kind}.{k}": v for k, v in named})
        figures.update({f"{split}.{k}": v for k, v in _truth(here, FREE, bootstrap)})
        guided = [row for row in here if row["guided_text"] is not None]
        figures.update({f"{split}.guided.{k}": v for k, v in _truth(guided, GUIDED, bootstrap)})
    return figures


def _part(rows: Sequence[Row], bootstrap: int) -> dict[str, float]:
    found = _means(rows, COLUMNS, bootstrap)
    found["independence"] = 1.0 - found["independence"]
    held = [row for row in rows if row["guided_ok"] is not None]
    if held:
        found.update(_means(held, GUIDED_COLUMNS, bootstrap))
    return {name: round(value, 6) for name, value in found.items()}


def _means(rows: Sequence[Row], columns: Mapping[str, str], bootstrap: int) -> dict[str, float]:
    games = [row["game_id"] for row in rows]
    found: dict[str, float] = {}
    for name, column in columns.items():
        values = [float(bool(row[column])) for row in rows]
        found[name] = sum(values) / len(values)
        if name in BOUNDED:
            interval = cluster_bootstrap(values, games, seed=0, samples=bootstrap)
            found.update(_bounds(name, interval))
    return found


def _bounds(name: str, interval: Interval) -> dict[str, float]:
    """The bounds, where there are any: one game alone gives none."""
    named = {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return {key: value for key, value in named.items() if math.isfinite(value)}


def _truth(rows: Sequence[Row], way: str, bootstrap: int) -> Iterator[tuple[str, float]]:
    """The figures of the prose; none where nothing was written."""
    counts = [prose_count(row, way) for row in rows]
    sentences = sum(count.sentences for count in counts)
    if not sentences:
        return
    yield "sentences", round(sentences / len(rows), 6)
    yield "readable", round(sum(count.readable for count in counts) / sentences, 6)
    games = [row["game_id"] for row in rows]
    found = truth_of(counts, games, seed=SHUFFLE, samples=bootstrap)
    for name, interval in vars(found).items():
        if interval is not None:
            bounds = _bounds(name, interval)
            for key, value in {name: interval.estimate, **bounds}.items():
                yield key, round(value, 6)


def prose_count(row: Row, way: str) -> ProseCount:
    """What a row's prose says, counted."""
    return ProseCount(**{name: row[f"{way}prose_{name}"] for name in PROSE})
