"""`queen positions`: what the bulk data set holds, and its export."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from queen.commands.common import AsJson, project

if TYPE_CHECKING:
    from rich.console import Console

    from stages.bulk.survey import Surveyed

app = typer.Typer(help="The bulk data set of positions: look at it, export it.")
BAR = 20


@app.command()
def stats(
    artifact: Annotated[
        str | None,
        typer.Argument(help="extract, dedup, label or an artifact's folder; all if left out"),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=0, help="look at about so many rows, evenly chosen; 0 for all")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """How many positions, from where, of which phase and material, and how labels are spread."""
    from stages.bulk.survey import artifacts_of, surveyed

    found = [surveyed(each, rows) for each in artifacts_of(project(), artifact)]
    if as_json:
        print(json.dumps([each.as_dict() for each in found], indent=2))
        return
    from rich.console import Console

    for each in found:
        show(each, Console())


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="a new folder")],
    label_source: Annotated[
        str, typer.Option(help="whose labels: engine (with the rules' own) or dump")
    ] = "engine",
) -> None:
    """Write the labelled positions as parquet shards with a data card, for `datasets`."""
    from stages.bulk.export import export_positions

    done = export_positions(project(), folder, label_source)
    print(f"{folder}: {done.rows:,} positions in {done.shards} shards, with README.md")


def register(root: typer.Typer) -> None:
    """Add the group of commands."""
    root.add_typer(app, name="positions")


def show(found: Surveyed, console: Console) -> None:
    """One artifact: its counts, where it is from, a table for each histogram."""
    record = found.artifact.record
    looked = "" if found.whole else f", {found.survey.rows:,} of them looked at"
    console.print(f"{record.name}: {found.total:,} rows{looked}", style="bold", highlight=False)
    lines = {
        "from": ", ".join(entry.name for entry in record.inputs),
        "licences": ", ".join(f"{k}: {v}" for k, v in sorted(record.licences.items())),
        "counts": _counts(record.counts),
        "left out": _counts(record.drops),
    }
    for name, text in lines.items():
        if text:
            console.print(f"{name:>9}  {text}", markup=False, highlight=False, soft_wrap=True)
    for title in found.survey.histograms:
        _table(found, title, console)
    console.print()


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _table(found: Surveyed, title: str, console: Console) -> None:
    from rich.table import Table

    table = Table(box=None, header_style="bold", show_edge=False, padding=(0, 1))
    table.add_column(title, min_width=26)
    table.add_column("rows", justify="right", min_width=12)
    table.add_column("share", justify="right")
    table.add_column("")
    counts, shares = found.survey.histograms[title], found.survey.share(title)
    longest = max([*shares.values(), 1e-9])
    for name, count in counts.items():
        bar = "█" * round(BAR * shares[name] / longest)
        table.add_row(name, f"{count:,}", f"{100 * shares[name]:.1f} %", bar)
    console.print()
    console.print(table)
