"""The explanation's text leads back to it, and each fault is told by reason and place."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Sequence

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language_data import SEEDS, explained, positions

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.language.explanation import (
    Candidate,
    Explanation,
    ExplanationError,
    Limits,
    Reason,
    parse,
    parse_best,
    render,
)

START = Position.from_fen("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1")
GOOD = """best <N><g1><f3>
line <N><g1><f3> <p><d7><d5>
candidate <N><g1><f3> 0.56 line <p><d7><d5>
candidate <P><h2><h4> 0.41
After <N><g1><f3>, the <N> on <f3> controls <e5>.
A free remark."""
FAULTS = [
    ("", Reason.EMPTY, 1, 1),
    (" \n \n", Reason.EMPTY, 1, 1),
    ("line <N><g1><f3>", Reason.NO_BEST, 1, 1),
    ("best", Reason.NO_BEST, 1, 6),
    ("best Nf3", Reason.MALFORMED, 1, 6),
    ("best <N><g1>", Reason.MALFORMED, 1, 6),
    ("best <B><g1><f3>", Reason.WRONG_PIECE, 1, 6),
    ("best <N><e4><f3>", Reason.WRONG_PIECE, 1, 6),
    ("best <N><g1><g3>", Reason.ILLEGAL, 1, 6),
    ("best <n><b8><c6>", Reason.ILLEGAL, 1, 6),
    ("best <N><g1><f3> <p><d7><d5>", Reason.UNKNOWN_LINE, 1, 18),
    ("best <N><g1><f3>", Reason.NO_LINE, 2, 1),
    ("best <N><g1><f3>\nbest <N><g1><f3>", Reason.NO_LINE, 2, 1),
    ("best <N><g1><f3>\nline", Reason.LINE_NOT_BEST, 2, 6),
    ("best <N><g1><f3>\nline <N><b1><c3>", Reason.LINE_NOT_BEST, 2, 6),
    ("best <N><g1><f3>\nline <N><g1><f3> d5", Reason.MALFORMED_IN_LINE, 2, 18),
    ("best <N><g1><f3>\nline <N><g1><f3> <q><d7><d5>", Reason.WRONG_PIECE_IN_LINE, 2, 18),
    ("best <N><g1><f3>\nline <N><g1><f3> <p><d7><d4>", Reason.ILLEGAL_IN_LINE, 2, 18),
    (GOOD.split("candidate")[0], Reason.NO_CANDIDATE, 3, 1),
    (GOOD.replace("0.56", "56"), Reason.BAD_SCORE, 3, 23),
    (GOOD.replace("0.56", "1.56"), Reason.BAD_SCORE, 3, 23),
    (GOOD.replace(" 0.41", ""), Reason.BAD_SCORE, 4, 22),
    (GOOD.replace("<P><h2><h4>", "<N><g1><f3>"), Reason.DUPLICATE_CANDIDATE, 4, 11),
    (GOOD.replace("candidate <P><h2><h4>", "candidate"), Reason.MALFORMED, 4, 11),
    (GOOD.replace("0.41", "0.41 line"), Reason.UNKNOWN_LINE, 4, 28),
    (GOOD.replace("0.41", "0.41 then <p><d7><d5>"), Reason.UNKNOWN_LINE, 4, 28),
    (GOOD.replace("0.41", "0.41 line <p><d7><d4>"), Reason.ILLEGAL_IN_LINE, 4, 33),
    (
        GOOD.replace("candidate <N><g1><f3>", "candidate <N><b1><c3>"),
        Reason.BEST_NOT_CANDIDATE,
        5,
        1,
    ),
    (GOOD + "\n\nMore.", Reason.UNKNOWN_LINE, 7, 1),
    (GOOD + "\ncandidate <P><e2><e4> 0.50", Reason.UNKNOWN_LINE, 7, 1),
    (GOOD + "\nbest of all.", Reason.UNKNOWN_LINE, 7, 1),
    (GOOD + "\nSo it is." * 15, Reason.TOO_LONG, 21, 1),
    (GOOD + "x" * 9000, Reason.TOO_LONG, 1, 1),
]


@settings(max_examples=120, deadline=None)
@given(explained())
def test_parse_is_the_inverse_of_render(pair: tuple[Explanation, Position]) -> None:
    explanation, position = pair
    text = render(explanation)
    assert parse(text, position) == explanation
    assert parse_best(text, position) == explanation.best


@settings(max_examples=60, deadline=None)
@given(explained())
def test_json_keeps_everything(pair: tuple[Explanation, Position]) -> None:
    explanation, _ = pair
    text = json.dumps(explanation.to_json())
    assert Explanation.from_json(json.loads(text)) == explanation


@pytest.mark.parametrize(("text", "reason", "line_no", "column"), FAULTS)
def test_faults_are_told_by_reason_and_place(
    text: str, reason: Reason, line_no: int, column: int
) -> None:
    with pytest.raises(ExplanationError) as caught:
        parse(text, START)
    error = caught.value
    assert (error.reason, error.line_no, error.column) == (reason, line_no, column)
    assert error.detail
    again = pickle.loads(pickle.dumps(error))
    assert (again.reason, again.line_no, again.column) == (reason, line_no, column)


def test_a_text_stopped_before_its_end_is_unfinished() -> None:
    with pytest.raises(ExplanationError) as caught:
        parse(GOOD, START, finished=False)
    assert caught.value.reason is Reason.UNFINISHED


def test_every_reason_is_reached() -> None:
    assert {reason for _, reason, _, _ in FAULTS} | {Reason.UNFINISHED} == set(Reason)


@settings(max_examples=100, deadline=None)
@given(explained(prose=2), SEEDS, st.sampled_from("<>NPe4 \nbest0.1xline"))
def test_damaged_text_parses_or_fails_by_name(
    pair: tuple[Explanation, Position], seed: int, letter: str
) -> None:
    explanation, position = pair
    text = render(explanation)
    place = seed % len(text)
    damaged = text[:place] + letter + text[place + 1 :]
    with contextlib.suppress(ExplanationError):
        found = parse(damaged, position)
        assert parse(render(found), position) == found


def same_moves(own: chess.Board, other: chess.Board, moves: Sequence[str]) -> bool:
    """Whether moves of one board can be played on another, each with the same piece."""
    for move in map(chess.Move.from_uci, moves):
        piece = own.piece_at(move.from_square)
        if piece != other.piece_at(move.from_square) or not other.is_legal(move):
            return False
        own.push(move)
        other.push(move)
    return True


@settings(max_examples=50, deadline=None)
@given(explained(), st.none() | positions())
def test_an_explanation_parses_where_all_its_moves_can_be_played_and_nowhere_else(
    pair: tuple[Explanation, Position], other: Position | None
) -> None:
    said, own = pair
    at = other or own
    lines = [said.line, *((each.move, *each.line) for each in said.candidates)]
    playable = all(same_moves(own.board(), at.board(), line) for line in lines)
    assert playable or other is not None
    if playable:
        assert parse(render(said), at).line == said.line
    else:
        with pytest.raises(ExplanationError):
            parse(render(said), at)


def test_the_first_move_is_read_where_the_rest_is_broken() -> None:
    assert parse_best("best <N><g1><f3>\nline nonsense", START) == "g1f3"
    assert parse_best("best <N><g1><f3> and so on", START) == "g1f3"
    with pytest.raises(ExplanationError) as caught:
        parse_best("best <N><g1><f4>", START)
    assert caught.value.reason is Reason.ILLEGAL


def test_limits_are_parameters() -> None:
    tight = Limits(plies=1)
    with pytest.raises(ExplanationError) as caught:
        parse(GOOD, START, limits=tight)
    assert (caught.value.reason, caught.value.line_no) == (Reason.TOO_LONG, 2)
    with pytest.raises(ExplanationError) as caught:
        parse(GOOD, START, limits=Limits(candidates=1))
    assert (caught.value.reason, caught.value.line_no) == (Reason.TOO_LONG, 4)


def test_scores_outside_the_range_are_refused() -> None:
    with pytest.raises(ValueError, match="not in"):
        Candidate("e2e4", 1.2)
    assert Candidate("e2e4", 0.5649).score == 0.56


def test_broken_records_name_the_field() -> None:
    record = parse(GOOD, START).to_json()
    del record["line"]
    with pytest.raises(QueenError, match="line"):
        Explanation.from_json(record)
