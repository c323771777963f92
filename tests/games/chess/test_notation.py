"""Move texts: round trips, located errors, and words for people."""

from __future__ import annotations

import pickle
import re

import chess
import pytest
from board_strategies import boards, played_boards
from hypothesis import given, settings
from hypothesis import strategies as st
from mailbox_board import Mailbox

from queen.games.chess import notation
from queen.games.chess.notation import MoveTextError, humanize, parse_line, parse_move_text

START = chess.Board()
TOKENS = [f"<{s}>" for s in (*chess.SQUARE_NAMES, *notation.PIECE_LETTERS)]


@settings(max_examples=80, deadline=None)
@given(boards())
def test_every_legal_move_survives_the_round_trip_and_no_two_share_a_text(board):
    moves = list(board.legal_moves)
    texts = [notation.move_text(board, move) for move in moves]
    assert [parse_move_text(board, text) for text in texts] == moves
    assert len(set(texts)) == len(texts)


@settings(max_examples=60, deadline=None)
@given(played_boards())
def test_texts_are_spelt_from_the_board_alone(board):
    men = Mailbox.parse(board.fen()).men
    for move in board.legal_moves:
        uci = move.uci()
        piece = men[move.from_square]
        last = uci[4:].upper() if piece == "P" else uci[4:]
        expected = f"<{piece}><{uci[:2]}><{uci[2:4]}>" + (f"<{last}>" if last else "")
        assert notation.move_text(board, uci) == expected


@settings(max_examples=60, deadline=None)
@given(played_boards(), st.data())
def test_only_legal_moves_are_read(board, data):
    text = "".join(data.draw(st.lists(st.sampled_from(TOKENS), min_size=3, max_size=4)))
    legal = {notation.move_text(board, move) for move in board.legal_moves}
    if text in legal:
        assert notation.move_text(board, parse_move_text(board, text)) == text
        return
    with pytest.raises(MoveTextError) as caught:
        parse_move_text(board, text)
    assert caught.value.reason in ("malformed", "wrong_piece", "illegal")


@settings(max_examples=60, deadline=None)
@given(played_boards())
def test_lines_round_trip(board):
    moves = tuple(board.move_stack)
    start = board.root()
    before = start.fen()
    text = notation.line_text(start, moves)
    assert parse_line(start, text) == moves
    assert start.fen() == before
    assert notation.line_text(start, [m.uci() for m in moves]) == text


@settings(max_examples=60, deadline=None)
@given(played_boards())
def test_san_lines_replay_to_the_same_position(board):
    text = notation.san_line(board.root(), board.move_stack)
    replay = board.root()
    for word in text.split():
        if not word[0].isdigit():
            replay.push_san(word)
    assert replay.fen() == board.fen()


def test_san_line_numbers_moves_from_either_side():
    assert notation.san_line(START, ["e2e4", "e7e5", "g1f3"]) == "1. e4 e5 2. Nf3"
    board = chess.Board()
    board.push_san("e4")
    assert notation.san_line(board, ["e7e5", "g1f3"]) == "1... e5 2. Nf3"
    with pytest.raises(MoveTextError) as caught:
        notation.san_line(START, ["e2e4", "e2e4"])
    assert (caught.value.reason, caught.value.ply) == ("illegal", 1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "malformed"),
        ("Nf3", "malformed"),
        ("<N><g1>", "malformed"),
        ("<N><g1><f3> ", "malformed"),
        ("<N><g1><f3><P>", "malformed"),
        ("<N><g1><f3>x", "malformed"),
        ("<n><g1><f3>", "wrong_piece"),
        ("<N><e4><f6>", "wrong_piece"),
        ("<N><g1><g3>", "illegal"),
        ("<p><e7><e5>", "illegal"),
        ("<P><e2><e4><Q>", "illegal"),
        ("<P><e2><e4><q>", "wrong_piece"),
    ],
)
def test_bad_moves_say_why(text, reason):
    with pytest.raises(MoveTextError) as caught:
        parse_move_text(START, text)
    assert caught.value.reason == reason
    assert pickle.loads(pickle.dumps(caught.value)).reason == reason


def test_errors_in_a_line_are_located():
    with pytest.raises(MoveTextError, match="move 3 at rnbqkbnr/pppp1ppp") as caught:
        parse_line(START, "<P><e2><e4> <p><e7><e5> <N><g1><g3>")
    assert (caught.value.ply, caught.value.reason) == (2, "illegal")
    with pytest.raises(MoveTextError) as caught:
        parse_line(START, "<P><e2><e4>  <p><e7><e5>")
    assert (caught.value.ply, caught.value.reason) == (1, "malformed")


def test_castling_is_the_kings_step_and_nothing_else():
    board = chess.Board("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")
    assert notation.move_text(board, "e1g1") == "<K><e1><g1>"
    assert notation.move_text(board, "e1a1") == "<K><e1><c1>"
    assert parse_move_text(board, "<K><e1><c1>").uci() == "e1c1"
    with pytest.raises(MoveTextError):
        parse_move_text(board, "<K><e1><h1>")


def test_a_move_from_an_empty_square_has_no_text():
    with pytest.raises(MoveTextError, match="no piece"):
        notation.move_text(START, "e4e5")


def test_humanize():
    assert humanize(START, "the <N> on <f3> guards <e5>") == "the knight on f3 guards e5"
    assert humanize(START, "<q><d8> is loose") == "queen on d8 is loose"
    text = "After <P><e2><e4> <p><e7><e5>, <N><g1><f3> hits the pawn."
    assert humanize(START, text) == "After 1. e4 e5, 2. Nf3 hits the pawn."
    text = "best <P><e2><e4>\nline <P><e2><e4> <p><e7><e5>"
    assert humanize(START, text) == "best 1. e4\nline 1. e4 e5"
    assert humanize(START, "<P><e2><e4> beats <P><d2><d4>.") == "1. e4 beats 1. d4."
    assert humanize(START, "<P><e7><e8><Q> wins") == "pawn e7-e8 becoming a queen wins"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*TOKENS, " ", "on", ", "]), max_size=12).map("".join))
def test_humanize_leaves_no_token_behind(text):
    assert re.search(r"<\w{1,2}>", humanize(START, text)) is None


@given(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=5))
def test_any_chess_tokens_are_a_legal_move_or_an_error(tokens: list[str]) -> None:
    for fen in (chess.STARTING_FEN, "8/P6k/8/8/8/8/7p/K7 w - - 0 1"):
        board = chess.Board(fen)
        reason = "legal"
        try:
            move = parse_move_text(board, "".join(tokens))
        except MoveTextError as error:
            reason = error.reason
        assert reason in ("malformed", "wrong_piece", "illegal") or board.is_legal(move)


def test_a_move_to_its_own_square_is_illegal() -> None:
    with pytest.raises(MoveTextError) as caught:
        parse_move_text(START, "<P><e2><e2>")
    assert caught.value.reason == "illegal"
