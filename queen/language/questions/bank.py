"""The question bank of the curriculum: four stages, each topic now and after a line.

Source: METHOD section 1, Curriculum. Answers come from the rules alone, but for the optional
`expert_move_type`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import chess

from queen.errors import QueenError
from queen.games.chess.notation import line_text, move_text
from queen.games.chess.position import Position, PositionError
from queen.language.questions.dynamic import DYNAMIC
from queen.language.questions.static import STATIC
from queen.language.questions.topics import AnyTopic

STATIC_CURRENT, DYNAMIC_CURRENT = "static-current", "dynamic-current"
STATIC_FUTURE, DYNAMIC_FUTURE = "static-future", "dynamic-future"
EXPERT_MOVE = "expert_move"
MAX_LINE = 4


@dataclass(frozen=True)
class Question:
    """A question about a position, with its answer.

    Attributes:
        stage: one of `stages()`.
        type: name of its QuestionType.
        position: the position as it stands now.
        line: UCI moves that the question imagines from there; empty for current stages.
        prompt: `on <e4> ?`, or `after <P><e2><e4> : on <e4> ?`.
        answer: its one right answer, as text.
        subset: a mark by which accuracy is reported apart, such as `occupied` or `none`; after
            a line followed by ` changed` where the answer before the line would be another.
    """

    stage: str
    type: str
    position: Position
    line: tuple[str, ...]
    prompt: str
    answer: str
    subset: str


Asker = Callable[[Position, Sequence[str], random.Random], Question | None]


@dataclass(frozen=True)
class QuestionType:
    """A named way to ask about a position and the line played on from it.

    `ask` answers None where the type does not apply: a future type without a line, or nothing
    of the kind on the board.
    """

    name: str
    stage: str
    ask: Asker


def stages() -> tuple[str, ...]:
    """The curriculum's stages in order."""
    return (STATIC_CURRENT, DYNAMIC_CURRENT, STATIC_FUTURE, DYNAMIC_FUTURE)


def ask(
    position: Position, line: Sequence[str], type_name: str, rng: random.Random
) -> Question | None:
    """A question of a type of the BANK, or None where it does not apply.

    Args:
        line: UCI moves really played on from the position; future types use 1 to MAX_LINE.

    Raises QueenError for an unknown type, PositionError for an illegal line.
    """
    kind = _BY_NAME.get(type_name)
    if kind is None:
        raise QueenError(
            f"no question type {type_name!r}",
            where="question bank",
            remedy=f"one of {', '.join(_BY_NAME)}",
        )
    return kind.ask(position, line, rng)


def expert_move_type(policy: Callable[[Position], str]) -> QuestionType:
    """Which move does the expert prefer? Optional, ours (METHOD, Curriculum).

    Args:
        policy: the expert's preferred legal move in UCI; not asked where the game is over.
    """

    def expert_move(position: Position, line: Sequence[str], rng: random.Random) -> Question | None:
        board = chess.Board(position.fen)
        if not any(board.legal_moves):
            return None
        answer = move_text(board, policy(position))
        name = EXPERT_MOVE
        return Question(DYNAMIC_CURRENT, name, position, (), "expert move ?", answer, "all")

    return QuestionType(EXPERT_MOVE, DYNAMIC_CURRENT, expert_move)


def _current(topic: AnyTopic, stage: str) -> QuestionType:
    def ask_now(position: Position, line: Sequence[str], rng: random.Random) -> Question | None:
        board = chess.Board(position.fen)
        choice = topic.choose(board, rng)
        if choice is None:
            return None
        answer = topic.answer(board, choice)
        prompt = topic.words(choice)
        subset = topic.subset(answer)
        return Question(stage, topic.name, position, (), prompt, answer, subset)

    return QuestionType(topic.name, stage, ask_now)


def _future(topic: AnyTopic, stage: str) -> QuestionType:
    name = f"after_{topic.name}"

    def ask_after(position: Position, line: Sequence[str], rng: random.Random) -> Question | None:
        now = chess.Board(position.fen)
        boards = _boards_after(now, line[:MAX_LINE])
        board = _chosen(topic, boards, rng)
        choice = topic.choose(board, rng) if board else None
        if board is None or choice is None:
            return None
        moves = tuple(move.uci() for move in board.move_stack)
        answer = topic.answer(board, choice)
        changed = " changed" if topic.answer(now, choice) != answer else ""
        prompt = f"after {line_text(now, moves)} : {topic.words(choice)}"
        subset = topic.subset(answer) + changed
        return Question(stage, name, position, moves, prompt, answer, subset)

    return QuestionType(name, stage, ask_after)


def _boards_after(now: chess.Board, line: Sequence[str]) -> list[chess.Board]:
    """The board after each move of the line; its move stack holds the moves since."""
    boards = []
    here = now
    for uci in line:
        here = here.copy()
        try:
            here.push(here.parse_uci(uci))
        except ValueError as error:
            raise PositionError(
                f"move {uci!r} of the line is not legal",
                where=here.fen(),
                remedy="give the moves played on from the position",
            ) from error
        boards.append(here)
    return boards


def _chosen(topic: AnyTopic, boards: list[chess.Board], rng: random.Random) -> chess.Board | None:
    """Any length of line; for a rare thing, half the time a length whose board has it."""
    if topic.rare is not None and rng.random() < 0.5:
        boards = [board for board in boards if topic.rare(board)] or boards
    return rng.choice(boards) if boards else None


BANK: tuple[QuestionType, ...] = (
    *(_current(topic, STATIC_CURRENT) for topic in STATIC),
    *(_current(topic, DYNAMIC_CURRENT) for topic in DYNAMIC),
    *(_future(topic, STATIC_FUTURE) for topic in STATIC),
    *(_future(topic, DYNAMIC_FUTURE) for topic in DYNAMIC),
)
_BY_NAME = {kind.name: kind for kind in BANK}
