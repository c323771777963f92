"""Finding engines on this machine, and saying what to do where there is none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from queen.engines.table import has_classical_table
from queen.engines.uci import EngineStartError, split_command

AUTO = "auto"
FOLDERS = ("/usr/games", "/usr/local/games", "/usr/local/bin", "/opt/homebrew/bin")
INSTALL_SEARCH = "apt-get install stockfish (or your system's package), or give its path"
INSTALL_TABLE = (
    "apt-get install fairy-stockfish, or give a Stockfish of version 15.1 or 16: "
    "later ones print no classical table"
)


def find_program(name: str) -> str | None:
    """An executable's path from PATH, then the folders where Debian and others put games."""
    found = shutil.which(name)
    if found or os.sep in name:
        return found
    return shutil.which(name, path=os.pathsep.join(FOLDERS))


def find_engine(command: str = AUTO) -> str:
    """The engine that searches: `command`, or the first Stockfish found for "auto".

    A command with arguments comes back whole, its program resolved. Raises EngineStartError
    with the remedy.
    """
    names = [["stockfish"], ["fairy-stockfish"]] if command == AUTO else [split_command(command)]
    for program, *arguments in (name for name in names if name):
        path = find_program(program)
        if path is not None:
            return " ".join([path, *arguments])
    what = "no Stockfish on PATH or in " + ", ".join(FOLDERS)
    if command != AUTO:
        what = _why_not(command)
    raise EngineStartError(what, where=f"engine {command!r}", remedy=INSTALL_SEARCH)


def _why_not(command: str) -> str:
    path = Path(split_command(command)[0]) if command.strip() else Path()
    if path.is_dir():
        return "a folder, not a program"
    return "not executable" if path.is_file() else "no such program"


def find_classical(command: str = AUTO) -> str:
    """The engine whose `eval` prints the classical table.

    The first of the given engine (or Stockfish for "auto") and fairy-stockfish that prints it.
    Raises EngineStartError with the remedy.
    """
    first = "stockfish" if command == AUTO else command
    tried: list[str] = []
    for name in dict.fromkeys([first, "fairy-stockfish"]):
        try:
            found = find_engine(name)
            if has_classical_table(found):
                return found
            tried.append(f"{name}: prints no table")
        except EngineStartError as error:
            tried.append(f"{name}: {error.what}")
    raise EngineStartError(
        "no engine prints the classical evaluation table (" + "; ".join(tried) + ")",
        where="classical evaluation",
        remedy=INSTALL_TABLE,
    )
