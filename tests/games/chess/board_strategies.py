"""Hypothesis strategies for chess positions, shared by the tests of games and questions."""

from __future__ import annotations

import chess
from hypothesis import strategies as st

RICH_FENS = (
    chess.STARTING_FEN,
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
    "r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1",
    "rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8",
    "8/PPPk4/8/8/8/8/4Kppp/8 b - - 0 1",
    "rnbqkb1r/ppp1pppp/5n2/3pP3/8/8/PPPP1PPP/RNBQKBNR w KQkq d6 0 3",
    "r1bqk2r/ppp2ppp/2n5/3np1N1/1bB5/2N5/PPPP1PPP/R1BQK2R w KQkq - 0 1",
    "4k3/8/8/1r1pP2K/8/8/8/8 w - d6 0 1",
    "3rk3/8/8/q2R3b/8/5N2/3B4/r1NK4 w - - 0 1",
    "r1b1k2r/1pNp1ppp/p1n5/4p3/1b2P3/8/PPPP1PPP/R1BQKB1R b KQkq - 0 1",
    "2r3k1/pp3ppp/3p4/1N1Pp3/4P1b1/2P2P2/P5PP/2R3K1 w - - 0 1",
)


@st.composite
def played_boards(draw: st.DrawFn, plies: int = 30) -> chess.Board:
    """A board with a move stack: a random walk from a rich position."""
    board = chess.Board(draw(st.sampled_from(RICH_FENS)))
    for choice in draw(st.lists(st.integers(0, 10_000), max_size=plies)):
        moves = sorted(board.legal_moves, key=chess.Move.uci)
        if not moves:
            break
        board.push(moves[choice % len(moves)])
    return board


@st.composite
def scattered_boards(draw: st.DrawFn) -> chess.Board:
    """A legal board with pieces anywhere: many pins, forks and loose pieces."""
    squares = draw(st.permutations(range(64)))
    board = chess.Board(None)
    board.set_piece_at(squares[0], chess.Piece.from_symbol("K"))
    board.set_piece_at(squares[1], chess.Piece.from_symbol("k"))
    letters = draw(st.lists(st.sampled_from("PPNBRQppnbrq"), max_size=14))
    for square, letter in zip(squares[2:], letters, strict=False):
        if letter not in "Pp" or 0 < chess.square_rank(square) < 7:
            board.set_piece_at(square, chess.Piece.from_symbol(letter))
    board.turn = draw(st.booleans())
    if not board.is_valid():
        board.turn = not board.turn
    if not board.is_valid():
        for square in (*board.checkers(), *_checkers_of(board, not board.turn)):
            board.remove_piece_at(square)
    return board if board.is_valid() else chess.Board()


def _checkers_of(board: chess.Board, color: chess.Color) -> chess.SquareSet:
    king = board.king(color)
    return board.attackers(not color, king) if king is not None else chess.SquareSet()


def boards() -> st.SearchStrategy[chess.Board]:
    return st.one_of(played_boards(), scattered_boards())
