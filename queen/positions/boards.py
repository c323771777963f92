"""Many packed positions as boards at once: what is common to all is done by numpy."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np

from queen.positions.packed import (
    BLACK_ROOKS,
    EN_PASSANT,
    NO_SQUARE,
    SIDE,
    WHITE_ROOKS,
    Packed,
    squares_of,
)


def boards_of(
    packed: Packed, halfmove: Sequence[int], fullmove: Sequence[int]
) -> list[chess.Board]:
    """The boards of positions [n, 36], as `unpack` gives them one by one."""
    squares = squares_of(packed)
    masks = {code: _masks(squares, code) for code in (*range(1, 7), *range(9, 15))}
    tails = packed[:, SIDE:].tolist()
    boards = []
    for number, tail in enumerate(tails):
        board = chess.Board.empty()
        _place(board, [masks[code][number] for code in masks])
        _finish(board, tail)
        board.halfmove_clock, board.fullmove_number = halfmove[number], fullmove[number]
        boards.append(board)
    return boards


def _masks(squares: Packed, code: int) -> list[int]:
    """Bitboards [n] of the squares that hold a code."""
    bits = np.packbits(squares == code, axis=1, bitorder="little")
    masks: list[int] = np.ascontiguousarray(bits).view("<u8")[:, 0].tolist()
    return masks


def _place(board: chess.Board, masks: Sequence[int]) -> None:
    """Bitboards of White's pawn to king, then Black's."""
    white, black = masks[:6], masks[6:]
    pieces = [a | b for a, b in zip(white, black, strict=True)]
    board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings = pieces
    ours = white[0] | white[1] | white[2] | white[3] | white[4] | white[5]
    theirs = black[0] | black[1] | black[2] | black[3] | black[4] | black[5]
    board.occupied_co[chess.WHITE], board.occupied_co[chess.BLACK] = ours, theirs
    board.occupied = ours | theirs


def _finish(board: chess.Board, tail: Sequence[int]) -> None:
    """The bytes behind the squares: side, castling rights, en passant."""
    board.turn = not tail[0]
    board.castling_rights = tail[WHITE_ROOKS - SIDE] | tail[BLACK_ROOKS - SIDE] << 56
    square = tail[EN_PASSANT - SIDE]
    board.ep_square = None if square == NO_SQUARE else square
    if board.castling_rights:
        board.chess960 = board.has_chess960_castling_rights()
