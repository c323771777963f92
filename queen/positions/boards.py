"""Many packed positions as boards and FENs at once: what is common to all is done by numpy."""

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

_LETTERS = np.frombuffer(b"1PNBRQK11pnbrqk1", np.uint8)
_RUNS = [("1" * n, str(n)) for n in range(8, 1, -1)]
_CORNERS = {
    chess.BB_H1: "K",
    chess.BB_A1: "Q",
    chess.BB_H8: "k",
    chess.BB_A8: "q",
}
_STANDARD = chess.BB_H1 | chess.BB_A1 | chess.BB_H8 | chess.BB_A8


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


def placements_of(packed: Packed) -> list[str]:
    """The first field of the FENs of positions [n, 36]."""
    letters = _LETTERS[squares_of(packed)].reshape(-1, 8, 8)[:, ::-1]
    lines = np.full((len(packed), 8, 9), ord("/"), np.uint8)
    lines[:, :, :8] = letters
    text = lines.tobytes().decode("ascii")
    return [_shortened(text[at : at + 71]) for at in range(0, len(text), 72)]


def _shortened(placement: str) -> str:
    for run, digit in _RUNS:
        placement = placement.replace(run, digit)
    return placement


def fen_of(board: chess.Board, placement: str) -> str:
    """The FEN of an unpacked board, whose first field is known."""
    rights = board.castling_rights
    if rights & ~_STANDARD or board.chess960:
        castling = board.castling_xfen()
    else:
        castling = "".join(word for mask, word in _CORNERS.items() if rights & mask) or "-"
    square = "-" if board.ep_square is None else chess.SQUARE_NAMES[board.ep_square]
    side = "w" if board.turn else "b"
    clocks = f"{board.halfmove_clock} {board.fullmove_number}"
    return f"{placement} {side} {castling} {square} {clocks}"
