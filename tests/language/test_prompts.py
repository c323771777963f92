"""Prompts say who is to move, and give the FEN only where asked."""

from __future__ import annotations

from queen.games.chess.position import Position
from queen.language.prompts import answer, explain_prompt, question_prompt, user_turn

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
