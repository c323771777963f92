"""Commands that keep a project whole: `sync`, `verify`, `gc`, `doctor`, `fetch`, `version`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from queen.commands.common import AsJson, here
from queen.errors import QueenError


def sync() -> None:
    """Send to MLflow what it does not have, fill lineage, move the alias of the champion."""
    from queen.lineage.syncing import sync as send

    root, state = here()
    done = send(root, state.root)
    print(f"{done.uri}: {done.sent} runs sent")
    print(f"lineage filled: {', '.join(done.filled) or 'nothing missing'}")
    print(f"model versions made: {', '.join(done.versions) or 'none'}; champion: {done.champion}")


def verify() -> None:
    """Check every hash: artifacts, inputs, dvc.lock, verdicts, shards. Status 1 if one is wrong."""
    from queen.commands.upkeep import verify as check
    from queen.lineage.artifact import artifact_folders

    root, state = here()
    problems = list(check(root, state))
    for problem in problems:
        print(problem)
    count = len(artifact_folders(root))
    print(f"{count} artifacts checked, {len(problems) or 'no'} problems")
    raise typer.Exit(1 if problems else 0)


def gc(
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    young: Annotated[
        bool, typer.Option("--all", help="unfinished work younger than a day too")
    ] = False,
) -> None:
    """Remove searches, shards and unfinished work that no project here needs; asks first."""
    from queen.commands.upkeep import find_garbage, remove_garbage
    from queen.lineage.lock import workspace

    root, state = here()
    with workspace(root, what="queen gc", wait=False):
        garbage = find_garbage(root, state, young=young)
        print(f"shards: {len(garbage.shards)} ({garbage.shard_bytes / 2**20:.1f} MB)")
        searches = garbage.searches
        print(f"searches: {searches.searches} ({searches.bytes / 2**20:.1f} MB)")
        print(f"unfinished work: {len(garbage.scratch)} ({garbage.scratch_bytes / 2**20:.1f} MB)")
        for project in garbage.absent:
            print(f"nothing is kept for {project}: no project is there any more")
        if garbage.open_stages:
            print(f"kept for stages that are not up to date: {', '.join(garbage.open_stages)}")
        if garbage.nothing:
            print("nothing to remove")
        elif yes or typer.confirm("remove them?"):
            remove_garbage(state, garbage)
            print("removed")


def doctor(as_json: AsJson = False) -> None:
    """List what is present and missing, and how to get it; status 1 if the run could not work."""
    from queen.commands.health import examine, works
    from queen.commands.tables import print_findings

    root, state = here()
    findings = examine(root, state)
    if as_json:
        from dataclasses import asdict

        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print_findings(findings)
    raise typer.Exit(0 if works(findings) else 1)


def fetch(
    name: Annotated[str, typer.Argument(help="maia-1900, smollm2-135m, a URL or a file")],
) -> None:
    """Get a network's weights once, checked against the pinned digest."""
    from queen.networks.fetch import obtain

    _, state = here()
    print(obtain(name, state.downloads))


def version(
    stage: Annotated[str, typer.Argument(help="the stage whose code changed")],
    bump: Annotated[bool, typer.Option("--bump", help="its outputs change")] = False,
    same: Annotated[bool, typer.Option("--same", help="its outputs stay as they are")] = False,
) -> None:
    """Say whether a change of code changes a stage's outputs."""
    from stages.registry import spec_of
    from stages.versions import settle, version_of

    if bump == same:
        raise QueenError(
            "say one of --bump and --same", where="queen version", remedy="see its --help"
        )
    spec_of(stage)
    settle(stage, bump=bump)
    print(f"{stage}: version {version_of(stage)}")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (sync, verify, gc, doctor, fetch, version):
        app.command()(command)
