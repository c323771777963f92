"""From questions to training examples, and the answers a lazy model would give."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from queen.games.chess.position import Position
from queen.language.prompts import question_answer, question_prompt
from queen.language.questions.bank import Question
from queen.training.examples import Example, Turn


def question_turn(question: Question, *, fen_text: bool = False) -> Turn:
    """A question as the model is asked it alone, with its answer."""
    asked = [(question.prompt, question.answer)]
    return conversation(question.position, asked, fen_text=fen_text)[0]


def conversation(
    position: Position, asked: Iterable[tuple[str, str]], *, fen_text: bool = False
) -> tuple[Turn, ...]:
    """Questions about one position with their answers, as turns one after another."""
    return tuple(
        Turn(
            question_prompt(position, question, fen_text=fen_text, first=not place),
            question_answer(question, text),
        )
        for place, (question, text) in enumerate(asked)
    )


def question_examples(
    questions: Iterable[Question], turns: int, seed: int, *, fen_text: bool = False
) -> list[Example]:
    """Examples of at most `turns` questions about one position.

    Questions about the same position must stand next to each other. Several to a sequence cost
    little more than one: the encoder's states are read once for all. Their order is shuffled, for
    a type that never comes first is not learnt as one asked alone.
    """
    examples = []
    groups = groupby(questions, key=lambda question: question.position)
    for number, (position, about) in enumerate(groups):
        asked = list(about)
        random.Random(f"{seed} {number}").shuffle(asked)
        for start in range(0, len(asked), turns):
            spoken = [(each.prompt, each.answer) for each in asked[start : start + turns]]
            examples.append(Example(position, conversation(position, spoken, fen_text=fen_text)))
    return examples


def majority_answers(questions: Sequence[Question]) -> dict[str, str]:
    """The most frequent answer of each question type; the first by text where several are."""
    counts = Counter((question.type, question.answer) for question in questions)
    best: dict[str, tuple[int, str]] = {}
    for (kind, text), count in sorted(counts.items()):
        if kind not in best or count > best[kind][0]:
            best[kind] = (count, text)
    return {kind: text for kind, (_, text) in best.items()}
