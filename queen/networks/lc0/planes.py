"""The 112 input planes of lc0, from positions with their history.

Planes are drawn from the side to move's view, square index rank*8 + file. Eight boards of 13
planes, newest first: ours P N B R Q K, theirs P N B R Q K, all ones if the position had occurred
before; then eight planes that depend on the input format. Source: LC0 file format, "Input planes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import chess
import numpy as np
from numpy.typing import NDArray

from queen.games.chess.position import Position
from queen.networks.lc0.errors import UnsupportedNet
from queen.networks.lc0.format import INPUTS
from queen.networks.lc0.history import BITBOARDS, BOARDS, EMPTY_FRAME, Histories, History
from queen.networks.lc0.transform import SQUARES, transform_of, turned

PLANES = 112
BLACK_PLANE = 108

Planes = NDArray[np.float32]

_AUX = BOARDS * BITBOARDS
_THEIRS_FIRST = np.array([*range(6, 12), *range(6), 12])
_HISTORIES = Histories()
_Frames = Callable[[History], Sequence[bytes]]


@dataclass(frozen=True)
class InputRules:
    """How an input format differs from the others.

    Attributes:
        frames: the boards shown of a history, newest first, at most eight.
        rooks: castling as rooks on their squares, not as whole planes.
        canonical: the board is turned and shows en passant, not the side to move.
        rule50_unit: plies of the fifty-move counter for a one.
        armageddon: plane 110 says that Black is to move.
    """

    frames: _Frames
    rooks: bool = True
    canonical: bool = True
    rule50_unit: int = 100
    armageddon: bool = False


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
    rules = FORMATS.get(input_format)
    if rules is None:
        raise UnsupportedNet(
            f"input format {INPUTS.get(input_format, 'unknown')} ({input_format}) is not supported",
            where="network_format.input",
            remedy=f"use a network with one of: {', '.join(INPUTS[i] for i in sorted(FORMATS))}",
        )
    planes = np.zeros((len(histories), PLANES, 64), np.float32)
    black = np.fromiter((not one.board.turn for one in histories), np.bool_, len(histories))
    planes[:, :_AUX] = _boards([rules.frames(one) for one in histories], black)
    _draw_rest(planes[:, _AUX:], histories, black, rules)
    boards: Planes = planes.reshape(-1, PLANES, 8, 8)
    if rules.canonical:
        for row, one in enumerate(histories):
            boards[row] = turned(boards[row].copy(), transform_of(one.board, input_format))
    return boards


def black_to_move(planes: Planes) -> NDArray[np.bool_]:
    """For planes of formats 1 and 2 [B, 112, 8, 8], whether Black is to move: [B]."""
    return planes[:, BLACK_PLANE, 0, 0] > 0.5


def turned_squares(histories: Sequence[History], input_format: int) -> NDArray[np.int64]:
    """[B, 64]: for each square of the mover's view the one of the planes that shows it."""
    return SQUARES[[transform_of(one.board, input_format) for one in histories]]


def _draw_rest(
    aux: Planes, histories: Sequence[History], black: NDArray[np.bool_], rules: InputRules
) -> None:
    """Fill the last eight planes, [B, 8, 64] of zeros."""
    boards = [one.board for one in histories]
    (_draw_rooks if rules.rooks else _draw_rights)(aux, boards)
    if rules.canonical:
        for row, one in enumerate(histories):
            square = one.keys[-1][2]
            if square >= 0:
                aux[row, 4, 56 + chess.square_file(square)] = 1
    else:
        aux[:, 4] = black[:, None]
    clocks = np.array([board.halfmove_clock for board in boards], np.float32)
    aux[:, 5] = (clocks / np.float32(rules.rule50_unit))[:, None]
    if rules.armageddon:
        aux[:, 6] = black[:, None]
    aux[:, 7] = 1


def _boards(frames: Sequence[Sequence[bytes]], black: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The board planes, [B, 104, 64] of zeros and ones."""
    parts = [part for one in frames for part in one]
    ranks = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, BOARDS, BITBOARDS, 8)
    mirrored = ranks[:, :, _THEIRS_FIRST, ::-1]  # a bitboard's bytes are its ranks
    seen = np.where(black[:, None, None, None], mirrored, ranks)
    return np.unpackbits(seen, axis=-1, bitorder="little").reshape(-1, _AUX, 64)


def _all_frames(history: History) -> Sequence[bytes]:
    """What is known, and the fill for what is not."""
    return (*history.frames, *[history.fill] * (BOARDS - len(history.frames)))


def _recent_frames(history: History) -> Sequence[bytes]:
    """Only boards that could come again: none from before an irreversible move, a lost castling
    right or an older en-passant square."""
    shown, keys = [history.frames[0]], history.keys
    for frame, key in zip(history.frames[1:], keys[-2::-1], strict=False):
        if key[1] != keys[-1][1] or key[2] >= 0:
            return _padded(shown)
        shown.append(frame)
    begins_reversibly = history.board.halfmove_clock >= len(keys)
    if begins_reversibly and len(shown) == len(keys) and keys[0][2] < 0:
        shown += [history.fill] * (BOARDS - len(shown))
    return _padded(shown)


def _repeated_frames(history: History) -> Sequence[bytes]:
    """The newest board and, of those that could come again, the ones that had come before."""
    shown, keys = [history.frames[0]], history.keys
    first_clock = history.board.halfmove_clock - (len(keys) - 1)
    for place in range(len(keys) - 2, -1, -1):
        key = keys[place]
        if key[1] != keys[-1][1] or key[2] >= 0 or len(shown) == BOARDS:
            break
        if first_clock + place >= 4 and key in keys[:place][-4::-2]:
            shown.append(key[0][:-8] + b"\xff" * 8)
    return _padded(shown)


def _padded(frames: list[bytes]) -> Sequence[bytes]:
    return frames + [EMPTY_FRAME] * (BOARDS - len(frames))


def _draw_rights(aux: Planes, boards: Sequence[chess.Board]) -> None:
    """Whole planes: our queenside and kingside castling rights, then theirs."""
    rights = [
        (
            board.has_queenside_castling_rights(board.turn),
            board.has_kingside_castling_rights(board.turn),
            board.has_queenside_castling_rights(not board.turn),
            board.has_kingside_castling_rights(not board.turn),
        )
        for board in boards
    ]
    aux[:, :4] = np.array(rights, np.float32).reshape(-1, 4, 1)


def _draw_rooks(aux: Planes, boards: Sequence[chess.Board]) -> None:
    """Rooks that may castle, each on its square: queenside ones, then kingside ones."""
    for row, board in enumerate(boards):
        for square in chess.scan_forward(board.clean_castling_rights()):
            king = board.king(chess.square_rank(square) == 0)
            kingside = king is not None and square > king
            aux[row, int(kingside), square if board.turn else square ^ 56] = 1


FORMATS: Mapping[int, InputRules] = {
    1: InputRules(_all_frames, rooks=False, canonical=False, rule50_unit=1),
    2: InputRules(_all_frames, canonical=False, rule50_unit=1),
    3: InputRules(_recent_frames, rule50_unit=1),
    4: InputRules(_recent_frames),
    5: InputRules(_repeated_frames),
    132: InputRules(_recent_frames, armageddon=True),
    133: InputRules(_repeated_frames, armageddon=True),
}
