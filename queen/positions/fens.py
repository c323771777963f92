"""FENs of packed positions, many at a time, as python-chess writes them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from chess import KING

from queen.positions.packed import (
    BLACK_CODE,
    BLACK_ROOKS,
    EN_PASSANT,
    NO_SQUARE,
    POSITION_BYTES,
    SIDE,
    WHITE_ROOKS,
    Packed,
    squares_of,
    unpack,
)

ROWS_AT_ONCE = 8192  # so that the letters of a block stay in the processor's caches
_LETTERS = np.frombuffer(b"\0PNBRQK\0\0pnbrqk\0", np.uint8)
# Where the parts of a FEN begin in a row of letters; zeros among them fall out in the end.
_BOARD, _SIDE, _CASTLING, _SQUARE, _HALFMOVE, _FULLMOVE, _END = 0, 71, 74, 80, 83, 87, 93
_USUAL = ["".join(c for c, bit in zip("KQkq", f"{n:04b}", strict=True) if bit == "1") or "-"
          for n in range(16)]  # fmt: skip

Numbers = npt.NDArray[np.integer[npt.NBitBase]]


def fens(packed: Packed, halfmove: Numbers, fullmove: Numbers) -> list[str]:
    """The FENs of positions, equal to python-chess's `fen(en_passant="legal")`.

    Args:
        packed: positions, [n, 36].
        halfmove: clocks of the fifty-move rule, [n], below 1,000.
        fullmove: numbers of the move, [n], below 100,000.
    """
    found: list[str] = []
    for first in range(0, len(packed), ROWS_AT_ONCE):
        block = slice(first, first + ROWS_AT_ONCE)
        found += _strings(_letters(packed[block], halfmove[block], fullmove[block]))
    return found


def _letters(packed: Packed, halfmove: Numbers, fullmove: Numbers) -> npt.NDArray[np.uint8]:
    """FENs as rows of letters with zeros among them, [n, _END]."""
    out = np.zeros((len(packed), _END), np.uint8)
    out[:, _BOARD:_SIDE] = _boards(packed)
    out[:, _SIDE] = out[:, _SIDE + 2] = ord(" ")
    out[:, _SIDE + 1] = np.where(packed[:, SIDE] == 0, ord("w"), ord("b"))
    out[:, _CASTLING : _CASTLING + 4] = _castling(packed)
    out[:, _SQUARE - 1] = ord(" ")
    square = packed[:, EN_PASSANT]
    told = square != NO_SQUARE
    out[:, _SQUARE] = np.where(told, ord("a") + square % 8, ord("-"))
    out[:, _SQUARE + 1] = np.where(told, ord("1") + square // 8, 0)
    out[:, _HALFMOVE - 1] = out[:, _FULLMOVE - 1] = ord(" ")
    out[:, _HALFMOVE : _HALFMOVE + 3] = _digits(halfmove, 3)
    out[:, _FULLMOVE : _FULLMOVE + 5] = _digits(fullmove, 5)
    return out


def _strings(letters: npt.NDArray[np.uint8]) -> list[str]:
    told = letters != 0
    text = letters[told].tobytes()
    ends = np.concatenate([[0], np.cumsum(told.sum(axis=1))]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(text)]
    strings: list[str] = pa.Array.from_buffers(pa.string(), len(letters), buffers).to_pylist()
    return strings


def _boards(packed: Packed) -> npt.NDArray[np.uint8]:
    """The first field, [n, 71]: eight letters a rank, the eighth first, slashes between."""
    codes = squares_of(packed).reshape(-1, 8, 8)[:, ::-1].transpose(2, 1, 0)
    out = np.zeros((len(packed), 8, 9), np.uint8)
    run = np.zeros(codes.shape[1:], np.uint8)
    for file in range(8):
        code = codes[file]
        empty = code == 0
        run = (run + 1) * empty
        last = empty & (codes[file + 1] != 0) if file < 7 else empty
        out[:, :, file] = (_LETTERS[code] + last * (run + ord("0"))).T
    out[:, :7, 8] = ord("/")
    letters: npt.NDArray[np.uint8] = out.reshape(-1, 72)[:, :71]
    return letters


def _castling(packed: Packed) -> npt.NDArray[np.uint8]:
    """The third field, [n, 4]."""
    white, black = packed[:, WHITE_ROOKS], packed[:, BLACK_ROOKS]
    usual = (white >> 7 << 3) | (white & 1) << 2 | (black >> 7 << 1) | (black & 1)
    out: npt.NDArray[np.uint8] = _table(_USUAL)[usual]
    e1, e8 = packed[:, 2] & 15, packed[:, 30] & 15
    odd = (((white | black) & 0x7E) != 0) | ((white != 0) & (e1 != KING))
    odd |= (black != 0) & (e8 != KING + BLACK_CODE)
    rows = np.flatnonzero(odd)
    if len(rows):
        out[rows] = _castling_of_chess960(packed[rows])
    return out


def _castling_of_chess960(packed: Packed) -> npt.NDArray[np.uint8]:
    """The same by python-chess, once for each back ranks and rights among the positions."""
    same = packed.copy()
    same[:, 4:28] = 0  # what stands between has no say
    same[:, [SIDE, EN_PASSANT]] = 0, NO_SQUARE
    keys = np.ascontiguousarray(same).view(f"V{POSITION_BYTES}").ravel()
    distinct, which = np.unique(keys, return_inverse=True)
    words: npt.NDArray[np.uint8] = _table([unpack(k.tobytes()).castling_xfen() for k in distinct])
    return words[which]


def _table(words: list[str]) -> npt.NDArray[np.uint8]:
    """Words as rows of letters, [n, 4]."""
    return np.array([list(word.encode().ljust(4, b"\0")) for word in words], np.uint8)


def _digits(numbers: Numbers, width: int) -> npt.NDArray[np.uint8]:
    """Numbers as letters, [n, width], zeros in place of leading zeros."""
    values = numbers.astype(np.int64)
    powers = 10 ** np.arange(width - 1, -1, -1)
    shown = (values[:, None] >= powers) | (powers == 1)
    return np.where(shown, values[:, None] // powers % 10 + ord("0"), 0).astype(np.uint8)
