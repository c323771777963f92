"""A position in 36 bytes: what makes it the same position, and nothing else.

Two boards have the same bytes exactly if pieces, side to move, castling rights and a capturable
en-passant square are the same (METHOD, section 2). Clocks are no part of it.

| bytes | what |
|---|---|
| 0..31 | squares a1, b1, ... h8, two in a byte, the even one in the low half: 0 empty, 1 to 6
  White's pawn to king, 9 to 14 Black's |
| 32 | 0 White to move, 1 Black |
| 33, 34 | files of the rooks that may still castle, bit 0 the a-file: White's, Black's |
| 35 | en-passant square 0..63 if a capture there is legal, else 255 |
"""

from __future__ import annotations

import chess
import numpy as np
import numpy.typing as npt

POSITION_BYTES = 36
SIDE, WHITE_ROOKS, BLACK_ROOKS, EN_PASSANT = 32, 33, 34, 35
NO_SQUARE = 255
BLACK_CODE = 8

Packed = npt.NDArray[np.uint8]


def pack(board: chess.Board) -> bytes:
    """The 36 bytes of a board, standard chess or Chess960."""
    squares = np.zeros(64, np.uint8)
    for square, piece in board.piece_map().items():
        squares[square] = piece.piece_type + (0 if piece.color else BLACK_CODE)
    out = np.empty(POSITION_BYTES, np.uint8)
    out[:32] = squares[0::2] | squares[1::2] << 4
    rights = board.clean_castling_rights()
    out[SIDE] = not board.turn
    out[WHITE_ROOKS], out[BLACK_ROOKS] = rights & 0xFF, rights >> 56
    behind = board.ep_square if board.has_legal_en_passant() else None
    out[EN_PASSANT] = NO_SQUARE if behind is None else behind
    return out.tobytes()


def unpack(data: bytes, halfmove: int = 0, fullmove: int = 1) -> chess.Board:
    """The board of 36 bytes; a Chess960 board if castling needs one.

    Args:
        halfmove, fullmove: the clocks, which the bytes do not hold.
    """
    board = chess.Board.empty()
    for square, code in enumerate(squares_of(np.frombuffer(data, np.uint8)[None])[0].tolist()):
        if code:
            board.set_piece_at(square, chess.Piece(code & 7, code < BLACK_CODE))
    board.turn = not data[SIDE]
    board.castling_rights = data[WHITE_ROOKS] | data[BLACK_ROOKS] << 56
    board.ep_square = None if data[EN_PASSANT] == NO_SQUARE else data[EN_PASSANT]
    board.halfmove_clock, board.fullmove_number = halfmove, fullmove
    board.chess960 = board.has_chess960_castling_rights()
    return board


def squares_of(packed: Packed) -> Packed:
    """Codes of the 64 squares, [n, 64], of packed positions [n, 36]."""
    squares = np.empty((len(packed), 64), np.uint8)
    squares[:, 0::2] = packed[:, :32] & 15
    squares[:, 1::2] = packed[:, :32] >> 4
    return squares
