"""`queen work`: this machine takes part in the runs of others."""

from __future__ import annotations

from typing import Annotated

import typer

from queen.commands.common import project, say


def work(
    target: Annotated[
        str | None, typer.Argument(help="stage or stage@key; whatever runs offer if left out")
    ] = None,
    store: Annotated[
        str,
        typer.Option(help="folder or bucket (fsspec URL); else QUEEN_STORE, machine.store"),
    ] = "",
    stay: Annotated[
        float, typer.Option(min=0, help="seconds to wait for further work after the last")
    ] = 0.0,
    workers: Annotated[
        int, typer.Option(min=0, help="engine processes; 0 for machine.workers")
    ] = 0,
) -> None:
    """Work shards that runs on other machines wait for; takes no lock and writes no artifact.

    Machines meet in a shared folder or bucket. Killed at any point, its shard is another's after
    machine.lease_s. Several may run on one machine, each with its own engines.
    """
    from stages.working import make_worker

    done = make_worker(project(), store, workers, say).run(target, stay)
    print(f"{done} shards worked")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(work)
