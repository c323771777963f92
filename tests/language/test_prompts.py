"""Prompts say who is to move, and give the FEN only where asked."""

from __future__ import annotations

import pytest

from queen.games.chess.position import Position
from queen.language.prompts import (
    answer,
    explain_prompt,
    question_answer,
    question_prompt,
    user_turn,
)

POSITION = Position("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", ("e2e4",))


def test_a_turn_and_its_answer() -> None:
    assert user_turn("Hello.") + answer("Good day.") == "<user>Hello.<assistant>Good day.<end>"


def test_the_side_to_move_is_said() -> None:
    assert question_prompt(POSITION, "Which?") == "<user>Black to move. Which?<assistant>"
    assert explain_prompt(POSITION) == "<user>Black to move. Explain.<assistant>"
    assert "White to move." in explain_prompt(POSITION.child("e7e5"))


def test_the_fen_stands_in_the_text_only_where_asked() -> None:
    assert POSITION.fen in explain_prompt(POSITION, fen_text=True)
    assert POSITION.fen in question_prompt(POSITION, "Which?", fen_text=True)
    assert POSITION.fen not in question_prompt(POSITION, "Which?")


@pytest.mark.parametrize(
    ("question", "text", "written"),
    [
        ("on <e4> ?", "<N>", "<e4><N><end>"),
        ("on <e4> ?", "none", "<e4>none<end>"),
        ("castling White ?", "K Q", "K Q<end>"),
        ("after <P><e2><e4> : on <e4> ?", "<P>", "<e4><P><end>"),
        ("after <P><e2><e4> : castling White ?", "none", "none<end>"),
    ],
)
def test_an_answer_names_again_what_was_asked_about(question: str, text: str, written: str) -> None:
    assert question_answer(question, text) == written
