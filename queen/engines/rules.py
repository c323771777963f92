"""Positions the rules answer: illegal ones and games that are over."""

from __future__ import annotations

from dataclasses import dataclass

import chess

from queen.engines.analysis import Analysis, EngineFailure, Line
from queen.engines.score import Score

SEVENTY_FIVE_MOVES = 150  # plies without capture or pawn move that end a game (FIDE 9.6.2)


@dataclass(frozen=True)
class Ready:
    """A legal position with a game to go on: what may be sent to an engine.

    `fen` is the canonical FEN: en passant only where a capture is legal.
    """

    fen: str
    board: chess.Board


def examine(fen: str) -> Ready | Analysis | EngineFailure:
    """Sort a FEN: fit for an engine, over by the rules, or illegal (some engines crash on those).

    Repetition cannot be told from a FEN; the clock can.
    """
    try:
        board = chess.Board(fen)
    except ValueError as error:
        return EngineFailure(fen, "illegal", f"not a FEN: {error}")
    status = board.status()
    if status != chess.STATUS_VALID:
        return EngineFailure(fen, "illegal", f"not a legal chess position: {status!r}")
    score = final_score(board)
    if score is not None:
        return Analysis(fen, (Line(score, ()),), 0, 0, "rules")
    return Ready(board.fen(en_passant="legal"), board)


def final_score(board: chess.Board) -> Score | None:
    """The side to move's score where the game is over by board and clock, else None."""
    if not any(board.generate_legal_moves()):
        return Score(mate=0) if board.is_check() else Score(cp=0)
    if board.halfmove_clock >= SEVENTY_FIVE_MOVES or board.is_insufficient_material():
        return Score(cp=0)
    return None


def first_illegal(board: chess.Board, moves: tuple[str, ...]) -> str | None:
    """The first move of a line that is no legal UCI move where it is played, or None."""
    here = board.copy(stack=False)
    for uci in moves:
        try:
            here.push(here.parse_uci(uci))
        except ValueError:
            return uci
    return None
