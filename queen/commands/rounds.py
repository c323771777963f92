"""`queen rounds`, `queen round ...` and `queen rollback`: the models and how they were judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from queen.commands.common import AsJson, here, say

round_app = typer.Typer(help="Add a round, or reopen a judged one.", no_args_is_help=True)


def rounds(as_json: AsJson = False) -> None:
    """A row for each model: examples, drops, FNMR, NMR, Elo, verdict, champion, cost."""
    from queen.commands.standing import standing
    from queen.commands.tables import print_rows

    root, state = here()
    rows, mended = standing(root, state)
    if mended:
        say(f"verdicts taken up from evaluations: {', '.join(mended)}")
        _follow(root, state)
    if as_json:
        print(json.dumps([row.as_dict() for row in rows], indent=2))
    else:
        print_rows(rows)


@round_app.command("add")
def round_add(
    key: Annotated[str, typer.Argument(help="the new round's name, like r5b")],
    parent: Annotated[str, typer.Option(help="the model it starts from: pawn1 or a round")],
    like: Annotated[str | None, typer.Option(help="take values and seed from this round")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="step.param=value, may be repeated")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="its own seed")] = None,
) -> None:
    """Add a round to params/rounds.yaml with its values written out."""
    from queen.lineage.rounds import add_round

    root, _ = here()
    made = add_round(root, key, parent=parent, like=like, settings=settings or [], seed=seed)
    print(f"{made.key}: parent {made.parent}, seed {made.seed}; `queen run {made.key}` runs it")


@round_app.command("reopen")
def round_reopen(key: Annotated[str, typer.Argument(help="the judged round")]) -> None:
    """Let the stages of a judged round run again; its verdict stands until there is a new one."""
    from queen.lineage.verdicts import reopen

    root, _ = here()
    reopen(root, key)
    print(f"{key} is open again: `queen run {key}`")


def rollback(
    key: Annotated[str | None, typer.Argument(help="the model to be champion again")] = None,
) -> None:
    """Set the last worse round aside, or move the champion back; nothing is deleted."""
    from queen.lineage import verdicts

    root, state = here()
    moved = verdicts.rollback(root, key)
    print(moved.note)
    _follow(root, state)


def _follow(root: Path, state: Any) -> None:
    """Let MLflow's alias follow; its absence is no reason to fail."""
    from queen.lineage.syncing import follow_verdicts

    fault = follow_verdicts(root, state.root)
    if fault:
        say(f"MLflow could not be told ({fault}); `queen sync` will")


def register(app: typer.Typer) -> None:
    """Add the commands, and the group `round`."""
    for command in (rounds, rollback):
        app.command()(command)
    app.add_typer(round_app, name="round")
