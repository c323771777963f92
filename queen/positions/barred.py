"""Positions and games that may not enter the bulk data set: those of the evaluation sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queen.positions.hashing import position_hash
from queen.positions.packed import POSITION_BYTES, Packed
from queen.positions.records import Records, fixed_bytes, positions_of
from queen.positions.schema import GAME_BYTES

Mask = npt.NDArray[np.bool_]
_TABLE = np.uint64((1 << 20) - 1)


@dataclass(frozen=True)
class Barred:
    """What is left out.

    Attributes:
        positions: of 36 bytes each.
        games: of 16 bytes each.
    """

    positions: frozenset[bytes] = frozenset()
    games: frozenset[bytes] = frozenset()
    _tables: dict[str, Mask] = field(default_factory=dict, compare=False, repr=False)

    def __bool__(self) -> bool:
        return bool(self.positions or self.games)

    def has_positions(self, packed: Packed) -> Mask:
        """Which of the positions [n, 36] are barred."""
        return self._found("positions", self.positions, packed, position_hash(packed))

    def reasons(self, records: Records, hashes: npt.NDArray[np.uint64]) -> dict[str, Mask]:
        """Which records are left out, by reason; one that is both counts as its position."""
        packed = positions_of(records) if self.positions else np.empty((0, POSITION_BYTES), "u1")
        position = self._found("positions", self.positions, packed, hashes)
        games = np.ascontiguousarray(records["game"]).view(np.uint8).reshape(-1, GAME_BYTES)
        game = self._found("games", self.games, games, _head(games))
        return {"evaluation_position": position, "evaluation_game": game & ~position}

    def _found(
        self, name: str, values: frozenset[bytes], rows: Packed, keys: npt.NDArray[np.uint64]
    ) -> Mask:
        """Which rows are among the values: a table of bits first, then the bytes themselves."""
        out = np.zeros(len(keys), np.bool_)
        if values:
            if name not in self._tables:
                self._tables[name] = _table(values, name)
            for row in np.flatnonzero(self._tables[name][keys & _TABLE]).tolist():
                out[row] = rows[row].tobytes() in values
        return out


def games_through(
    batches: Iterable[pa.RecordBatch], landmarks: Mapping[bytes, frozenset[int]]
) -> frozenset[bytes]:
    """The games that reach one of these positions after so many half-moves.

    Args:
        batches: with the columns `position`, `game` and `ply`.
        landmarks: half-moves made, by position: deep in a game the two together tell the game.
    """
    marks = Barred(positions=frozenset(landmarks))
    found = set()
    for batch in batches:
        packed, games = (fixed_bytes(batch.column(name)) for name in ("position", "game"))
        plies = batch.column("ply")
        for row in np.flatnonzero(marks.has_positions(packed)).tolist():
            if plies[row].as_py() in landmarks[packed[row].tobytes()]:
                found.add(games[row].tobytes())
    return frozenset(found)


def _head(games: Packed) -> npt.NDArray[np.uint64]:
    return np.ascontiguousarray(games[:, :8]).view("<u8")[:, 0]


def _table(values: Iterable[bytes], name: str) -> Mask:
    rows = np.array([np.frombuffer(value, np.uint8) for value in sorted(values)])
    keys = position_hash(rows) if name == "positions" else _head(rows)
    table = np.zeros(int(_TABLE) + 1, np.bool_)
    table[keys & _TABLE] = True
    return table
