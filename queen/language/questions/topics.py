"""What a question is made of, apart from when it is asked: now or after a line.

Answers are canonical, so that exact match is fair: squares and moves in order of square, `none`
where there is nothing. Phrasing is one per topic and short, for small decoders.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import chess

from queen.games.chess.notation import move_text, square_token

T = TypeVar("T")
NONE = "none"


def some_or_none(answer: str) -> str:
    """The usual subsets: is there anything to name?"""
    return NONE if concluded(answer) in (NONE, "0") else "some"


def reasoned(evidence: str, conclusion: str) -> str:
    """What was looked at, then what follows: `<a2><c2> : <a2><c2>`.

    A small decoder lists squares long before it counts them or compares them unseen (ours).
    """
    return f"{evidence} : {conclusion}"


def concluded(answer: str) -> str:
    """An answer without the evidence before it."""
    return answer.rpartition(" : ")[2]


@dataclass(frozen=True)
class Topic(Generic[T]):
    """A kind of question about any board.

    Attributes:
        name: such as `piece_on`.
        choose: what to ask about (a square, a colour), or None where nothing can be asked.
        words: the question, given what was chosen.
        answer: the answer, for any board and choice.
        subset: the mark of an answer, so that accuracy is reported apart.
        rare: whether a board has what few boards have; a line is cut to meet such boards often.
    """

    name: str
    choose: Callable[[chess.Board, random.Random], T | None]
    words: Callable[[T], str]
    answer: Callable[[chess.Board, T], str]
    subset: Callable[[str], str] = some_or_none
    rare: Callable[[chess.Board], bool] | None = None


AnyTopic = Topic[Any]


def nothing(board: chess.Board, rng: random.Random) -> tuple[()]:
    """The choice of topics that ask about the whole board."""
    return ()


def squares_text(squares: Iterable[chess.Square]) -> str:
    """`<a1><b3>`, or `none`."""
    return "".join(map(square_token, sorted(squares))) or NONE


def by_file_text(squares: Iterable[chess.Square]) -> str:
    """The same, from the a-file to the h-file."""
    return "".join(map(square_token, by_file(squares))) or NONE


def by_file(squares: Iterable[chess.Square]) -> list[chess.Square]:
    """From the a-file to the h-file, on a file from below."""
    return sorted(squares, key=lambda square: (chess.square_file(square), square))


def moves_text(board: chess.Board, moves: Iterable[chess.Move]) -> str:
    """Moves one space apart, or `none`."""
    return " ".join(move_text(board, move) for move in moves) or NONE


def side_name(color: chess.Color) -> str:
    return "White" if color else "Black"


def evenly(rng: random.Random, *groups: Sequence[T]) -> T | None:
    """One of a group, each group that has any being equally likely; None if none has."""
    filled = [group for group in groups if group]
    return rng.choice(rng.choice(filled)) if filled else None


def any_side(board: chess.Board, rng: random.Random) -> chess.Color:
    return rng.random() < 0.5


def side_topic(
    name: str,
    word: str,
    facts: Callable[[chess.Board, chess.Color], Sequence[Any]],
    square: Callable[[Any], chess.Square] = int,
    rare: Callable[[chess.Board], bool] | None = None,
    evidence: Callable[[chess.Board, chess.Color], str] | None = None,
    text: Callable[[Iterable[chess.Square]], str] = squares_text,
) -> Topic[bool]:
    """A topic about one side's squares: `hanging White ?`.

    Where one side has such facts and the other none, it is asked about three times in four.
    With `evidence` the answer begins with it (see `reasoned`), and `text` may name the squares in
    its order.
    """

    def choose(board: chess.Board, rng: random.Random) -> chess.Color:
        having = [color for color in chess.COLORS if facts(board, color)]
        return rng.choice(having if having and rng.random() < 0.5 else chess.COLORS)

    def answer(board: chess.Board, color: chess.Color) -> str:
        found = text(square(fact) for fact in facts(board, color))
        return reasoned(evidence(board, color), found) if evidence else found

    return Topic(
        name,
        choose=choose,
        words=lambda color: f"{word} {side_name(color)} ?",
        answer=answer,
        rare=rare,
    )
