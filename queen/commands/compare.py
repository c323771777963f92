"""`queen compare`: models beside one another on a split, with paired differences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from queen.commands.common import here
from queen.errors import QueenError

if TYPE_CHECKING:
    from rich.table import Table


class Split(StrEnum):
    """A split of the evaluation set."""

    DEV = "dev"
    TEST = "test"


def compare(
    models: Annotated[list[str], typer.Argument(help="names in models/, like pawn1 r1 r2")],
    split: Annotated[Split, typer.Option(help="positions to score them on")] = Split.DEV,
    games: Annotated[int, typer.Option(min=0, help="games for each, for Elo")] = 0,
    pair: Annotated[
        list[str] | None, typer.Option(help="r2:pawn1plus, r2 less pawn1plus; may be repeated")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="plain JSON, all figures")] = False,
) -> None:
    """Score models on a split and compare them; each is scored once and what is done is kept.

    Differences are paired, position by position: of each model and the one named before it, and
    of every --pair.
    """
    from stages.comparison.compare import asked_for
    from stages.comparison.compare import compare as run

    root, state = here()
    asked = asked_for(models, read_pairs(pair or []), split.value, games)
    found = run(root, state, asked)
    if as_json:
        print(json.dumps(found, indent=2))
        return
    from rich.console import Console

    console = Console()
    for table in tables(found):
        console.print(table)
    console.print(legend(found), style="dim", markup=False)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)


def read_pairs(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Both models of each `FIRST:SECOND`. Raises QueenError for what is no pair."""
    named = [tuple(text.split(":")) for text in texts]
    for text, parts in zip(texts, named, strict=True):
        if len(parts) != 2 or not all(parts) or parts[0] == parts[1]:
            raise QueenError(f"{text!r} is no pair", where="--pair", remedy="say --pair r2:pawn1")
    return [(first, second) for first, second in named]


def tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """First moves, form and strength, prose, and differences, in percent."""
    yield _first_moves(found)
    yield _form(found)
    yield _prose(found)
    if found["pairs"]:
        yield _pairs(found)


def legend(found: Mapping[str, Any]) -> str:
    """What the words in the tables mean."""
    return (
        f"{found['positions']} positions of the split {found['split']}; percent, 95 % intervals by "
        "bootstrap over games. free: as the model writes; constrained: its likeliest legal move; "
        "guided: texts whose moves are held to legal ones. shuffled: the same sentences put to "
        "another position, where moves that cannot be played are false; of playable: among claims "
        "that can be put there at all. scored: how often this model has been scored on this split."
    )


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    for name in columns:
        table.add_column(name, justify="left" if name in ("model", "pair") else "right")
    return table


def _first_moves(found: Mapping[str, Any]) -> Table:
    from stages.comparison.result import WAYS, bounded, interval

    table = _table("first move no mistake (FNMR)", "model", *WAYS)
    split = found["split"]
    for model in found["models"]:
        figures = model["figures"]
        cells = [interval(figures, f"{split}.all.{name}") for name in WAYS.values()]
        table.add_row(model["key"], *cells)
    for base in found["baselines"]:
        table.add_row(base["name"], "-", bounded(base.get("all")), "-", style="dim")
    return table


def _form(found: Mapping[str, Any]) -> Table:
    from stages.comparison.result import rating
    from stages.shown import share

    names = ("legal", "parseable", "whole")
    table = _table("answers, free", "model", "NMR@1/3/5", *names, "Elo", "scored")
    split = found["split"]
    for model in found["models"]:
        figures = model["figures"]
        lines = "/".join(share(figures.get(f"{split}.all.nmr{n}")) for n in (1, 3, 5))
        shares = [share(figures.get(f"{split}.all.{name}")) for name in names]
        times = f"{model['times_scored']}x"
        table.add_row(model["key"], lines, *shares, rating(model["rating"]), times)
    return table


def _prose(found: Mapping[str, Any]) -> Table:
    from stages.comparison.result import interval
    from stages.shown import share

    table = _table(
        "claims of the prose that hold",
        *("model", "truth", "shuffled", "difference", "of playable", "checkable"),
    )
    split = found["split"]
    for model in found["models"]:
        for way in ("", "guided."):
            figures = model["figures"]
            at = f"{split}.{way}"
            cells = [interval(figures, f"{at}{n}") for n in ("truth", "truth_shuffled")]
            playable = "/".join(
                share(figures.get(f"{at}{n}"))
                for n in ("truth_playable", "truth_shuffled_playable")
            )
            name = f"{model['key']}, {'guided' if way else 'free'}"
            gain = interval(figures, f"{at}truth_gain", sign="+")
            checkable = share(figures.get(f"{at}checkable"))
            table.add_row(name, *cells, gain, playable, checkable)
    return table


def _pairs(found: Mapping[str, Any]) -> Table:
    from stages.comparison.result import WAYS, bounded

    table = _table("paired differences in FNMR, points", "pair", *WAYS)
    for pair in found["pairs"]:
        cells = [bounded(pair.get(way), sign="+") for way in WAYS]
        table.add_row(f"{pair['first']} - {pair['second']}", *cells)
    return table
