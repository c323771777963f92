"""36 bytes are the same exactly where the position is."""

from __future__ import annotations

import random

import chess
import pytest

from queen.positions.packed import POSITION_BYTES, pack, unpack
from queen.positions.schema import move_code, move_of


def walk(seed: int, board: chess.Board, plies: int = 80) -> list[chess.Board]:
    rng = random.Random(seed)
    seen = []
    for _ in range(plies):
        moves = list(board.legal_moves)
        if not moves:
            break
        board.push(rng.choice(moves))
        seen.append(board.copy(stack=False))
    return seen


@pytest.mark.parametrize("seed", range(8))
def test_a_board_comes_back(seed: int) -> None:
    start = chess.Board() if seed % 2 else chess.Board.from_chess960_pos(seed * 37)
    for board in walk(seed, start):
        data = pack(board)
        assert len(data) == POSITION_BYTES
        back = unpack(data, board.halfmove_clock, board.fullmove_number)
        assert back.fen(en_passant="legal") == board.fen(en_passant="legal")
        assert set(back.legal_moves) == set(board.legal_moves)
        assert pack(back) == data


def test_only_a_capturable_pawn_counts() -> None:
    board = chess.Board()
    board.push_uci("e2e4")
    quiet = chess.Board("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1")
    assert pack(board) == pack(quiet)
    with_capture = chess.Board("rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 3")
    without = chess.Board("rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 3")
    assert pack(with_capture) != pack(without)


def test_moves_come_back() -> None:
    for uci in ("e2e4", "e1g1", "a7a8q", "b7a8n"):
        move = chess.Move.from_uci(uci)
        assert move_of(move_code(move)) == move
    assert move_of(0) is None
