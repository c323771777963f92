"""Openings: balanced, distinct, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import chess
import pytest

from queen.engines.match import material_verdict
from queen.engines.openings import OpeningError, OpeningRules, draw_opening, draw_openings
from queen.games.chess.position import identity


def test_openings_are_distinct_balanced_and_of_the_lengths_asked() -> None:
    rules = OpeningRules(min_plies=2, max_plies=6)
    openings = draw_openings(60, 3, material_verdict, rules)
    boards = [opening.board() for opening in openings]
    assert len({identity(board) for board in boards}) == 60
    assert {len(opening.moves) for opening in openings} == {2, 3, 4, 5, 6}
    assert all(abs(value - 0.5) < 0.14 for value in material_verdict(boards))
    assert not any(board.is_game_over() for board in boards)


def test_a_longer_list_begins_with_the_shorter() -> None:
    rules = OpeningRules(max_plies=3)
    assert draw_openings(30, 1, material_verdict, rules)[:12] == draw_openings(
        12, 1, material_verdict, rules
    )
    assert draw_openings(5, 1, material_verdict) != draw_openings(5, 2, material_verdict)


def test_openings_found_unbalanced_are_drawn_again() -> None:
    asked: list[str] = []

    def only_white_e4(boards: Sequence[chess.Board]) -> list[float]:
        asked.extend(board.fen() for board in boards)
        return [0.5 if board.move_stack[0].uci() == "e2e4" else 0.9 for board in boards]

    opening = draw_opening(random.Random(0), only_white_e4)
    assert opening.moves[0] == "e2e4"
    assert len(asked) > 1


def test_no_balanced_opening_is_an_error_that_says_so() -> None:
    rules = OpeningRules(attempts=7)
    with pytest.raises(OpeningError, match="in 7 draws"):
        draw_opening(random.Random(0), lambda boards: [0.8 for _ in boards], rules)


def test_taken_positions_are_left_alone() -> None:
    one_ply = OpeningRules(min_plies=1, max_plies=1)
    taken = {identity(_after(move)) for move in chess.Board().legal_moves}
    spared = identity(_after(chess.Move.from_uci("b1c3")))
    opening = draw_opening(random.Random(0), material_verdict, one_ply, taken=taken - {spared})
    assert opening.moves == ("b1c3",)
    with pytest.raises(OpeningError):
        draw_opening(random.Random(0), material_verdict, one_ply, taken=taken)


def _after(move: chess.Move) -> chess.Board:
    board = chess.Board()
    board.push(move)
    return board
