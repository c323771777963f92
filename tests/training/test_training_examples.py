"""Tokenising examples: where the loss stands, what is left out, and what survives joining."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.games.chess.position import Position
from queen.training.examples import (
    NO_TURNS,
    TOO_LONG,
    UNKNOWN_TOKEN,
    Example,
    ExampleError,
    Turn,
    concatenate,
    encode_examples,
)

START = Position("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")
AFTER = START.child("e2e4")
END, UNKNOWN = 1, 2


class Letters:
    """A real, reversible tokenizer: one token for each lower-case letter; $ is the end."""

    eos_token_id: int | None = END
    unk_token_id = UNKNOWN

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [[self.token(letter) for letter in text] for text in texts]}

    def token(self, letter: str) -> int:
        return END if letter == "$" else 3 + ord(letter) - 97 if letter.islower() else UNKNOWN


words = st.text("abcdef", max_size=6)
turns = st.builds(Turn, words, words)
positions = st.sampled_from([START, AFTER, AFTER.child("e7e5")])
example_lists = st.lists(
    st.builds(
        Example, positions, st.lists(turns, min_size=1, max_size=3).map(tuple), st.floats(0.5, 2)
    ),
    max_size=6,
)


def pieces(encoded, index):
    """(prompt letters, answer letters) runs of an example, read back from the arrays."""
    span = slice(encoded.offsets[index], encoded.offsets[index + 1])
    return encoded.tokens[span].tolist(), encoded.answers[span].tolist()


@settings(max_examples=80, deadline=None)
@given(example_lists)
def test_tokens_and_answers_are_those_of_the_turns(examples):
    letters = Letters()
    encoded = encode_examples(examples, letters, 1000)
    assert len(encoded) == len(examples)
    for index, example in enumerate(examples):
        tokens, answers = pieces(encoded, index)
        expected = [
            (letters.token(letter), piece == 1)
            for turn in example.turns
            for piece, text in enumerate((turn.prompt, turn.answer + "$"))
            for letter in text
        ]
        assert list(zip(tokens, answers, strict=True)) == expected
        assert encoded.positions[encoded.position_of[index]] == example.position
    assert len(set(encoded.positions)) == len(encoded.positions)


@settings(max_examples=40, deadline=None)
@given(example_lists, example_lists)
def test_joined_sets_equal_the_set_of_the_joined_list(first, second):
    letters = Letters()
    joined = concatenate([encode_examples(part, letters, 1000) for part in (first, second)])
    at_once = encode_examples(first + second, letters, 1000)
    assert joined.digest == at_once.digest
    assert np.array_equal(joined.lengths, at_once.lengths)


def test_an_end_token_in_the_answer_is_not_doubled():
    given_end = encode_examples([Example(START, (Turn("a", "b$"),))], Letters(), 10)
    left_out = encode_examples([Example(START, (Turn("a", "b"),))], Letters(), 10)
    assert given_end.digest == left_out.digest
    assert given_end.tokens.tolist() == [3, 4, END]


def test_what_does_not_fit_is_reported_and_the_rest_kept():
    examples = [
        Example(START, (Turn("ab", "cd"),), source="fits"),
        Example(START, (Turn("ab", "cde"),), source="long"),
        Example(START, (), source="empty"),
        Example(START, (Turn("a", "?"),), source="odd"),
        Example(AFTER, (Turn("a", "b"),), source="fits too"),
    ]
    encoded = encode_examples(examples, Letters(), 5)
    assert encoded.lengths.tolist() == [5, 3]
    assert [(r.index, r.source, r.reason) for r in encoded.rejected] == [
        (1, "long", TOO_LONG),
        (2, "empty", NO_TURNS),
        (3, "odd", UNKNOWN_TOKEN),
    ]
    assert encoded.rejected[0].detail == "6 tokens, at most 5"
    assert encoded.reject_counts == {NO_TURNS: 1, TOO_LONG: 1, UNKNOWN_TOKEN: 1}


def test_the_digest_sees_weights_and_positions():
    base = encode_examples([Example(START, (Turn("a", "b"),))], Letters(), 9)
    heavy = encode_examples([Example(START, (Turn("a", "b"),), 2.0)], Letters(), 9)
    moved = encode_examples([Example(AFTER, (Turn("a", "b"),))], Letters(), 9)
    assert len({base.digest, heavy.digest, moved.digest}) == 3


def test_a_tokenizer_without_an_end_is_refused():
    endless = Letters()
    endless.eos_token_id = None
    with pytest.raises(ExampleError, match="end token"):
        encode_examples([Example(START, (Turn("a", "b"),))], endless, 9)


def test_an_open_answer_has_no_end() -> None:
    closed, begun = (Example(START, (Turn("ab", "cd", open=is_open),)) for is_open in (False, True))
    encoded = encode_examples([closed, begun], Letters(), 20)
    assert pieces(encoded, 0)[0] == [*pieces(encoded, 1)[0], END]
    assert pieces(encoded, 1)[1] == [False, False, True, True]
