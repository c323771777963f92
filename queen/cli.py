"""The `queen` command. Heavy things are imported where they are used, so that help is quick."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from queen.commands import compare as compare_command
from queen.commands import net as net_command
from queen.commands import playing
from queen.commands import positions as positions_command
from queen.commands import work as work_command
from queen.commands.telling import register
from queen.errors import QueenError

app = typer.Typer(
    name="queen",
    help="A pipeline that turns a silent chess expert and a language model into one that explains.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
round_app = typer.Typer(help="Add a round, or reopen a judged one.", no_args_is_help=True)
app.add_typer(round_app, name="round")

Target = Annotated[
    str | None, typer.Argument(help="stage, stage@key, or a round's name; all if left out")
]
AsJson = Annotated[bool, typer.Option("--json", help="plain JSON instead of a table")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="leave if another run is at work here")]


def main() -> None:
    """Entry point: a QueenError ends in its message and status 1."""
    os.environ.setdefault("DO_NOT_TRACK", "true")
    try:
        app()
    except QueenError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def here() -> tuple[Path, Any]:
    """The project around the working folder, and its state."""
    from queen.lineage.state import find_project, open_state

    root = find_project()
    return root, open_state(root)


def say(text: str) -> None:
    """A line for people, on stderr: stdout is for what was asked for."""
    print(text, file=sys.stderr, flush=True)


@app.command()
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


@app.command()
def run(target: Target = None, no_wait: NoWait = False) -> None:
    """Bring a target, or everything, up to date: each stale stage one Prefect flow run."""
    from queen.commands.run import run_pipeline

    root, state = here()
    raise typer.Exit(run_pipeline(root, state, target, wait=not no_wait, say=say))


@app.command()
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


@app.command()
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


@app.command()
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


@app.command()
def sync() -> None:
    """Send to MLflow what it does not have, fill lineage, move the alias of the champion."""
    from queen.lineage.syncing import sync as send

    root, state = here()
    done = send(root, state.root)
    print(f"{done.uri}: {done.sent} runs sent")
    print(f"lineage filled: {', '.join(done.filled) or 'nothing missing'}")
    print(f"model versions made: {', '.join(done.versions) or 'none'}; champion: {done.champion}")


@app.command()
def verify() -> None:
    """Check every hash: artifacts, inputs, dvc.lock, verdicts, shards. Status 1 if one is wrong."""
    from queen.commands.upkeep import artifact_folders
    from queen.commands.upkeep import verify as check

    root, state = here()
    problems = list(check(root, state))
    for problem in problems:
        print(problem)
    count = len(artifact_folders(root))
    print(f"{count} artifacts checked, {len(problems) or 'no'} problems")
    raise typer.Exit(1 if problems else 0)


@app.command()
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


@app.command()
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


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="maia-1900, smollm2-135m, a URL or a file")],
) -> None:
    """Get a network's weights once, checked against the pinned digest."""
    from queen.networks.fetch import obtain

    _, state = here()
    print(obtain(name, state.downloads))


@app.command()
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


register(app)
net_command.register(app)
playing.register(app)
positions_command.register(app)
work_command.register(app)
compare_command.register(app)

if __name__ == "__main__":
    main()
