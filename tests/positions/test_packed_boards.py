"""Boards and FENs of many positions at once are those of each alone."""

from __future__ import annotations

import random

import chess
import numpy as np
import pytest

from queen.positions.boards import boards_of
from queen.positions.fens import fens
from queen.positions.packed import POSITION_BYTES, pack, unpack


def played(seed: int, chess960: bool) -> list[chess.Board]:
    rng = random.Random(seed)
    board = chess.Board.from_chess960_pos(rng.randrange(960)) if chess960 else chess.Board()
    found = []
    while len(found) < 80 and not board.is_game_over():
        moves = list(board.legal_moves)
        board.push(rng.choice([m for m in moves if board.is_castling(m)] or moves))
        found.append(board.copy(stack=False))
    return found


@pytest.mark.parametrize("chess960", [False, True])
def test_they_are_what_unpack_gives(chess960: bool) -> None:
    boards = [board for seed in range(12) for board in played(seed, chess960)]
    boards.append(chess.Board("rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3"))
    data = [pack(board) for board in boards]
    packed = np.frombuffer(b"".join(data), np.uint8).reshape(-1, POSITION_BYTES)
    halfmoves = [board.halfmove_clock for board in boards]
    fullmoves = [board.fullmove_number for board in boards]
    made = boards_of(packed, halfmoves, fullmoves)
    texts = fens(packed, np.array(halfmoves), np.array(fullmoves))
    for one, board, text, whole in zip(data, made, texts, boards, strict=True):
        alone = unpack(one, whole.halfmove_clock, whole.fullmove_number)
        assert board == alone
        assert (board.chess960, board.status()) == (alone.chess960, alone.status())
        assert text == alone.fen()
        assert pack(board) == one
    assert any(board.ep_square is not None for board in made)
    assert any(board.chess960 for board in made) == chess960


def test_none_are_none() -> None:
    empty = np.empty((0, POSITION_BYTES), np.uint8)
    none = np.zeros(0, np.int64)
    assert boards_of(empty, [], []) == fens(empty, none, none) == []
