"""The frontier teacher: what it is asked, and what becomes of its answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language_data import greedy_facts, many_positions, positions

from queen.games.chess.notation import san_line
from queen.games.chess.position import Position
from queen.language.api.messages import Answer, Failure
from queen.language.claims import checkable
from queen.language.explanation import Explanation, parse, render
from queen.language.ground import Ground
from queen.language.people import sentence_for_people
from queen.language.teacher_frontier import (
    Told,
    drawing,
    explanation_of,
    prompts_digest,
    question,
    schema,
)
from queen.language.teacher_hce import Style, TeacherInput, write

STYLE = Style(plies=4, candidates=3, sentences=4)
START = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
SPANISH = Position.from_text(START, "e2e4 e7e5 g1f3 b8c6")
ASKED = question("one", SPANISH, STYLE)
GOOD: dict[str, Any] = {
    "best_move": "Bb5",
    "score": 0.55,
    "line": ["Bb5", "a6", "Ba4"],
    "others": [{"move": "d4", "score": 0.53, "line": ["exd4", "Nxd4"]}],
    "sentences": ["After Bb5, the bishop on b5 attacks the knight on c6.", "White castles soon."],
}


def told(data: Any, **changed: Any) -> Told:
    text = data if isinstance(data, str) else json.dumps({**data, **changed})
    return explanation_of(Answer(text, "stop", 1, 1), ASKED, SPANISH, STYLE)


def test_the_teacher_is_told_the_position_alone() -> None:
    assert SPANISH.fen in ASKED.user
    assert drawing(SPANISH.board()) in ASKED.user
    assert "1. e4 e5 2. Nf3 Nc6" in ASKED.user
    assert "White to move" in ASKED.user
    for move in SPANISH.board().legal_moves:
        assert f" {SPANISH.board().san(move)}" in ASKED.user
    assert "the PIECE on SQUARE forks the PIECE on SQUARE" in ASKED.system
    assert "unknown" in question("x", Position.from_fen(SPANISH.fen), STYLE).user


def test_the_board_is_drawn_with_white_at_the_bottom() -> None:
    rows = drawing(SPANISH.board()).splitlines()
    assert rows[0] == "8 r . b q k b n r"
    assert rows[7:] == ["1 R N B Q K B . R", "  a b c d e f g h"]


def test_a_closed_schema_lists_the_legal_moves() -> None:
    closed = question("x", SPANISH, STYLE, closed=True).schema
    legal = {SPANISH.board().san(move) for move in SPANISH.board().legal_moves}
    assert set(closed["properties"]["best_move"]["enum"]) == legal
    assert "enum" not in ASKED.schema["properties"]["best_move"]
    assert schema(STYLE) == ASKED.schema


def test_a_good_answer_becomes_an_explanation() -> None:
    found = told(GOOD)
    said = found.explanation
    assert said is not None
    assert (said.best, said.line) == ("f1b5", ("f1b5", "a7a6", "b5a4"))
    assert [(c.move, c.score, c.line) for c in said.candidates] == [
        ("f1b5", 0.55, ("a7a6", "b5a4")),
        ("d2d4", 0.53, ("e5d4", "f3d4")),
    ]
    assert [len(sentence.claims) for sentence in said.prose] == [1, 0]
    assert found.counts == {"sentences.checked": 1, "sentences.unchecked": 1}
    assert parse(render(said), SPANISH) == said


def test_what_is_wrong_inside_a_good_answer_is_cut_and_counted() -> None:
    found = told(
        GOOD,
        line=["a6", "Ba4", "Kxe8", "O-O"],
        others=[
            {"move": "Qxh7", "score": 0.9, "line": []},
            {"move": "f1b5", "score": 0.1, "line": []},
            {"move": "d4", "score": 0.53, "line": ["d4", "exd4", "exd4"]},
        ],
        sentences=[
            "After Bb5, the bishop on b5 attacks the king on e8.",
            "After Bb5, the bishop on b5 attacks the knight on c6.",
            "After Bb5, the bishop on b5 attacks the knight on c6",
            "Bb5 is a sound move.",
            *(f"This is thought number {n}." for n in range(4)),
        ],
    )
    assert found.explanation is not None
    assert found.explanation.line == ("f1b5", "a7a6", "b5a4")
    assert found.explanation.candidates[1].line == ("e5d4",)
    assert found.counts == {
        "cut.line_move": 3,
        "cut.candidate_illegal": 1,
        "cut.candidate_repeated": 1,
        "cut.false": 1,
        "cut.repeated": 1,
        "cut.unverifiable": 1,
        "cut.too_many": 1,
        "sentences.checked": 1,
        "sentences.unchecked": 3,
    }


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (told("I would play Bb5."), "answer.not_json"),
        (told(GOOD, score=1.4), "answer.wrong_form"),
        (told({k: v for k, v in GOOD.items() if k != "line"}), "answer.wrong_form"),
        (told(GOOD, more=1), "answer.wrong_form"),
        (told(GOOD, best_move="Bb6"), "bad_move:illegal"),
        (told(GOOD, best_move="the bishop"), "bad_move:malformed"),
        (explanation_of(Failure("timeout"), ASKED, SPANISH, STYLE), "api.timeout"),
        (explanation_of(Answer("{", "length", 1, 1), ASKED, SPANISH, STYLE), "answer.cut_off"),
    ],
)
def test_an_answer_that_cannot_be_used_has_its_reason(found: Told, reason: str) -> None:
    assert found == Told(None, reason)


def test_an_answer_of_which_no_sentence_is_left_says_why() -> None:
    found = told(GOOD, sentences=["White is 9 pawns ahead in material.", "<end>"])
    assert found == Told(None, "no_sentence", {"cut.false": 1, "cut.malformed": 1})


def test_what_the_embedded_teacher_would_say_comes_through_whole() -> None:
    """Its explanation told in SAN and plain English is read back as the same explanation."""
    heard = 0
    for number, position in enumerate(many_positions(25, seed=5)):
        moves = [move.uci() for move in position.board().legal_moves][:2]
        facts = greedy_facts(position, moves)
        said = write(TeacherInput(position, facts, tuple(moves)), 1, number, STYLE)
        checked = tuple(s for s in said.prose if checkable(s.claims[0]))
        if not checked:
            continue
        asked = question("x", position, STYLE)
        answer = Answer(json.dumps(_as_answer(said, position)), "stop", 1, 1)
        found = explanation_of(answer, asked, position, STYLE)
        assert found.explanation == Explanation(
            said.fen, said.best, said.line, said.candidates, checked
        )
        assert found.counts.get("cut.unverifiable", 0) == len(said.prose) - len(checked)
        heard += 1
    assert heard > 15


def _as_answer(said: Explanation, position: Position) -> dict[str, Any]:
    ground = Ground(position)

    def san(at: tuple[str, ...], moves: tuple[str, ...]) -> list[str]:
        board = ground.after(at)
        assert board is not None
        return [word for word in san_line(board, moves).split() if not word[0].isdigit()]

    others = [
        {"move": san((), (c.move,))[0], "score": c.score, "line": san((c.move,), c.line)}
        for c in said.candidates
    ]
    return {
        "best_move": others[0]["move"],
        "score": others[0]["score"],
        "line": san((), said.line),
        "others": others[1:],
        "sentences": [sentence_for_people(sentence, ground) for sentence in said.prose],
    }


@settings(max_examples=80, deadline=None)
@given(positions(), st.data())
def test_any_answer_of_the_right_form_is_an_explanation_or_has_a_reason(
    position: Position, data: st.DataObject
) -> None:
    legal = [position.board().san(move) for move in position.board().legal_moves]
    move = st.one_of(st.sampled_from(legal), st.text(max_size=6))
    line = st.lists(move, max_size=4)
    other = st.fixed_dictionaries({"move": move, "score": st.floats(0, 1), "line": line})
    answer = st.fixed_dictionaries(
        {
            "best_move": move,
            "score": st.floats(0, 1),
            "line": line,
            "others": st.lists(other, max_size=2),
            "sentences": st.lists(st.text(max_size=60), min_size=1, max_size=4),
        }
    )
    reply = Answer(json.dumps(data.draw(answer)), "stop", 1, 1)
    found = explanation_of(reply, question("x", position, STYLE), position, STYLE)
    if found.explanation is None:
        assert found.reason
        assert not found.counts or found.reason == "no_sentence"
    else:
        assert parse(render(found.explanation), position) == found.explanation
        assert Explanation.from_json(found.explanation.to_json()) == found.explanation


def test_the_prompts_have_a_digest() -> None:
    assert len(prompts_digest()) == 64
    assert prompts_digest() == prompts_digest()
