"""What a reader of games gives: the plies of many games as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from queen.positions.headers import Start
from queen.positions.packed import POSITION_BYTES, Packed

ReaderName = Literal["auto", "rust", "python-chess"]


@dataclass(slots=True)
class Movetext:
    """The moves of one game as text.

    Attributes:
        body: bytes between the headers and the next game's.
        start: where the game begins.
        plain: the text comes as it stands in the file (see `cutting.GameText`).
        cut: the file broke off within it, so that its last word may be half a one.
    """

    body: bytes
    start: Start
    plain: bool = True
    cut: bool = False


@dataclass
class Plies:
    """The plies of some games, one after another; n plies, g games.

    Attributes:
        lengths: plies of each game, int64 [g].
        packed: positions after each move, uint8 [n, 36].
        halfmove: clock of the fifty-move rule, at most 255, uint8 [n].
        move: codes of the moves (`queen.positions.schema`), uint16 [n].
        clock: seconds left to who moved, float32 [n], NaN if not told.
        evals: pawns as White sees them, float32 [n], NaN if not told; mates as in `comments`.
        endings: result at the end of the movetext, int8 [g]; -2 for none.
        faults: kind and detail of what is wrong with a game, by its number.
    """

    lengths: npt.NDArray[np.int64]
    packed: Packed
    halfmove: npt.NDArray[np.uint8]
    move: npt.NDArray[np.uint16]
    clock: npt.NDArray[np.float32]
    evals: npt.NDArray[np.float32]
    endings: npt.NDArray[np.int8]
    faults: dict[int, tuple[str, str]]


class Reader(Protocol):
    """Reads games; every reader gives the same plies for the same text."""

    def read(self, games: Sequence[Movetext]) -> Plies: ...


def no_plies(games: int) -> Plies:
    """Plies of games that have none."""
    return Plies(
        lengths=np.zeros(games, np.int64),
        packed=np.zeros((0, POSITION_BYTES), np.uint8),
        halfmove=np.zeros(0, np.uint8),
        move=np.zeros(0, np.uint16),
        clock=np.zeros(0, np.float32),
        evals=np.zeros(0, np.float32),
        endings=np.full(games, -2, np.int8),
        faults={},
    )


def merged(games: int, pieces: Sequence[tuple[Sequence[int], Plies]]) -> Plies:
    """Plies of games that several reads gave, in the games' order.

    Args:
        games: how many there are.
        pieces: of each read the numbers of its games, and their plies.
    """
    out = no_plies(games)
    numbers = np.concatenate([np.asarray(n, np.int64) for n, _ in pieces])
    lengths = np.concatenate([p.lengths for _, p in pieces])
    out.lengths[numbers] = lengths
    out.endings[numbers] = np.concatenate([p.endings for _, p in pieces])
    order = _order(lengths, np.argsort(numbers))
    for name in ("packed", "halfmove", "move", "clock", "evals"):
        setattr(out, name, np.concatenate([getattr(p, name) for _, p in pieces])[order])
    for own, piece in pieces:
        out.faults.update((own[number], fault) for number, fault in piece.faults.items())
    return out


def _order(lengths: npt.NDArray[np.int64], games: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Row numbers that bring runs of rows into another order."""
    starts = np.cumsum(lengths) - lengths
    long = lengths[games]
    begin = np.cumsum(long) - long
    order: npt.NDArray[np.int64] = np.arange(long.sum()) + np.repeat(starts[games] - begin, long)
    return order
