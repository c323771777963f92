"""Tables on the terminal for what the commands find."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from queen.commands.health import Finding
from queen.commands.plan import Planned
from queen.commands.standing import SPLIT, Row
from stages.declared import in_words
from stages.shown import duration, elo

COLOURS = {"ok": "green", "note": "yellow", "missing": "red", "better": "green", "worse": "red"}


def print_rows(rows: Sequence[Row]) -> None:
    """The rounds, one row each, then why examples were dropped and each verdict's reason."""
    table = Table(box=None, header_style="bold")
    for name in ("model", "parent", "kept", "FNMR", "NMR@1/3/5", "Elo", "verdict", "cost"):
        table.add_column(name, justify="right" if name in ("kept", "FNMR", "cost") else "left")
    for row in rows:
        table.add_row(
            f"{row.key} *" if row.champion else row.key,
            row.parent or "-",
            f"{row.kept}/{row.examples}" if row.examples is not None else "-",
            _share(row, "fnmr"),
            "/".join(_share(row, f"nmr{n}") for n in (1, 3, 5)),
            elo(row.elo, row.elo_interval or (None, None)) if row.elo is not None else "-",
            _coloured(row),
            duration(row.seconds) if row.seconds else "-",
        )
    console = Console()
    console.print(table)
    console.print("* champion", style="dim")
    for row in rows:
        if row.dropped:
            reasons = ", ".join(f"{name} {count}" for name, count in row.dropped.items())
            console.print(f"{row.key} dropped: {reasons}", style="dim", markup=False)
        if row.reason:
            console.print(f"{row.key}: {row.verdict}: {row.reason}", markup=False)
        for words in in_words(row.figures):
            console.print(f"{row.key}, not by the published recipe: it {words}", markup=False)


def _share(row: Row, name: str) -> str:
    value = row.figures.get(f"{SPLIT}.{name}")
    return "-" if value is None else f"{100 * value:.1f}"


def _coloured(row: Row) -> str:
    if row.verdict is None:
        return "-"
    colour = COLOURS.get(row.verdict, "default")
    aside = " (set aside)" if row.set_aside else ""
    return f"[{colour}]{row.verdict}[/{colour}]{aside}"


def print_plan(planned: Sequence[Planned]) -> None:
    """What would run, and the sum of what it cost last time."""
    table = Table(box=None, header_style="bold")
    for name in ("stage", "action", "last took", "CPU", "peak", "why"):
        table.add_column(name, overflow="fold")
    for row in planned:
        table.add_row(
            row.name,
            row.action,
            _cost(row),
            duration(row.cpu_seconds) if row.cpu_seconds is not None else "-",
            f"{row.peak_mb:.0f} MB" if row.peak_mb is not None else "-",
            "; ".join(row.why[:3]) + (" ..." if len(row.why) > 3 else ""),
        )
    console = Console()
    console.print(table)
    working = [row for row in planned if row.works]
    known = [row.seconds for row in working if row.seconds is not None]
    unknown = len(working) - len(known)
    more = f", and {unknown} that have not run yet" if unknown else ""
    cost = duration(sum(known))
    console.print(
        f"{len(working)} of {len(planned)} stages would run; by the last runs {cost}{more}"
    )


def _cost(row: Planned) -> str:
    if row.seconds is None:
        return "-"
    other = f" ({row.measured_on})" if row.measured_on else ""
    return f"{duration(row.seconds)}{other}"


def print_findings(findings: Sequence[Finding]) -> None:
    """What doctor found."""
    table = Table(box=None, header_style="bold")
    for name in ("", "what", "found", "how to get it"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        colour = COLOURS[finding.state]
        mark = f"[{colour}]{finding.state}[/{colour}]"
        table.add_row(mark, finding.what, finding.detail, finding.remedy)
    Console().print(table)
