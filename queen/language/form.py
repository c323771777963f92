"""What an answer says, told from its form alone: an illegal move faults the move, not the form.

`explanation.parse` takes a text whole or not at all, as a parent's explanation or a training
example must be taken. What an answer's first move and line are worth is another question: a
candidate's line with an illegal move in its third ply says nothing about the first move.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from queen.games.chess.notation import MoveTextError
from queen.games.chess.position import Position
from queen.language.explanation import Limits
from queen.language.ground import Ground, Line

NO_MOVE = "0000"
"""Stands for a move that is none: UCI's null move, legal nowhere."""

_MOVE = r"<[PNBRQKpnbrqk]><[a-h][1-8]><[a-h][1-8]>(?:<[NBRQnbrq]>)?"
_LINE = rf"{_MOVE}(?: {_MOVE})*"
_FORM = re.compile(
    rf"best (?P<best>{_MOVE})\nline (?P<line>{_LINE})"
    rf"(?P<candidates>(?:\ncandidate {_MOVE} (?:0\.\d\d|1\.00)(?: line {_LINE})?)+)"
    r"(?P<prose>(?:\n(?!(?:best|line|candidate)\b)\S(?:[^\n]*\S)?)*)"
)
_KEYWORD = re.compile(r"(?:best|line|candidate)(?: |$)")
_CANDIDATE = re.compile(rf"\ncandidate ({_MOVE})")


def line_of(text: str, position: Position, *, finished: bool = True) -> Line | None:
    """The line of a text of the right form, best move first, to its first illegal move.

    Returns:
        UCI moves; the illegal one, if any, last and as NO_MOVE. None where the form is wrong:
        rows out of order, a move or score that is none, a best move that does not begin the
        line or is no candidate, or a text cut off or too long. (A candidate named twice is no
        fault of the form.)
    """
    found = _FORM.fullmatch(text.rstrip()) if finished else None
    if found is None or not _consistent(text, found, Limits()):
        return None
    return _played(found["line"].split(" "), position)


def prose_of(text: str, *, finished: bool = True) -> tuple[str, ...]:
    """The sentences of a text, its structured rows being right or not, one a row.

    What `explanation.parse` takes for prose in a sound text, and what is left of it where other
    rows are at fault: rows that begin with no keyword. The last row of a text that was cut off
    is not whole and does not count.
    """
    rows = text.rstrip().split("\n")
    rows = rows if finished else rows[:-1]
    said = [row for row in rows if row and row == row.strip() and not _KEYWORD.match(row)]
    return tuple(said[: Limits().sentences])


def _consistent(text: str, found: re.Match[str], limits: Limits) -> bool:
    words = found["line"].split(" ")
    candidates = _CANDIDATE.findall(found["candidates"])
    lines = [words, *(row.split(" ")[4:] for row in found["candidates"].split("\n"))]
    return (
        len(text) <= limits.characters
        and words[0] == found["best"]
        and found["best"] in candidates
        and len(candidates) <= limits.candidates
        and max(map(len, lines)) <= limits.plies
        and found["prose"].count("\n") <= limits.sentences
    )


def _played(words: Sequence[str], position: Position) -> Line:
    """The moves of the words as far as they are legal, and NO_MOVE for one that is not."""
    ground = Ground(position)
    try:
        return ground.read((), words)
    except MoveTextError as error:
        return (*ground.read((), words[: error.ply]), NO_MOVE)
