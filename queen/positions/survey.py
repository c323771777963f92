"""What a table of the bulk data set holds, counted: phases, material, ratings, labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queen.positions.expected import expected_of_cp
from queen.positions.packed import BLACK_CODE, SIDE, Packed, squares_of
from queen.positions.records import fixed_bytes

TENTHS = 10
WORTH = np.array([0, 1, 3, 3, 5, 9, 0, 0, 0, 1, 3, 3, 5, 9, 0, 0], np.int16)  # in pawns
WEIGHT = np.array([0, 0, 1, 1, 2, 4, 0, 0, 0, 0, 1, 1, 2, 4, 0, 0], np.int16)  # of phase, 24 in all
OPENING_PLIES, OPENING_WEIGHT, ENDGAME_WEIGHT = 24, 20, 8

_PHASES = ("opening", "middlegame", "endgame")
_BALANCES = ("-5 and less", "-4 to -3", "-2 to -1", "even", "+1 to +2", "+3 to +4", "+5 and more")
_MEN = ("2 to 8", "9 to 16", "17 to 24", "25 to 32")
_SEEN = ("once", "2 to 9", "10 to 99", "100 to 999", "1,000 and more")
_ELOS = ("below 1,200", "1,200 to 1,599", "1,600 to 1,999", "2,000 to 2,399", "2,400 and more")


@dataclass
class Survey:
    """Counts over the rows added so far.

    Attributes:
        rows: how many.
        histograms: by title, how many rows are of each kind; kinds in their own order.
    """

    rows: int = 0
    histograms: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch of OCCURRENCES, DISTINCT or LABELS."""
        self.rows += len(batch)
        names = set(batch.schema.names)
        packed = fixed_bytes(batch.column("position"))
        if "source" in names:
            self._labels(batch)
        else:
            self._positions(batch, packed)
            self._games(batch, names)

    def _positions(self, batch: pa.RecordBatch, packed: Packed) -> None:
        squares = squares_of(packed)
        ply = _numbers(batch, "ply")
        self._count("phase", _PHASES, phase_of(squares, ply))
        self._count("material, side to move", _BALANCES, _balance_kind(squares, packed[:, SIDE]))
        men = (squares != 0).sum(axis=1)
        self._count("men on the board", _MEN, np.minimum((men - 1) // 8, 3))
        self._count("side to move", ("White", "Black"), packed[:, SIDE])

    def _games(self, batch: pa.RecordBatch, names: set[str]) -> None:
        if "seen" in names:
            seen = _numbers(batch, "seen")
            self._count("seen", _SEEN, np.digitize(seen, [2, 10, 100, 1000]))
        result = np.where(_absent(batch, "result"), 3, 1 - _numbers(batch, "result"))
        self._count("result of the game", ("White won", "draw", "Black won", "none"), result)
        elo = np.maximum(_numbers(batch, "white_elo"), _numbers(batch, "black_elo"))
        kind = np.where(elo > 0, np.digitize(elo, [1200, 1600, 2000, 2400]), len(_ELOS))
        self._count("higher rating", (*_ELOS, "unknown"), kind)
        none = _absent(batch, "eval_cp") & _absent(batch, "eval_mate")
        self._count("the dump's evaluation", ("there", "none"), none)

    def _labels(self, batch: pa.RecordBatch) -> None:
        source = np.array(batch.column("source").to_pylist())
        kinds = label_kinds(_numbers(batch, "cp"), _numbers(batch, "mate"), _absent(batch, "cp"))
        for name in sorted(set(source.tolist())):
            self._count(f"labels, source {name}", LABEL_KINDS, kinds[source == name])
        self._count("source of labels", tuple(sorted(set(source.tolist()))), _ranks(source))

    def _count(self, title: str, names: tuple[str, ...], kinds: npt.NDArray[Any]) -> None:
        found = np.bincount(kinds.astype(np.int64), minlength=len(names)).tolist()
        bins = self.histograms.setdefault(title, dict.fromkeys(names, 0))
        for name, count in zip(names, found, strict=True):
            bins[name] = bins.get(name, 0) + count

    def share(self, title: str) -> Mapping[str, float]:
        """A histogram as shares."""
        bins = self.histograms[title]
        total = max(1, sum(bins.values()))
        return {name: count / total for name, count in bins.items()}


LABEL_KINDS = (
    "is mated",
    *(f"{10 * n} to {10 * n + 10} %" for n in range(TENTHS)),
    "mates",
)


def label_kinds(
    cp: npt.NDArray[np.int64], mate: npt.NDArray[np.int64], is_mate: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Which of LABEL_KINDS each label is: tenths of the expected score, and the two mates."""
    tenth = np.minimum((expected_of_cp(cp) * TENTHS).astype(np.int64), TENTHS - 1)
    return np.where(is_mate, np.where(mate > 0, TENTHS + 1, 0), tenth + 1)


def phase_of(squares: Packed, ply: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """0 opening, 1 middlegame, 2 endgame, of squares [n, 64].

    By the pieces left (a knight or bishop 1, a rook 2, a queen 4, 24 at the start): an endgame at
    8 and less; an opening at 20 and more within the first 24 plies. Ours.
    """
    weight = WEIGHT[squares].sum(axis=1)
    opening = (weight >= OPENING_WEIGHT) & (ply <= OPENING_PLIES)
    return np.where(weight <= ENDGAME_WEIGHT, 2, np.where(opening, 0, 1))


def _balance_kind(squares: Packed, side: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    worth = WORTH[squares]
    white = np.where(squares < BLACK_CODE, worth, -worth).sum(axis=1)
    own = np.where(side == 0, white, -white)
    return np.asarray(np.digitize(own, [-4, -2, 0, 1, 3, 5]))


def _numbers(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """A column as numbers, 0 where there is none."""
    column = batch.column(name)
    return np.asarray(pc.fill_null(column, pa.scalar(0, column.type)).to_numpy(), np.int64)


def _absent(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.bool_]:
    return np.asarray(batch.column(name).is_null().to_numpy(zero_copy_only=False))


def _ranks(names: npt.NDArray[np.str_]) -> npt.NDArray[np.int64]:
    return np.asarray(np.unique(names, return_inverse=True)[1], np.int64)


def survey(batches: Iterable[pa.RecordBatch]) -> Survey:
    """Count all batches."""
    found = Survey()
    for batch in batches:
        if len(batch):
            found.add(batch)
    return found
