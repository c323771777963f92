"""The frontier teacher: a language model behind an API explains a position.

It is told the position alone, as the paper's teacher is (METHOD section 1, seeding): FEN, board,
the moves that led there and which moves are legal, but nothing an engine holds of them, so that
the chess is the teacher's own and the engine stays its judge. The list of legal moves and the
wordings that can be checked are ours. Its numbers are kept as it gives them; the engine's take
their place when explanations are consolidated.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import chess
import orjson

from queen.games.chess.notation import MoveTextError, san_line
from queen.games.chess.position import Position
from queen.games.chess.spoken import read_line, read_move
from queen.language.api.forms import Unusable, read_form
from queen.language.api.messages import Question, Reply
from queen.language.explanation import (
    Candidate,
    Explanation,
    ExplanationError,
    Sentence,
    parse,
    render,
)
from queen.language.ground import Ground, Line
from queen.language.teacher_hce import Style
from queen.language.wording import patterns, understand

Kept = TypeVar("Kept")
HISTORY = 12
"""Plies of the game that are told."""

SYSTEM = """\
You are a strong chess player who teaches. You are given one position. Find the best move, weigh \
it against other moves a person would consider, and explain in short sentences why the best move \
is good and what is wrong with the others. Judge by concrete lines.

Answer with one JSON object and nothing else:
{{"best_move": MOVE, "score": NUMBER, "line": [MOVE, ...], "others": [{{"move": MOVE, \
"score": NUMBER, "line": [MOVE, ...]}}, ...], "sentences": [STRING, ...]}}

- Moves are in SAN (Nf3, exd5, O-O, e8=Q), without move numbers.
- "line" is what you expect after best play from both sides. It begins with best_move.
- "score" is the expected score of the side to move after the move: 1 is a sure win, 0.5 equal, 0 \
a sure loss.
- "others" holds other legal moves worth weighing, each once. Their "line" is what follows the \
move; it does not repeat it.
- "sentences" are in English. One sentence says one thing, about pieces named with their squares.

Every sentence is checked against the board, and false ones are thrown away. What can be checked \
best is worded like this, alone or after moves ("After Nf3 d5, the knight on f3 controls e5."). \
Words in capitals stand for yours: SIDE is White or Black, WING kingside or queenside, material is \
counted in pawns (1, 3, 3, 5, 9):
{patterns}"""

USER = """\
FEN: {fen}
{side} to move. Capitals are White's pieces.

{board}

Played before: {history}
Legal moves: {legal}

Give at most {others} other moves, lines of at most {plies} moves and at most {sentences} \
sentences."""


@dataclass(frozen=True)
class Told:
    """What became of an answer.

    Attributes:
        explanation: None if the answer is unusable.
        reason: why it is: `api.…` where none came, `answer.…` for its form, else one of
            `explanation.Reason`'s words.
        counts: what was cut, as `cut.false`, and kept: `sentences.checked` and
            `sentences.unchecked`. For an unusable answer only why no sentence is left.
    """

    explanation: Explanation | None
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)


def question(id_: str, position: Position, style: Style, *, closed: bool = False) -> Question:
    """The request for one position; with `closed` its schema lists the legal moves."""
    board = position.board()
    legal = [board.san(move) for move in sorted(board.legal_moves, key=str)]
    text = USER.format(
        fen=position.fen,
        side="White" if board.turn else "Black",
        board=drawing(board),
        history=history(position) or "unknown",
        legal=" ".join(legal),
        others=style.candidates - 1,
        plies=style.plies,
        sentences=style.sentences,
    )
    return Question(id_, _system(), text, schema(style, legal if closed else None), "explanation")


def schema(style: Style, legal: Sequence[str] | None = None) -> dict[str, Any]:
    """The answer's JSON schema; `legal` closes the moves of the position to a list."""
    move = {"type": "string"}
    first = {"type": "string", "enum": list(legal)} if legal else move
    line = {"type": "array", "items": move, "maxItems": style.plies}
    score = {"type": "number", "minimum": 0, "maximum": 1}
    candidate = _object({"move": first, "score": score, "line": line})
    others = {"type": "array", "items": candidate, "maxItems": style.candidates - 1}
    sentences = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "maxItems": style.sentences,
    }
    return _object(
        {
            "best_move": first,
            "score": score,
            "line": line,
            "others": others,
            "sentences": sentences,
        }
    )


def prompts_digest() -> str:
    """SHA-256 of all that is said to the teacher but for the positions."""
    whole = [_system(), USER, HISTORY, schema(Style())]
    return hashlib.sha256(orjson.dumps(whole)).hexdigest()


def explanation_of(reply: Reply, asked: Question, position: Position, style: Style) -> Told:
    """The explanation in a reply, or why there is none.

    A line is kept up to its first move that cannot be played, a candidate that is not legal, or
    comes twice, is left out, a sentence goes where `wording.understand` refuses it: all counted.
    """
    data = read_form(reply, asked.schema)
    if isinstance(data, Unusable):
        return Told(None, data.reason)
    reader = _Reader(position, style)
    try:
        said = reader.explanation(data)
        if not said.prose:
            return Told(None, "no_sentence", dict(+reader.counts))
        if parse(render(said), position) != said:
            return Told(None, "answer.reads_otherwise")
    except MoveTextError as error:
        return Told(None, f"bad_move:{error.reason}")
    except ExplanationError as error:
        return Told(None, error.reason.value)
    return Told(said, "", dict(+reader.counts))


def drawing(board: chess.Board) -> str:
    """The board as eight rows with their numbers, the files below; White at the bottom."""
    rows = zip("87654321", str(board).splitlines(), strict=True)
    return "\n".join([*(f"{number} {row}" for number, row in rows), "  a b c d e f g h"])


def history(position: Position) -> str:
    """The last moves before a position in numbered SAN; "" if none is known."""
    told = position.moves[-HISTORY:]
    before = Position(position.start, position.moves[: len(position.moves) - len(told)])
    return san_line(before.board(), told)


class _Reader:
    """Turns the JSON of an answer into an explanation, counting what is cut."""

    def __init__(self, position: Position, style: Style) -> None:
        self.position, self.style = position, style
        self.ground = Ground(position)
        self.counts: Counter[str] = Counter()

    def explanation(self, data: Mapping[str, Any]) -> Explanation:
        best = read_move(self.ground.root, data["best_move"]).uci()
        line = self._line(best, data["line"])
        first = Candidate(best, float(data["score"]), line[1:])
        candidates = self._candidates(first, data["others"])
        prose = self._prose(data["sentences"])
        return Explanation(self.position.fen, best, line, candidates, prose)

    def _line(self, best: str, texts: Sequence[str]) -> Line:
        """The line from the best move on, whether the answer repeats that move or not."""
        line, left_out = read_line(self.ground.root, texts)
        if line[:1] != (best,):
            after = self.ground.after((best,))
            assert after is not None
            line, left_out = read_line(after, texts)
            line = (best, *line)
        self.counts["cut.line_move"] += left_out
        return line[: self.style.plies]

    def _candidates(
        self, first: Candidate, told: Sequence[Mapping[str, Any]]
    ) -> tuple[Candidate, ...]:
        """The best move first, then the others as they come."""
        found = {first.move: first}
        for one in told:
            try:
                move = read_move(self.ground.root, one["move"]).uci()
            except MoveTextError:
                self.counts["cut.candidate_illegal"] += 1
                continue
            if move in found:
                self.counts["cut.candidate_repeated"] += 1
                continue
            found[move] = Candidate(move, float(one["score"]), self._continuation(move, one))
        return self._first(tuple(found.values()), self.style.candidates)

    def _continuation(self, move: str, one: Mapping[str, Any]) -> Line:
        """A candidate's line; the move itself may stand before it."""
        after = self.ground.after((move,))
        assert after is not None
        line, left_out = read_line(after, one["line"])
        if not line:
            whole, left = read_line(self.ground.root, one["line"])
            line, left_out = (whole[1:], left) if whole[:1] == (move,) else (line, left_out)
        self.counts["cut.line_move"] += left_out
        return line[: self.style.plies - 1]

    def _prose(self, texts: Sequence[str]) -> tuple[Sentence, ...]:
        kept: list[Sentence] = []
        for text in texts:
            read = understand(text, self.ground)
            if read.sentence is None:
                self.counts[f"cut.{read.reason}"] += 1
            elif read.sentence in kept:
                self.counts["cut.repeated"] += 1
            else:
                kept.append(read.sentence)
        prose = self._first(tuple(kept), self.style.sentences)
        for sentence in prose:
            self.counts[f"sentences.{'' if sentence.claims else 'un'}checked"] += 1
        return prose

    def _first(self, told: tuple[Kept, ...], most: int) -> tuple[Kept, ...]:
        """As many as were asked for."""
        self.counts["cut.too_many"] += max(0, len(told) - most)
        return told[:most]


def _system() -> str:
    return SYSTEM.format(patterns="\n".join(f"- {pattern}" for pattern in patterns()))


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An object with all of these fields and no other."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
