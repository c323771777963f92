"""What the commands share: where they are, how they talk, options of the same meaning."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from queen.lineage.state import State

AsJson = Annotated[bool, typer.Option("--json", help="plain JSON instead of a table")]


def project() -> Path:
    """The project around the working folder. Raises QueenError where there is none."""
    from queen.lineage.state import find_project

    return find_project()


def here() -> tuple[Path, State]:
    """The project around the working folder, and its state."""
    from queen.lineage.state import open_state

    root = project()
    return root, open_state(root)


def say(text: str) -> None:
    """A line for people, on stderr: stdout is for what was asked for."""
    print(text, file=sys.stderr, flush=True)
