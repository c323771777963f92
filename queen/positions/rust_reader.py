"""Games by the Rust reader: as arrays, made to agree with python-chess.

It takes what it can be trusted with, which is nearly everything, and hands the rest to the
reference: games it finds a fault in (long algebraic moves are one to it), movetext of an unusual
form, and starts that it sees otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import rust_pgn_reader_python_binding as rust
from chess import KING

from queen.games.chess.pgn import NO_MOVES, decoded
from queen.positions import comments
from queen.positions.chess960 import castle_onto_rooks, rights_by_moves
from queen.positions.en_passant import capturable
from queen.positions.headers import USUAL
from queen.positions.packed import (
    BLACK_ROOKS,
    EN_PASSANT,
    NO_SQUARE,
    POSITION_BYTES,
    SIDE,
    WHITE_ROOKS,
    Packed,
    squares_of,
)
from queen.positions.reading import Movetext, Plies, Reader, merged, no_plies
from queen.positions.reference import ReferenceReader

GAMES_AT_ONCE = 512  # so that their arrays stay in the processor's caches
# Movetext of these bytes alone, with comments that close, needs no further look.
_USUAL = b" \n\r0123456789.abcdefghklvxKQRBNO+#=!?-*/{}[]:%"
_COMMENT = rb"\{[^{}]*+\}"
_FIRST = rb"(?:[\s0-9.]|" + _COMMENT + rb")*+[a-hKQRBNO]"  # no variation before the first move
_TAME = re.compile(
    _FIRST + rb"(?:[\s0-9.a-hKQRBNOx+#=!?$*/()-]++|" + _COMMENT + rb")*+\Z",
)
_MATE = b"[%eval #"
_ENDINGS = {"White": 1, "Draw": 0, "Black": -1}


def _pair_codes() -> npt.NDArray[np.uint8]:
    """Our byte of two squares by the reader's two bytes (Black's pieces are 7 to 12 there)."""
    pair = np.arange(1 << 16)
    low, high = pair & 15, pair >> 8 & 15
    low, high = (square + 2 * (square > KING) for square in (low, high))
    return (low | high << 4).astype(np.uint8)


_PAIRS = _pair_codes()
_Moves = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


class RustReader:
    """Reads games with `rust-pgn-reader-python-binding`, the odd ones with the reference."""

    def __init__(self, reference: Reader | None = None) -> None:
        self.reference = reference or ReferenceReader()

    def read(self, games: Sequence[Movetext]) -> Plies:
        """The plies of games, the good ones before a fault too."""
        texts = [_tame(game) for game in games]
        taken = [number for number, text in enumerate(texts) if text is not None]
        pieces, left = [], [number for number, text in enumerate(texts) if text is None]
        for first in range(0, len(taken), GAMES_AT_ONCE):
            numbers = taken[first : first + GAMES_AT_ONCE]
            sure, plies = _read([games[n] for n in numbers], [texts[n] or b"" for n in numbers])
            pieces.append(([numbers[n] for n in np.flatnonzero(sure)], plies))
            left += [numbers[n] for n in np.flatnonzero(~sure)]
        if left:
            pieces.append((left, self.reference.read([games[n] for n in left])))
        return merged(len(games), pieces) if pieces else no_plies(0)


def _tame(game: Movetext) -> bytes | None:
    """The text to read fast, with mates as numbers; None if the reference must read it."""
    body = game.body
    if game.cut:
        return None
    if game.plain and _is_usual(body):
        body = comments.numeric_mates(body) if _MATE in body else body
    else:
        body = comments.numeric(body if body.isascii() else decoded(body).encode())
        if _TAME.match(body) is None:
            return None
    if game.start.fen is None:
        return body
    variant = b'[Variant "Chess960"]\n' if game.start.chess960 else b""
    return b'%s[FEN "%s"]\n\n%s' % (variant, game.start.fen.encode(), body)


def _is_usual(body: bytes) -> bool:
    return not body.translate(None, _USUAL) and body.count(b"{") == body.count(b"}")


def _read(games: Sequence[Movetext], texts: Sequence[bytes]) -> tuple[npt.NDArray[np.bool_], Plies]:
    """Which games were read for sure, [g], and the plies of those."""
    array = pa.chunked_array([pa.array(texts, pa.string())])
    (chunk,) = rust.parse_games(array, num_threads=1).chunks
    if chunk.num_games != len(games):
        return _read_apart(games, texts)
    offsets = np.asarray(chunk.position_offsets, np.int64)
    counts, lengths = _runs(chunk.position_offsets), _runs(chunk.move_offsets)
    if (counts != lengths + 1).any():
        return _read_apart(games, texts)
    moves = _moves(chunk)
    packed = _packed(chunk, games, lengths, moves)
    sure = np.asarray(chunk.valid) & (packed[offsets[:-1]] == _starts(games)).all(axis=1)
    codes = _codes(games, packed, lengths, moves)
    plies = np.repeat(sure, lengths)
    positions = np.repeat(sure, counts)
    positions[offsets[:-1][sure]] = False
    outcomes = [_ENDINGS.get(told or "", -2) for told in chunk.outcome]
    return sure, Plies(
        lengths=lengths[sure],
        packed=packed[positions],
        halfmove=np.asarray(chunk.halfmove_clock)[positions],
        move=codes[plies],
        clock=np.asarray(chunk.clocks)[plies],
        evals=np.asarray(chunk.evals)[plies],
        endings=np.array(outcomes, np.int8)[sure],
        faults=_without_moves(lengths[sure]),
    )


def _read_apart(
    games: Sequence[Movetext], texts: Sequence[bytes]
) -> tuple[npt.NDArray[np.bool_], Plies]:
    """The same where a text is no game to the reader: halved until it stands alone."""
    if len(games) == 1:
        return np.zeros(1, np.bool_), no_plies(0)
    middle = len(games) // 2
    first, second = _read(games[:middle], texts[:middle]), _read(games[middle:], texts[middle:])
    counts = [len(plies.lengths) for _, plies in (first, second)]
    numbers = [range(counts[0]), range(counts[0], sum(counts))]
    halves = list(zip(numbers, (first[1], second[1]), strict=True))
    return np.concatenate([first[0], second[0]]), merged(sum(counts), halves)


def _runs(offsets: Any) -> npt.NDArray[np.int64]:
    ends = np.asarray(offsets, np.int64)
    return ends[1:] - ends[:-1]


def _without_moves(lengths: npt.NDArray[np.int64]) -> dict[int, tuple[str, str]]:
    empty = np.flatnonzero(lengths == 0).tolist()
    return dict.fromkeys(empty, (NO_MOVES, "the game has no moves"))


def _starts(games: Sequence[Movetext]) -> Packed:
    rows = np.frombuffer(b"".join(game.start.row for game in games), np.uint8)
    return rows.reshape(len(games), POSITION_BYTES)


def _packed(
    chunk: Any, games: Sequence[Movetext], lengths: npt.NDArray[np.int64], moves: _Moves
) -> Packed:
    """All positions in 36 bytes, each game's start and then its plies, [n + g, 36]."""
    boards = np.asarray(chunk.boards).reshape(-1, 64)
    out = np.empty((len(boards), POSITION_BYTES), np.uint8)
    out[:, :32] = _PAIRS[boards.view("<u2")]
    white = np.asarray(chunk.turn)
    out[:, SIDE] = ~white
    if all(game.start.rooks == USUAL.rooks and not game.start.chess960 for game in games):
        rights = np.asarray(chunk.castling).astype(np.uint8)
        out[:, WHITE_ROOKS] = rights[:, 0] << 7 | rights[:, 1]
        out[:, BLACK_ROOKS] = rights[:, 2] << 7 | rights[:, 3]
    else:
        starts = [game.start for game in games]
        out[:, WHITE_ROOKS : BLACK_ROOKS + 1] = rights_by_moves(starts, lengths, *moves[:2])
    out[:, EN_PASSANT] = NO_SQUARE
    files = np.asarray(chunk.en_passant)
    told = np.flatnonzero(files >= 0)
    target = files[told].astype(np.int64) + np.where(white[told], 40, 16)
    near = _pawn_near(boards, told, target, white[told])
    told, target = told[near], target[near]
    legal = capturable(squares_of(out[told]), white[told], target)
    out[told[legal], EN_PASSANT] = target[legal]
    return out


def _pawn_near(
    boards: Packed,
    rows: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    white: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Whether a pawn stands beside the one that moved two: the cheap look that most fail."""
    beside: npt.NDArray[np.bool_]
    pushed, file = np.where(white, target - 8, target + 8), target % 8
    pawn = np.where(white, 1, KING + 1)
    left = (file > 0) & (boards[rows, np.maximum(pushed - 1, 0)] == pawn)
    beside = left | (file < 7) & (boards[rows, np.minimum(pushed + 1, 63)] == pawn)
    return beside


def _moves(chunk: Any) -> _Moves:
    """From, to and promotion's piece type of all moves, each [n]."""
    named = (chunk.from_squares, chunk.to_squares, chunk.promotions)
    origin, target, promoted = (np.asarray(x).astype(np.int64) for x in named)
    return origin, target, np.maximum(promoted, 0)


def _codes(
    games: Sequence[Movetext], packed: Packed, lengths: npt.NDArray[np.int64], moves: _Moves
) -> npt.NDArray[np.uint16]:
    """Codes of all moves, [n]."""
    origin, target, promoted = moves
    if any(game.start.chess960 for game in games):
        before = np.arange(len(origin)) + np.repeat(np.arange(len(games)), lengths)
        target = castle_onto_rooks(packed, before, origin, target)
    return (origin | target << 6 | promoted << 12).astype(np.uint16)
