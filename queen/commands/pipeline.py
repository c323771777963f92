"""`queen configure`, `queen run` and `queen plan`: the pipeline's params, its run, its cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from queen.commands.common import AsJson, here, say
from queen.errors import QueenError

Target = Annotated[
    str | None, typer.Argument(help="stage, stage@key, or a round's name; all if left out")
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="leave if another run is at work here")]


def configure(
    choices: Annotated[
        list[str] | None,
        typer.Argument(help="profile=mini, decoder=scratch, filter.max_loss=0.05 ..."),
    ] = None,
) -> None:
    """Compose params/ into params.yaml and write out the values of open rounds.

    Choices come on top of those in force; naming a profile starts afresh.
    """
    from queen.lineage import params, rounds
    from queen.lineage.lock import workspace

    root, _ = here()
    with workspace(root, what="queen configure", wait=False):
        done = params.configure(root, choices or [])
        changed = rounds.resolve(root)
    print(f"profile {done.params.get('profile')}; choices: {' '.join(done.choices) or 'none'}")
    for change in done.changes:
        _print_change(change)
    for key, changes in changed.items():
        for change in changes:
            _print_change(change, f"round {key}: ")
    if not done.changes and not changed:
        print("nothing changed")


def _print_change(change: Any, prefix: str = "") -> None:
    if change.before is None:
        print(f"  {prefix}{change.key}: {change.after}")
    else:
        print(f"  {prefix}{change.key}: {change.before} -> {change.after}")


def run(target: Target = None, no_wait: NoWait = False) -> None:
    """Bring a target, or everything, up to date: each stale stage one Prefect flow run."""
    from queen.commands.run import run_pipeline

    root, state = here()
    raise typer.Exit(run_pipeline(root, state, target, wait=not no_wait, say=say))


def plan(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="stage, stage@key or a round; or choices, like profile=paper, to size them up"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what would run, what is cached, and the cost by the last runs.

    With choices (profile=paper): parameters, memory by ZeRO stage, tokens and estimated hours of
    what they compose to. Nothing is built or written.
    """
    root, state = here()
    choices = [item for item in what or () if "=" in item]
    if choices:
        _plan_sizes(root, state, what or [], choices, as_json)
    else:
        _plan_work(root, state, what or [], as_json)


def _plan_sizes(root: Path, state: Any, what: list[str], choices: list[str], as_json: bool) -> None:
    from queen.commands.sizing import make_sizes
    from queen.commands.sizing_shown import print_sizes, sizes_as_json

    if len(choices) < len(what):
        raise QueenError(
            "a target and choices together",
            where="queen plan",
            remedy="name a target to see what would run, or choices (profile=paper) to size them",
        )
    sized = make_sizes(root, state, choices)
    if as_json:
        print(json.dumps(sizes_as_json(sized), indent=2))
    else:
        print_sizes(sized)


def _plan_work(root: Path, state: Any, what: list[str], as_json: bool) -> None:
    from queen.commands.plan import make_plan
    from queen.commands.tables import print_plan

    if len(what) > 1:
        raise QueenError(
            f"{len(what)} targets", where="queen plan", remedy="name one, or none for everything"
        )
    planned = make_plan(root, state, what[0] if what else None)
    if as_json:
        from dataclasses import asdict

        print(json.dumps([asdict(row) for row in planned], indent=2))
    else:
        print_plan(planned)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (configure, run, plan):
        app.command()(command)
