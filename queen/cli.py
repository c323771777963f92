"""The `queen` command. Heavy things are imported where they are used, so that help is quick."""

from __future__ import annotations

import os
import sys

import typer

from queen.commands import (
    compare,
    keeping,
    net,
    pipeline,
    playing,
    positions,
    rounds,
    telling,
    work,
)
from queen.errors import QueenError

IN_ORDER_OF_HELP = (pipeline, rounds, keeping, telling, net, playing, positions, work, compare)

app = typer.Typer(
    name="queen",
    help="A pipeline that turns a silent chess expert and a language model into one that explains.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for group in IN_ORDER_OF_HELP:
    group.register(app)


def main() -> None:
    """Entry point: a QueenError ends in its message and status 1."""
    os.environ.setdefault("DO_NOT_TRACK", "true")
    try:
        app()
    except QueenError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            raise
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        print("  remedy: name a place that is there and may be written", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
