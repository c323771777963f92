"""Runs: records on disk, cut by the leading bits of their positions' hashes.

A part's file holds one run after the other, each as large as memory allowed, each sorted by bucket;
the index says where each bucket of each run begins. So a bucket is one piece of every run, and a
row is written once. The index is written last: a part with an index is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson

from queen.errors import QueenError
from queen.positions.hashing import Hashes
from queen.positions.records import COUNTED, OCCURRENCE, Records

HASH_BITS = 64
_KINDS = {"occurrence": OCCURRENCE, "counted": COUNTED}
_ROWS_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Cut:
    """Which bits of a hash make the bucket.

    Attributes:
        skipped: leading bits that all hashes here share.
        bits: the bits after them; there are 2 ** bits buckets.
    """

    skipped: int
    bits: int

    @property
    def buckets(self) -> int:
        return 1 << self.bits

    def of(self, hashes: Hashes) -> npt.NDArray[np.uint16]:
        """The bucket of each hash."""
        shifted = hashes >> np.uint64(HASH_BITS - self.skipped - self.bits)
        return (shifted & np.uint64(self.buckets - 1)).astype(np.uint16)


@dataclass(frozen=True)
class Part:
    """A whole part.

    Attributes:
        rows: the file of records.
        kind: their dtype.
        starts: [runs, buckets + 1], where in the file each bucket of a run begins and ends.
        told: what the writer had to say of it.
    """

    rows: Path
    kind: np.dtype[Any]
    starts: npt.NDArray[np.int64]
    told: Mapping[str, int] = field(default_factory=dict)

    def sizes(self) -> npt.NDArray[np.int64]:
        """Records in each bucket."""
        return np.asarray(np.diff(self.starts, axis=1).sum(axis=0), np.int64)

    def read(self, first: int, last: int, out: Records) -> int:
        """Read buckets `first` to before `last` of every run into `out`; returns how many."""
        size, done = self.kind.itemsize, 0
        with self.rows.open("rb", buffering=0) as stream:
            for run in self.starts:
                begin, end = int(run[first]), int(run[last])
                if begin < end:
                    _read_fully(stream, begin * size, out[done : done + end - begin])
                    done += end - begin
        return done

    def pieces(self, bucket: int, most: int) -> Iterator[tuple[int, int]]:
        """The bucket's places in the file, (begin, end) in records, none longer than `most`."""
        for run in self.starts:
            end = int(run[bucket + 1])
            for begin in range(int(run[bucket]), end, most):
                yield begin, min(begin + most, end)

    def piece(self, begin: int, end: int) -> Records:
        """The records from `begin` to `end` of the file."""
        out = np.empty(end - begin, self.kind)
        with self.rows.open("rb", buffering=0) as stream:
            _read_fully(stream, begin * self.kind.itemsize, out)
        return out


def _read_fully(stream: BinaryIO, offset: int, out: Records) -> None:
    view = memoryview(out.view(np.uint8).data)
    while view:
        got = os.preadv(stream.fileno(), [view], offset)
        if not got:
            raise _broken(Path(str(stream.name)), "it ends too early")
        view, offset = view[got:], offset + got


def _broken(path: Path, why: str) -> QueenError:
    return QueenError(
        f"a file of partitions cannot be used: {why}",
        where=str(path),
        remedy="remove its folder and run again: it is made anew",
    )


def open_part(stem: Path) -> Part | None:
    """The part of this name if it is whole."""
    index, rows = stem.with_suffix(".json"), stem.with_suffix(".rows")
    if not index.is_file() or not rows.is_file():
        return None
    try:
        said = orjson.loads(index.read_bytes())
    except orjson.JSONDecodeError:  # torn by a machine that went down
        return None
    kind = _KINDS[said["kind"]]
    starts = np.array(said["starts"], np.int64).reshape(-1, said["buckets"] + 1)
    held = int(starts[-1, -1]) if len(starts) else 0
    if rows.stat().st_size != held * kind.itemsize:
        return None
    return Part(rows, kind, starts, said["told"])


class PartWriter:
    """Writes a part: `add` a run at a time, `finish` at the end. Left early, nothing stays.

    Args:
        stem: path without suffix.
        kind: dtype of the records.
        cut: which bits make the bucket.
    """

    def __init__(self, stem: Path, kind: np.dtype[Any], cut: Cut) -> None:
        self.stem, self.kind, self.cut = stem, kind, cut
        self._starts: list[list[int]] = []
        self._rows = 0

    def __enter__(self) -> PartWriter:
        self.stem.parent.mkdir(parents=True, exist_ok=True)
        self.stem.with_suffix(".json").unlink(missing_ok=True)
        self._building = self.stem.with_suffix(f".{os.getpid()}.part")
        self._stream = self._building.open("wb", buffering=0)
        return self

    def add(self, records: Records, hashes: Hashes) -> None:
        """Append records as one run, sorted by bucket."""
        bucket = self.cut.of(hashes)
        order = np.argsort(bucket, kind="stable")
        ends = np.bincount(bucket, minlength=self.cut.buckets).cumsum() + self._rows
        self._starts.append([self._rows, *ends.tolist()])
        for start in range(0, len(order), _ROWS_AT_ONCE):
            chunk = records.take(order[start : start + _ROWS_AT_ONCE], mode="clip")
            _write_fully(self._stream, chunk)
        self._rows += len(records)

    def finish(self, told: Mapping[str, int]) -> Part:
        """Put the part into its place, whole; returns it."""
        self._stream.close()
        rows, index = self.stem.with_suffix(".rows"), self.stem.with_suffix(".json")
        os.replace(self._building, rows)
        kind = next(name for name, dtype in _KINDS.items() if dtype == self.kind)
        said = {
            "kind": kind,
            "buckets": self.cut.buckets,
            "starts": self._starts,
            "told": dict(told),
        }
        building = index.with_suffix(f".{os.getpid()}.part")
        building.write_bytes(orjson.dumps(said))
        os.replace(building, index)
        starts = np.array(self._starts, np.int64).reshape(-1, self.cut.buckets + 1)
        return Part(rows, self.kind, starts, dict(told))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.close()
        self._building.unlink(missing_ok=True)


def _write_fully(stream: BinaryIO, records: Records) -> None:
    view = memoryview(records.view(np.uint8).data)
    while view:
        view = view[stream.write(view) :]


def sizes_of(parts: Sequence[Part], buckets: int) -> npt.NDArray[np.int64]:
    """Records in each bucket of all parts together."""
    total = np.zeros(buckets, np.int64)
    for part in parts:
        total += part.sizes()
    return total
