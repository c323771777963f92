"""Where game files come from."""

from __future__ import annotations

from pathlib import Path

from queen.errors import QueenError


def game_files(source: str, project: Path, param: str) -> list[Path]:
    """The files of a source, a file or a folder of them, in order of their paths.

    Args:
        source: as params say it; relative to the project unless absolute.
        param: dotted name of that param, for the error where there is nothing.
    """
    path = Path(source)
    path = path if path.is_absolute() else project / path
    if path.is_dir():
        found = sorted(p for p in path.rglob("*") if p.is_file() and ".pgn" in p.name.lower())
    else:
        found = [path] if path.is_file() else []
    if not found:
        raise QueenError(
            "no game file here",
            where=str(path),
            remedy=f"set {param} to a .pgn, .pgn.gz, .pgn.zst file or a folder of them",
        )
    return found
