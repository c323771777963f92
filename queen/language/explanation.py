"""What the model says about a position: one dataclass, its text, and the way back.

The text, every move as piece, from and to tokens:

    best <N><g1><f3>
    line <N><g1><f3> <p><d7><d5>
    candidate <N><g1><f3> 0.56 line <p><d7><d5>
    candidate <P><h2><h4> 0.41
    After <N><g1><f3>, the <N> on <f3> controls <e5>.

The sentences stand one a line. `parse(render(x), position) == x` for every valid explanation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import chess

from queen.errors import QueenError
from queen.games.chess.notation import (
    ILLEGAL,
    MALFORMED,
    WRONG_PIECE,
    MoveTextError,
)
from queen.games.chess.position import Position
from queen.language import grammar
from queen.language.ground import Ground, Line
from queen.language.vocabulary import Claim


@dataclass(frozen=True)
class Candidate:
    """A move that was weighed.

    Attributes:
        move: UCI.
        score: expected score in [0, 1] for the side to move at the root, kept to 2 decimals.
        line: the continuation after the move, UCI.
    """

    move: str
    score: float
    line: Line = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise ValueError(f"expected score {self.score} is not in [0, 1]")
        object.__setattr__(self, "score", round(self.score, 2))


@dataclass(frozen=True)
class Sentence:
    """One sentence of prose and the claims its text makes; none if no skeleton matches it."""

    text: str
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Best move, line, candidates and prose for one position.

    Attributes:
        fen: the position explained.
        best: UCI, one of the candidates.
        line: the principal variation, `best` first.
        candidates: each move once.
        prose: in reading order.
    """

    fen: str
    best: str
    line: Line
    candidates: tuple[Candidate, ...]
    prose: tuple[Sentence, ...] = ()

    def candidate(self, move: str) -> Candidate | None:
        """The candidate with that move."""
        return next((c for c in self.candidates if c.move == move), None)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON; `from_json` reads it back."""
        return {
            "fen": self.fen,
            "best": self.best,
            "line": list(self.line),
            "candidates": [
                {"move": c.move, "score": c.score, "line": list(c.line)} for c in self.candidates
            ],
            "prose": [
                {"text": s.text, "claims": [claim.to_json() for claim in s.claims]}
                for s in self.prose
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Explanation:
        """From `to_json`'s data. Raises QueenError naming the field that is missing or wrong."""
        try:
            return cls(
                data["fen"],
                data["best"],
                tuple(data["line"]),
                tuple(
                    Candidate(c["move"], c["score"], tuple(c["line"])) for c in data["candidates"]
                ),
                tuple(
                    Sentence(s["text"], tuple(Claim.from_json(c) for c in s["claims"]))
                    for s in data["prose"]
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise QueenError(
                f"not an explanation record: {error!r}",
                where=str(data)[:120],
                remedy="write the record with Explanation.to_json",
            ) from error


class Reason(StrEnum):
    """Why a text is no explanation; every way a parse can fail."""

    EMPTY = "empty"
    NO_BEST = "no_best"
    MALFORMED = "bad_move:malformed"
    WRONG_PIECE = "bad_move:wrong_piece"
    ILLEGAL = "bad_move:illegal"
    MALFORMED_IN_LINE = "malformed_in_line"
    WRONG_PIECE_IN_LINE = "wrong_piece_in_line"
    ILLEGAL_IN_LINE = "illegal_in_line"
    NO_LINE = "no_line"
    LINE_NOT_BEST = "line_not_best"
    NO_CANDIDATE = "no_candidate"
    BAD_SCORE = "bad_score"
    DUPLICATE_CANDIDATE = "duplicate_candidate"
    BEST_NOT_CANDIDATE = "best_not_candidate"
    UNKNOWN_LINE = "unknown_line"
    TOO_LONG = "too_long"
    UNFINISHED = "unfinished"


class ExplanationError(QueenError):
    """A text that is no explanation of its position.

    Attributes:
        reason: one of `Reason`.
        line_no, column: where, counted from 1.
        detail: what stands there, in words.
    """

    def __init__(self, reason: Reason, line_no: int, column: int, detail: str) -> None:
        super().__init__(
            f"{reason.value}: {detail}",
            where=f"line {line_no}, column {column}",
            remedy="count the text under its reason; a parent cannot use it",
        )
        self.reason, self.line_no, self.column, self.detail = reason, line_no, column, detail

    def __reduce__(self) -> tuple[object, ...]:
        return ExplanationError, (self.reason, self.line_no, self.column, self.detail)


@dataclass(frozen=True)
class Limits:
    """How long a text may be before it is refused: characters, plies of a line, and counts."""

    characters: int = 8000
    plies: int = 12
    candidates: int = 8
    sentences: int = 16


def render(explanation: Explanation) -> str:
    """The explanation as the model writes it (see the module's text), no newline at the end."""
    ground = Ground(chess.Board(explanation.fen))
    head = [
        f"best {ground.text((), (explanation.best,))}",
        f"line {ground.text((), explanation.line)}",
    ]
    candidates = [_candidate_text(ground, candidate) for candidate in explanation.candidates]
    return "\n".join([*head, *candidates, *(sentence.text for sentence in explanation.prose)])


def _candidate_text(ground: Ground, candidate: Candidate) -> str:
    text = f"candidate {ground.text((), (candidate.move,))} {candidate.score:.2f}"
    if not candidate.line:
        return text
    return f"{text} line {ground.text((candidate.move,), candidate.line)}"


def parse(
    text: str, position: Position, *, finished: bool = True, limits: Limits | None = None
) -> Explanation:
    """The explanation that a text is, each move checked for legality.

    Args:
        finished: False where the writer was stopped before its end mark.

    Raises:
        ExplanationError: with the first reason found, in reading order.
    """
    reader = _Reader(text, Ground(position), limits or Limits())
    best = reader.best()
    line = reader.line(best)
    candidates = reader.candidates(best)
    prose = reader.prose()
    if not finished:
        raise reader.error(Reason.UNFINISHED, 0, "the text stops before its end")
    return Explanation(position.fen, best, line, candidates, prose)


def parse_best(text: str, position: Position) -> str:
    """The best move alone (UCI), whatever follows it. Raises ExplanationError."""
    return _Reader(text, Ground(position), None).best()


def best_alone(text: str) -> str:
    """The beginning of an explanation's text up to its best move, the end of that line included."""
    return text.partition("\n")[0] + "\n"


_MOVE_REASONS = {
    MALFORMED: (Reason.MALFORMED, Reason.MALFORMED_IN_LINE),
    WRONG_PIECE: (Reason.WRONG_PIECE, Reason.WRONG_PIECE_IN_LINE),
    ILLEGAL: (Reason.ILLEGAL, Reason.ILLEGAL_IN_LINE),
}
_SCORE = re.compile(r"0\.\d\d|1\.00")
_KEYWORDS = ("best", "line", "candidate")


class _Reader:
    """The lines of a text, read from the top."""

    def __init__(self, text: str, ground: Ground, limits: Limits | None) -> None:
        self.rows = text.rstrip().split("\n")
        self.at = 0
        self.ground, self.limits = ground, limits
        if not text.strip():
            raise self.error(Reason.EMPTY, 0, "nothing is written")
        if limits and len(text) > limits.characters:
            raise self.error(
                Reason.TOO_LONG, 0, f"{len(text)} characters, {limits.characters} allowed"
            )

    def best(self) -> str:
        words = self._words("best", Reason.NO_BEST)
        if len(words) < 2:
            raise self.error(Reason.NO_BEST, 5, "no move follows 'best'")
        move = self._moves((), words[1:2], in_line=False)[0]
        if self.limits:
            self._nothing_after(words, 2)
        self.at += 1
        return move

    def line(self, best: str) -> Line:
        words = self._words("line", Reason.NO_LINE)
        moves = self._moves((), words[1:], in_line=True)
        if moves[:1] != (best,):
            column = words[1][0] if len(words) > 1 else 5
            raise self.error(Reason.LINE_NOT_BEST, column, "the line does not begin with best")
        self.at += 1
        return moves

    def candidates(self, best: str) -> tuple[Candidate, ...]:
        found: list[Candidate] = []
        self._words("candidate", Reason.NO_CANDIDATE)
        while self.at < len(self.rows) and _first(self.rows[self.at]) == "candidate":
            found.append(self._candidate([candidate.move for candidate in found]))
            self.at += 1
        if best not in [candidate.move for candidate in found]:
            raise self.error(Reason.BEST_NOT_CANDIDATE, 0, "best is not among the candidates")
        return tuple(found)

    def prose(self) -> tuple[Sentence, ...]:
        assert self.limits is not None
        found: list[Sentence] = []
        while self.at < len(self.rows):
            text = self.rows[self.at]
            if not text or text != text.strip() or _first(text) in _KEYWORDS:
                raise self.error(Reason.UNKNOWN_LINE, 0, f"{text[:40]!r} is no sentence")
            if len(found) == self.limits.sentences:
                raise self.error(Reason.TOO_LONG, 0, f"over {self.limits.sentences} sentences")
            found.append(Sentence(text, grammar.read(text, self.ground)))
            self.at += 1
        return tuple(found)

    def error(self, reason: Reason, column: int, detail: str) -> ExplanationError:
        return ExplanationError(reason, self.at + 1, column + 1, detail)

    def _candidate(self, seen: list[str]) -> Candidate:
        assert self.limits is not None
        words = self._words("candidate", Reason.NO_CANDIDATE)
        if len(words) < 2:
            raise self.error(Reason.MALFORMED, len("candidate"), "no move follows 'candidate'")
        move = self._moves((), words[1:2], in_line=False)[0]
        if move in seen:
            raise self.error(Reason.DUPLICATE_CANDIDATE, words[1][0], f"{move} came before")
        if len(seen) == self.limits.candidates:
            raise self.error(Reason.TOO_LONG, 0, f"over {self.limits.candidates} candidates")
        if len(words) < 3 or not _SCORE.fullmatch(words[2][1]):
            column = words[2][0] if len(words) > 2 else len(self.rows[self.at])
            raise self.error(Reason.BAD_SCORE, column, "no expected score like 0.56")
        return Candidate(move, float(words[2][1]), self._continuation(move, words[3:]))

    def _continuation(self, move: str, words: list[tuple[int, str]]) -> Line:
        if not words:
            return ()
        if words[0][1] != "line" or len(words) < 2:
            raise self.error(Reason.UNKNOWN_LINE, words[0][0], "expected 'line' and moves")
        return self._moves((move,), words[1:], in_line=True)

    def _moves(self, at: Line, words: list[tuple[int, str]], *, in_line: bool) -> Line:
        if self.limits and len(words) > self.limits.plies:
            column = words[self.limits.plies][0]
            raise self.error(Reason.TOO_LONG, column, f"over {self.limits.plies} plies")
        try:
            return self.ground.read(at, [word for _, word in words])
        except MoveTextError as error:
            reason = _MOVE_REASONS[error.reason][in_line]
            raise self.error(reason, words[error.ply][0], error.what) from error

    def _words(self, keyword: str, missing: Reason) -> list[tuple[int, str]]:
        """The current row's words with their columns; its first must be the keyword."""
        row = self.rows[self.at] if self.at < len(self.rows) else ""
        words = [(match.start(), match.group()) for match in re.finditer(r"\S+", row)]
        if not words or words[0][1] != keyword:
            raise self.error(missing, 0, f"expected {keyword!r}, found {row[:40]!r}")
        return words

    def _nothing_after(self, words: list[tuple[int, str]], count: int) -> None:
        if len(words) > count:
            raise self.error(Reason.UNKNOWN_LINE, words[count][0], "more than one move")


def _first(row: str) -> str:
    return row.split(" ", 1)[0]
