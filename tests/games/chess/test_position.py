"""Positions told by the moves that led to them."""

from __future__ import annotations

import chess
import pytest
from board_strategies import played_boards
from hypothesis import given

from queen.games.chess import position
from queen.games.chess.position import Position, PositionError, identity


@given(played_boards())
def test_what_a_position_tells_is_what_its_board_says(board: chess.Board) -> None:
    here = Position(board.root().fen(), tuple(move.uci() for move in board.move_stack))
    assert here.fen == board.fen(en_passant="legal")
    assert here.key == identity(board)
    assert here.is_over == board.is_game_over()
    assert here.white_to_move == (board.turn == chess.WHITE)


@pytest.mark.parametrize("moves_before", [(), ("e2e4", "e7e5")])
def test_a_position_met_five_times_is_over(moves_before: tuple[str, ...]) -> None:
    round_trip = ("g1f3", "g8f6", "f3g1", "f6g8")
    for times in range(1, 5):
        here = Position(chess.STARTING_FEN, (*moves_before, *round_trip * times))
        assert here.is_over == (times == 4)


def test_children_of_a_position_share_the_replay_of_its_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[str] = []
    real = position.played

    def counting(board: chess.Board, uci: str) -> chess.Move:
        counted.append(uci)
        return real(board, uci)

    monkeypatch.setattr(position, "played", counting)
    here = Position(chess.STARTING_FEN, ("a2a3", "h7h6", "b2b3", "g7g6", "h2h3", "a7a6"))
    fens = {here.child(uci).fen for uci in ("c2c3", "d2d3", "e2e3", "f2f3")}
    assert len(fens) == 4
    assert len(counted) <= len(here.moves) + 4


def test_a_changed_copy_does_not_change_what_is_told() -> None:
    here = Position(chess.STARTING_FEN, ("e2e4",))
    here.board().push_uci("e7e5")
    assert Position(chess.STARTING_FEN, ("e2e4",)).board().turn == chess.BLACK


def test_an_illegal_move_is_named_with_its_ply() -> None:
    with pytest.raises(PositionError, match="'e2e5' at ply 2"):
        _ = Position(chess.STARTING_FEN, ("e2e4", "e7e5", "e2e5")).fen
