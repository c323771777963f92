"""The 112 input planes of lc0, from positions with their history.

Planes are drawn from the side to move's view, square index rank*8 + file. Eight boards of 13
planes, newest first: ours P N B R Q K, theirs P N B R Q K, all ones if the position had occurred
before; then eight planes that depend on the input format. Source: LC0 file format, "Input planes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import chess
import numpy as np
from numpy.typing import NDArray

from queen.games.chess.position import Position
from queen.networks.lc0.errors import UnsupportedNet
from queen.networks.lc0.format import INPUTS
from queen.networks.lc0.history import BITBOARDS, BOARDS, Histories, History

PLANES = 112
BLACK_PLANE = 108

Planes = NDArray[np.float32]
_Encoder = Callable[[Sequence[History], NDArray[np.bool_]], Planes]

_THEIRS_FIRST = np.array([*range(6, 12), *range(6), 12])
_HISTORIES = Histories()


def encode_planes(
    positions: Sequence[Position],
    input_format: int = 1,
    histories: Histories | None = None,
) -> Planes:
    """The planes of positions, as float32 [B, 112, 8, 8] (rank, file of the mover's view).

    Args:
        positions: legal positions; moves known before them enter the older boards.
        input_format: the network's (`Lc0Config.format.input`).
        histories: where built histories are kept; one shared by the process by default.

    Raises UnsupportedNet naming a format without implementation, PositionError on an illegal
    position.
    """
    kept = histories or _HISTORIES
    return encode_histories([kept.of(position) for position in positions], input_format)


def encode_histories(histories: Sequence[History], input_format: int = 1) -> Planes:
    """As `encode_planes`, from histories already built."""
    encode = ENCODERS.get(input_format)
    if encode is None:
        raise UnsupportedNet(
            f"input format {INPUTS.get(input_format, 'unknown')} ({input_format}) is not supported",
            where="network_format.input",
            remedy=f"use a network with one of: {', '.join(INPUTS[i] for i in sorted(ENCODERS))}",
        )
    black = np.fromiter((not one.board.turn for one in histories), np.bool_, len(histories))
    return encode(histories, black)


def black_to_move(planes: Planes) -> NDArray[np.bool_]:
    """For planes of format 1 [B, 112, 8, 8], whether Black is to move: [B]."""
    return planes[:, BLACK_PLANE, 0, 0] > 0.5


def _classical(histories: Sequence[History], black: NDArray[np.bool_]) -> Planes:
    planes = np.empty((len(histories), PLANES, 64), np.float32)
    planes[:, : BOARDS * BITBOARDS] = _boards(histories, black)
    aux = np.zeros((len(histories), PLANES - BOARDS * BITBOARDS), np.float32)
    aux[:, :4] = np.array([_castling(one.board) for one in histories]).reshape(-1, 4)
    aux[:, 4] = black
    aux[:, 5] = [one.board.halfmove_clock for one in histories]
    aux[:, 7] = 1
    planes[:, BOARDS * BITBOARDS :] = aux[:, :, None]
    return planes.reshape(-1, PLANES, 8, 8)


def _boards(histories: Sequence[History], black: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The board planes, [B, 104, 64] of zeros and ones."""
    parts = [part for one in histories for part in (*one.frames, one.fill * _missing(one))]
    ranks = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, BOARDS, BITBOARDS, 8)
    turned = ranks[:, :, _THEIRS_FIRST, ::-1]  # a bitboard's bytes are its ranks
    seen = np.where(black[:, None, None, None], turned, ranks)
    return np.unpackbits(seen, axis=-1, bitorder="little").reshape(-1, BOARDS * BITBOARDS, 64)


def _missing(history: History) -> int:
    return BOARDS - len(history.frames)


def _castling(board: chess.Board) -> tuple[bool, bool, bool, bool]:
    """Our queenside and kingside castling rights, then theirs."""
    us = board.turn
    return (
        board.has_queenside_castling_rights(us),
        board.has_kingside_castling_rights(us),
        board.has_queenside_castling_rights(not us),
        board.has_kingside_castling_rights(not us),
    )


ENCODERS: Mapping[int, _Encoder] = {1: _classical}
