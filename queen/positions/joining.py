"""Labels beside their positions: two tables in the same order, read side by side."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from queen.errors import QueenError
from queen.positions.packed import POSITION_BYTES, Packed
from queen.positions.records import fixed_bytes

Places = npt.NDArray[np.int64]


class LabelReader:
    """Labels, handed out as the positions they belong to come by.

    Args:
        batches: of LABELS, in the order of the positions.
        sources: whose labels are wanted; others are passed over.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], sources: Collection[str]) -> None:
        self._batches = iter(batches)
        self._sources = pa.array(sorted(sources))
        self._held: pa.RecordBatch | None = None

    def of(self, packed: Packed) -> tuple[Places, pa.Table]:
        """Which of the next positions [n, 36] have a label, in order, and the label of each.

        Raises QueenError where a position has two labels.
        """
        positions = _keys(packed)
        order = np.argsort(positions)
        places: list[Places] = []
        found: list[pa.RecordBatch] = []
        while self._fetch():
            assert self._held is not None
            own = _keys(fixed_bytes(self._held["position"]))
            at = np.searchsorted(positions, own, sorter=order)
            place = order[np.minimum(at, len(positions) - 1)]
            here = positions[place] == own
            count = len(here) if here.all() else int(here.argmin())
            places.append(place[:count])
            found.append(self._held.slice(0, count))
            self._held = self._held.slice(count)
            if len(self._held):
                break
        return _in_order(places, found)

    def require_end(self) -> None:
        """Raise QueenError where labels are left."""
        if self._fetch():
            raise _unusable(
                "labels of positions that are not there, or not in the order of the positions"
            )

    def _fetch(self) -> bool:
        """Hold the next labels, if there are any."""
        while not self._held:
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._held = batch.filter(pc.is_in(batch["source"], self._sources))
        return True


def _keys(packed: Packed) -> npt.NDArray[np.bytes_]:
    """Positions as numpy's bytes: of equal length, so that equal means the same ones."""
    return np.ascontiguousarray(packed).view(f"S{POSITION_BYTES}")[:, 0]


def _in_order(places: list[Places], found: list[pa.RecordBatch]) -> tuple[Places, pa.Table]:
    if not found:
        return np.zeros(0, np.int64), pa.table({})
    labels = pa.Table.from_batches(found)
    which, first, times = np.unique(np.concatenate(places), return_index=True, return_counts=True)
    if (times > 1).any():
        row = labels.slice(int(first[np.argmax(times)]), 1).to_pylist()[0]
        raise _unusable(f"position {row['position'].hex()} has two labels of {row['source']}")
    return which, labels.take(first)


def _unusable(what: str) -> QueenError:
    return QueenError(what, where="the artifact `label`", remedy="run the stage `label` again")


def labelled(
    positions: Iterable[pa.RecordBatch], labels: LabelReader
) -> Iterator[tuple[pa.RecordBatch, pa.Table]]:
    """Of each batch of DISTINCT the positions that have a label, and their labels, row by row."""
    for batch in positions:
        if not len(batch):
            continue
        places, found = labels.of(fixed_bytes(batch["position"]))
        if len(places):
            yield batch.take(pa.array(places)), found
