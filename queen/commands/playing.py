"""`queen uci`, `queen match` and `queen release`: models that play, and models that ship."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from queen.errors import QueenError

ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="a model's key, a release, a folder, an Lc0 .pb.gz file or maia-1900; "
        "the champion, or the last release, if left out",
    ),
]
ProjectFolder = Annotated[
    Path | None, typer.Option("--project", help="the project's folder; found by itself here")
]


def uci(model: ModelName = None, project: ProjectFolder = None) -> None:
    """Serve a model as a UCI engine, for any chess program; it explains in `info string` lines."""
    from queen.engines.server import UciServer, read_lines
    from stages.playing import engine_of, find_playable

    out = _own_stdout()

    def write(line: str) -> None:
        os.write(out, f"{line}\n".encode())

    playable = find_playable(_project(project), model)
    status = UciServer(engine_of(playable), write).serve(read_lines(sys.stdin.fileno()))
    raise typer.Exit(status)


def _own_stdout() -> int:
    """A descriptor of stdout for the protocol alone: whatever else prints goes to stderr."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    return own


def _project(named: Path | None) -> Path:
    """The project named, around the working folder, or that this code lies in.

    A chess program starts its engines wherever it likes.
    """
    import queen
    from queen.lineage.state import find_project, is_project

    if named is not None:
        return find_project(named)
    home = Path(queen.__file__).resolve().parents[1]
    try:
        return find_project()
    except QueenError:
        if is_project(home):
            return home
        raise


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (uci,):
        app.command()(command)
