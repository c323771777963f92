"""Puzzle files in Lichess's format: PuzzleId, FEN, Moves, Rating, ..., Themes, GameUrl."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from queen.errors import QueenError
from queen.games.chess.archives import open_text
from queen.games.chess.position import Position


@dataclass(frozen=True)
class Puzzle:
    """A puzzle as it is solved.

    Attributes:
        id: the file's own id.
        position: what the solver sees: the file's FEN after the opponent's first move.
        solution: UCI moves, the solver's first.
        rating: Glicko rating of the puzzle.
        themes: Lichess's theme names.
        game_id: where it was found, if the file says so.
    """

    id: str
    position: Position
    solution: tuple[str, ...]
    rating: int
    themes: tuple[str, ...]
    game_id: str | None


def read_puzzles(path: Path) -> Iterator[Puzzle]:
    """Puzzles of a .csv, .csv.gz or .csv.zst file.

    Raises:
        QueenError: naming the file, the line and the field that is wrong.
    """
    with open_text(path) as stream:
        for number, row in enumerate(csv.DictReader(stream), start=2):
            try:
                yield _puzzle(row)
            except (KeyError, ValueError, IndexError) as error:
                raise QueenError(
                    f"not a puzzle: {error!r}",
                    where=f"{path}, line {number}",
                    remedy="give a Lichess puzzle CSV with PuzzleId, FEN, Moves, Rating, Themes",
                ) from error


def _puzzle(row: dict[str, str]) -> Puzzle:
    first, *rest = row["Moves"].split()
    url = row.get("GameUrl") or ""
    return Puzzle(
        id=row["PuzzleId"],
        position=Position(row["FEN"], (first,)),
        solution=tuple(rest),
        rating=int(row["Rating"]),
        themes=tuple((row.get("Themes") or "").split()),
        game_id=url.rstrip("/").split("/")[-1].split("#")[0] or None,
    )
