"""Labels beside their positions: two tables in the order of hashes, read side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from queen.errors import QueenError
from queen.positions.hashing import position_hash
from queen.positions.records import fixed_bytes

Row = dict[str, Any]


class LabelReader:
    """Labels in the order of their positions' hashes, handed out up to a hash at a time.

    Args:
        batches: of LABELS.
        sources: whose labels are wanted; others are passed over.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch], sources: frozenset[str]) -> None:
        self.sources = sources
        self._batches = iter(batches)
        self._ahead: dict[bytes, Row] = {}
        self._last, self._ended = -1, False
        self._begun: list[tuple[int, bytes]] = []

    def up_to(self, bound: int) -> dict[bytes, Row]:
        """Labels by position of all hashes up to `bound` that were not handed out yet, and perhaps
        some of those that come next.

        Raises QueenError where labels are out of order or a position has two of them.
        """
        while not self._ended and self._last <= bound:
            batch = next(self._batches, None)
            if batch is None:
                self._ended = True
            elif len(batch):
                self._take(batch)
        return self._ahead

    def drop_before(self, bound: int) -> None:
        """Forget what belongs to hashes up to `bound`."""
        gone = [key for number, key in self._begun if number <= bound]
        self._begun = self._begun[len(gone) :]
        for key in gone:
            self._ahead.pop(key, None)

    def _take(self, batch: pa.RecordBatch) -> None:
        hashes = position_hash(fixed_bytes(batch.column("position"))).tolist()
        for number, row in zip(hashes, batch.to_pylist(), strict=True):
            if number < self._last:
                raise _unusable("its labels are not in the order of their positions' hashes")
            self._last = number
            if row["source"] in self.sources:
                key = row["position"]
                if key in self._ahead:
                    raise _unusable(f"position {key.hex()} has two labels of {row['source']}")
                self._ahead[key] = row
                self._begun.append((number, key))


def _unusable(what: str) -> QueenError:
    return QueenError(what, where="the artifact `label`", remedy="run the stage `label` again")


def labelled(
    positions: Iterable[pa.RecordBatch], labels: LabelReader
) -> Iterator[tuple[pa.RecordBatch, list[Row]]]:
    """Of each batch of DISTINCT the positions that have a label, and their labels."""
    for batch in positions:
        if not len(batch):
            continue
        packed = fixed_bytes(batch.column("position"))
        bound = int(position_hash(packed[-1:])[0])
        found = labels.up_to(bound)
        rows = [found.get(row.tobytes()) for row in packed]
        at = [n for n, row in enumerate(rows) if row is not None]
        if at:
            yield batch.take(pa.array(np.array(at))), [row for row in rows if row is not None]
        labels.drop_before(bound)
