"""One position explained: what the model wrote, and as much of it as can be read.

Where a text is no explanation, what is sound in it is still told, and each row that is not is
named with its fault: nothing is made up in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import chess

from queen.errors import QueenError
from queen.games.chess.notation import move_text
from queen.games.chess.position import Position
from queen.generation.requests import Sampling
from queen.generation.speaker import Asked, Speaker
from queen.language.explanation import (
    Candidate,
    Explanation,
    ExplanationError,
    Limits,
    Reason,
    Sentence,
    parse,
    parse_best,
)
from queen.language.ground import Ground, Line
from queen.language.people import sentence_for_people

_ANY_LENGTH = Limits(characters=10**9)
SHOWN = 60
_BEST, _LINE, _CANDIDATES = 0, 1, 2
_NEUTRAL = "0.50"
_BEGINS = re.compile(r"best\s+<\w><\w\d><\w\d>(?:<\w>)?")
_MISSING = (Reason.NO_LINE, Reason.NO_CANDIDATE, Reason.BEST_NOT_CANDIDATE)


@dataclass(frozen=True)
class Fault:
    """One row of a text that could not be read.

    Attributes:
        row, column: where, counted from 1.
        reason: one of `queen.language.explanation.Reason`.
        detail: what stands there, in words.
        text: the row.
    """

    row: int
    column: int
    reason: str
    detail: str
    text: str

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "row": self.row,
            "column": self.column,
            "reason": self.reason,
            "detail": self.detail,
            "text": self.shown,
        }

    @property
    def shown(self) -> str:
        """The row, cut where it is long."""
        return self.text if len(self.text) <= SHOWN else self.text[: SHOWN - 3] + "..."


@dataclass(frozen=True)
class Told:
    """What of a text could be read.

    Attributes:
        position: what it is about.
        text: as the model wrote it.
        best: UCI; None if not even the move could be read.
        line: the principal variation, `best` first; `best` alone if the line could not be read.
        candidates, prose: the readable ones.
        faults: what could not be read, in reading order; empty for a sound explanation.
    """

    position: Position
    text: str
    best: str | None
    line: Line = ()
    candidates: tuple[Candidate, ...] = ()
    prose: tuple[Sentence, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def problem(self) -> str | None:
        """In one sentence what is wrong with the text; None if nothing is."""
        if not self.faults:
            return None
        first = self.faults[0]
        others = len(self.faults) - 1
        more = f", and {others} more fault{'s' if others > 1 else ''}" if others else ""
        kept = "the rest is shown" if self.best else "no move could be read"
        return (
            f"the model's text is no sound explanation: row {first.row}, column {first.column}: "
            f"{first.reason}: {first.detail}{more}; {kept}"
        )

    def sentences(self) -> list[str]:
        """The prose in words for people, one string for each sentence."""
        ground = Ground(self.position)
        return [sentence_for_people(sentence, ground) for sentence in self.prose]


def explain(
    speaker: Speaker, position: Position, *, max_tokens: int = 256, free: bool = False
) -> Told:
    """Let a model explain one position (greedy).

    Unless it is free, it explains the move it would play: the legal move it finds most probable;
    and every move of its lines is held to legal ones.

    Args:
        speaker: the model.
        position: with its history, if that is known.
        max_tokens: longest text.
        free: decode without constraints.

    Raises:
        QueenError: the game is over there, or the decoder cannot take the request.
    """
    board = position.board()
    if board.is_game_over(claim_draw=False):
        raise QueenError(
            f"the game is over here ({_ending(board)}): there is no move to explain",
            where=position.fen,
            remedy="give a position in which the side to move has a legal move",
        )
    sampling = Sampling(temperature=0.0, max_new_tokens=max_tokens)
    asked = Asked("position", position, None if free else _favourite(speaker, position))
    said = speaker.explain([asked], sampling, "none" if free else "moves")[0]
    if said.error is not None:
        raise QueenError(said.error, where=position.fen, remedy="see the error above")
    return salvage(said.text, position, finished=said.finished)


def _favourite(speaker: Speaker, position: Position) -> str:
    policy = speaker.policies([position])[0]
    return max(sorted(policy), key=policy.__getitem__)


def _ending(board: chess.Board) -> str:
    outcome = board.outcome(claim_draw=False)
    return outcome.termination.name.lower().replace("_", " ") if outcome else "no legal move"


def salvage(text: str, position: Position, *, finished: bool = True) -> Told:
    """Read a text; where it is no explanation, all of it that is sound, and its faults.

    A row at fault is left out and the rest is read again, until what is left is an explanation.
    """
    reader = _Salvager(text, position)
    if not finished:
        reader.cut_off()
    explanation = reader.read()
    told = Told(
        position, text, None, faults=tuple(sorted(reader.faults, key=lambda f: (f.row, f.column)))
    )
    if explanation is None:
        return told
    return replace(
        told,
        best=explanation.best,
        line=explanation.line,
        candidates=tuple(c for c in explanation.candidates if c.move != reader.stand_in),
        prose=explanation.prose,
    )


class _Salvager:
    """The rows of a text with their numbers; faulty ones leave.

    Attributes:
        stand_in: a candidate put in only so that the rest can be read; not the model's.
        left_out: whether a row was taken out, so that what is missing then is no further fault.
    """

    def __init__(self, text: str, position: Position) -> None:
        self.rows = list(enumerate(text.rstrip().split("\n"), start=1))
        self.written = dict(self.rows)
        self.position, self.ground = position, Ground(position)
        self.faults: list[Fault] = []
        self.stand_in: str | None = None
        self.left_out = False

    def cut_off(self) -> None:
        """The writer was stopped: its last row is not whole and counts for nothing."""
        number, row = self.rows[-1]
        detail = "the text stops before its end"
        self.faults.append(Fault(number, len(row) + 1, Reason.UNFINISHED.value, detail, row))
        self.left_out = True
        if len(self.rows) > 1:
            self.rows.pop()

    def read(self) -> Explanation | None:
        """What is left after all faults, or None if there is no move to be read."""
        for _ in range(len(self.rows) + 4):
            try:
                return parse(self._text(), self.position, limits=_ANY_LENGTH)
            except ExplanationError as error:
                self._note(error)
                if not self._mended(error):
                    return None
        return None

    def _text(self) -> str:
        return "\n".join(row for _, row in self.rows)

    def _note(self, error: ExplanationError) -> None:
        if self.left_out and error.reason in _MISSING:
            return
        here = error.line_no - 1
        number = self.rows[here][0] if here < len(self.rows) else len(self.written) + 1
        row = self.written.get(number, "")
        fault = Fault(number, error.column, error.reason.value, error.detail, row)
        if not any((f.row, f.reason) == (fault.row, fault.reason) for f in self.faults):
            self.faults.append(fault)

    def _mended(self, error: ExplanationError) -> bool:
        """Take the fault out; False if it cannot be."""
        at = error.line_no - 1
        if at == _BEST:
            return self._keep_best()
        best = self._best_text()
        if at == _LINE:
            self._put(_LINE, f"line {best}", replacing="line")
        elif error.reason in (Reason.NO_CANDIDATE, Reason.BEST_NOT_CANDIDATE):
            self.stand_in = parse_best(self._text(), self.position)
            self._put(_CANDIDATES, f"candidate {best} {_NEUTRAL}", replacing="")
        else:
            self.rows.pop(at)
            self.left_out = True
        return True

    def _keep_best(self) -> bool:
        """The best move alone, whatever else stands in its row."""
        try:
            best = f"best {self._best_text()}"
        except ExplanationError:
            return False
        mended = self.rows[_BEST][1] != best
        self.rows[_BEST] = (self.rows[_BEST][0], best)
        return mended

    def _best_text(self) -> str:
        """The best move's tokens, whatever hangs on to them. Raises ExplanationError."""
        text = self._text()
        begun = _BEGINS.match(text)
        best = parse_best(begun.group() if begun else text, self.position)
        return move_text(self.ground.root, best)

    def _put(self, at: int, text: str, *, replacing: str) -> None:
        """A row of our own in place of the one that begins so, or before what stands there."""
        here = self.rows[at] if at < len(self.rows) else (self.rows[-1][0], "")
        if replacing and here[1].split(" ", 1)[0] == replacing:
            self.rows[at] = (here[0], text)
        else:
            self.rows.insert(at, (here[0], text))


def rows_of_faults(told: Told) -> Iterator[str]:
    """One line for each fault, for people."""
    for fault in told.faults:
        quoted = f" ({fault.shown!r})" if fault.text else ""
        yield f"row {fault.row}, column {fault.column}: {fault.reason}: {fault.detail}{quoted}"
