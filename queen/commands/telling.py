"""`queen explain`, `queen report` and `queen audit`: what the project can tell of itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from queen.commands.common import AsJson, here, project


def explain(
    fen: Annotated[str, typer.Argument(help="the position as FEN, or startpos")],
    moves: Annotated[
        str, typer.Option(help='moves played from there, "e2e4 e7e5" or "e4 e5"')
    ] = "",
    model: Annotated[
        str | None, typer.Option(help="a model's key or folder; the champion if left out")
    ] = None,
    as_json: AsJson = False,
    free: Annotated[
        bool, typer.Option("--free", help="decode without holding its moves to legal ones")
    ] = False,
    max_tokens: Annotated[int, typer.Option(min=16, help="longest text, in tokens")] = 256,
) -> None:
    """Let a model explain a position: best move, line, candidates, prose, the board drawn.

    Status 3 if not even a move could be read from the model's text.
    """
    from rich.console import Console

    from stages.play import explaining

    root = project()
    position = explaining.read_position(fen, moves)
    chosen = explaining.choose_model(root, model)
    told = explaining.explain_with(root, chosen, position, free=free, tokens=max_tokens)
    if as_json:
        _print_json(explaining.as_json(told, chosen))
    else:
        explaining.show(told, chosen, Console())
    raise typer.Exit(0 if told.best else 3)


def report(
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("report.html"),
) -> None:
    """Write one self-contained HTML page: rounds, accuracy, drops, examples with boards."""
    from queen.commands.standing import standing
    from stages.report.page import write_report

    root, state = here()
    rows, _ = standing(root, state)
    size = write_report(root, state, rows, out)
    print(f"{out} ({size / 2**20:.1f} MB)")


def audit(
    key: Annotated[str, typer.Argument(help="a round, pawn or pawn1")],
    example: Annotated[
        str | None, typer.Argument(help="an example's id, or how it begins; the round if left out")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that every hash, count, link and statement of a round holds; status 1 if not.

    With an example: lead its text back to the children, the engine and the game it came from.
    """
    from rich.console import Console

    from stages.audit import show

    root, state = here()
    if example is not None:
        from stages.audit.tracing import trace

        trail = trace(root, key, example)
        _print_json(trail.as_dict()) if as_json else show.show_trail(trail, Console())
        return
    from stages.audit.whole import audit_round

    found = audit_round(root, state, key)
    _print_json(found.as_dict()) if as_json else show.show_audit(found, Console())
    raise typer.Exit(0 if found.holds else 1)


def register(app: typer.Typer) -> None:
    """Add the three commands."""
    for command in (explain, report, audit):
        app.command()(command)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
