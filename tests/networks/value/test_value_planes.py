"""The 18 planes against python-chess, square by square."""

from __future__ import annotations

import random

import chess
import numpy as np
import pytest
import torch

from queen.networks.value.planes import PLANES, planes_of
from queen.positions.packed import pack


def planes_by_hand(board: chess.Board) -> np.ndarray:
    """The planes as the table says, with python-chess's own words."""
    planes = np.zeros((PLANES, 8, 8), np.uint8)
    turn = board.turn
    seen = (lambda square: square) if turn else chess.square_mirror
    for square, piece in board.piece_map().items():
        plane = piece.piece_type - 1 + (0 if piece.color == turn else 6)
        planes[plane].flat[seen(square)] = 1
    for number, color in enumerate((turn, not turn)):
        king = board.king(color)
        for rook in chess.SquareSet(board.clean_castling_rights()):
            if board.color_at(rook) == color:
                right = chess.square_file(rook) > chess.square_file(king)
                planes[12 + 2 * number + (not right), :, chess.square_file(rook)] = 1
    if board.has_legal_en_passant():
        planes[16].flat[seen(board.ep_square)] = 1
    planes[17] = min(board.halfmove_clock, 100)
    return planes


def both(boards: list[chess.Board]) -> tuple[np.ndarray, np.ndarray]:
    packed = np.stack([np.frombuffer(pack(board), np.uint8) for board in boards])
    clocks = torch.tensor([board.halfmove_clock for board in boards])
    found = planes_of(torch.from_numpy(packed), clocks)
    assert found.dtype == torch.uint8
    return found.numpy(), np.stack([planes_by_hand(board) for board in boards])


@pytest.mark.parametrize("chess960", [False, True])
def test_planes_agree_with_python_chess_along_games(chess960: bool) -> None:
    rng, boards = random.Random(7), []
    for _ in range(12):
        board = chess.Board.from_chess960_pos(rng.randrange(960)) if chess960 else chess.Board()
        for _ in range(60):
            if board.is_game_over():
                break
            board.push(rng.choice(list(board.legal_moves)))
            boards.append(board.copy(stack=False))
    found, wanted = both(boards)
    assert wanted[:, 12:16].any((0, 2, 3)).all()
    for number, board in enumerate(boards):
        assert np.array_equal(found[number], wanted[number]), board.fen()


@pytest.mark.parametrize(
    ("fen", "square"),
    [
        ("rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3", chess.F6),
        ("rnbqkbnr/pppp1ppp/8/8/3Pp3/8/PPP1PPPP/RNBQKBNR b KQkq d3 0 2", chess.D6),
        ("rnbqkbnr/pppp1ppp/8/4p3/8/8/PPPPPPPP/RNBQKBNR w KQkq e6 0 2", None),
    ],
)
def test_en_passant_stands_only_where_it_can_be_taken(fen: str, square: int | None) -> None:
    found, wanted = both([chess.Board(fen)])
    assert np.array_equal(found, wanted)
    assert found[0, 16].sum() == (square is not None)
    if square is not None:
        assert found[0, 16].flat[square] == 1


def test_a_clock_beyond_a_hundred_stays_there() -> None:
    found, _ = both([chess.Board("8/8/4k3/8/8/3QK3/8/8 w - - 140 200")])
    assert (found[0, 17] == 100).all()
