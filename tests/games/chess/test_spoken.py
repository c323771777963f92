"""Moves as people and language models write them."""

from __future__ import annotations

import chess
import pytest
from board_strategies import boards, played_boards
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.games.chess.notation import ILLEGAL, MALFORMED, MoveTextError
from queen.games.chess.spoken import read_line, read_move

CASTLES = chess.Board("r3k2r/8/8/8/8/8/P6P/R3K2R b KQkq - 0 12")


@settings(max_examples=60, deadline=None)
@given(boards())
def test_every_legal_move_is_read_from_each_way_of_writing_it(board: chess.Board) -> None:
    for move in board.legal_moves:
        san, uci = board.san(move), move.uci()
        texts = [san, uci, f"{uci[:2]}-{uci[2:]}", f"12. {san}", f"12...{san}!?", f" {san}?? "]
        texts += [san.replace("O", "0"), san.rstrip("+#"), san.replace("=", "")]
        for text in texts:
            assert read_move(board, text) == move, text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", MALFORMED),
        ("castles", MALFORMED),
        ("Nf9", MALFORMED),
        ("e5 Nf6", MALFORMED),
        ("<k><e8><e7>", MALFORMED),
        ("--", MALFORMED),
        ("0000", MALFORMED),
        ("Qd8", ILLEGAL),
        ("e2e4", ILLEGAL),
        ("Ra9", MALFORMED),
        ("e8h8x", MALFORMED),
    ],
)
def test_what_is_no_legal_move_has_its_reason(text: str, reason: str) -> None:
    with pytest.raises(MoveTextError) as caught:
        read_move(CASTLES, text)
    assert caught.value.reason == reason


def test_castling_is_the_kings_step_whichever_way_it_comes() -> None:
    for text in ("O-O", "0-0", "12...O-O", "e8g8", "e8h8", "o-o".upper()):
        assert read_move(CASTLES, text).uci() == "e8g8"
    assert read_move(CASTLES, "0-0-0+").uci() == "e8c8"


def test_a_move_that_could_be_two_is_none() -> None:
    board = chess.Board("4k3/8/8/8/8/8/4K3/R6R w - - 0 1")
    with pytest.raises(MoveTextError):
        read_move(board, "Rd1")
    assert read_move(board, "Rad1").uci() == "a1d1"


@settings(max_examples=60, deadline=None)
@given(played_boards(), st.integers(0, 6), st.booleans())
def test_a_line_is_kept_up_to_its_first_fault(board: chess.Board, at: int, uci: bool) -> None:
    moves = [move.uci() for move in board.move_stack]
    start = board.root()
    here, texts = start.copy(), []
    for move in board.move_stack:
        texts.append(move.uci() if uci else here.san(move))
        here.push(move)
    assert read_line(start, texts) == (tuple(moves), 0)
    spoilt = [*texts[:at], "nonsense", *texts[at:]]
    at = min(at, len(moves))
    assert read_line(start, spoilt) == (tuple(moves[:at]), len(moves) + 1 - at)
