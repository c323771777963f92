"""Labelled positions in one flat file, mapped into memory, and the order in which they are met.

A row is 40 bytes: a position, its clock, its class and its centipawns. A file may be far larger
than memory; what a step needs is read when it is needed, a step ahead. The order is a pure
function of (seed, sample): an epoch is a permutation computed row by row (a Feistel network, no
table), so that billions of rows cost nothing to shuffle, and neither ranks nor restarts matter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.lib import format as npy
from numpy.typing import NDArray

from queen.errors import QueenError
from queen.positions.packed import POSITION_BYTES

ROW = np.dtype(
    [("position", "u1", (POSITION_BYTES,)), ("halfmove", "u1"), ("label", "u1"), ("cp", "<i2")]
)
"""`label` is a class of the value network; `cp` is 0 where that is a mate."""

ROUNDS = 6
_SIDECAR = ".json"
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_MULTIPLY, _SHIFT = np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)

Rows = NDArray[np.void]


class RowsError(QueenError):
    """A file of rows that is missing, cut short, or empty."""


@dataclass(frozen=True)
class RowFile:
    """A whole file of rows.

    Attributes:
        path: of the .npy file.
        count: its rows.
        digest: of their bytes.
    """

    path: Path
    count: int
    digest: str

    def read(self) -> Rows:
        """[count] rows, mapped and not read."""
        rows: Rows = np.load(self.path, mmap_mode="r")
        return rows


def write_rows_file(path: Path, parts: Iterable[Rows], most: int) -> RowFile:
    """Write rows part by part in bounded memory; the file is whole or not there.

    Args:
        most: an upper bound of their number; the disk must hold as many.

    Raises:
        RowsError: there is not one row.
    """
    digest, count = xxhash.xxh3_128(), 0
    partial = path.with_name(f".{path.name}.partial")
    target = npy.open_memmap(partial, mode="w+", dtype=ROW, shape=(most,))
    offset = target.offset
    for part in parts:
        target[count : count + len(part)] = part
        digest.update(np.ascontiguousarray(part).view(np.uint8).data)
        count += len(part)
    target.flush()
    del target
    if not count:
        partial.unlink()
        raise RowsError(
            "no labelled position", where=str(path), remedy="see which labels were asked for"
        )
    _cut(partial, offset, count)
    whole = RowFile(path, count, digest.hexdigest())
    os.replace(partial, path)
    _sidecar(path).write_text(json.dumps({"count": whole.count, "digest": whole.digest}))
    return whole


def open_rows_file(path: Path) -> RowFile:
    """A file that `write_rows_file` finished. Raises RowsError if it is not whole."""
    try:
        told = json.loads(_sidecar(path).read_text())
        whole = len(np.load(path, mmap_mode="r")) == told["count"]
        found = RowFile(path, told["count"], told["digest"])
    except (OSError, ValueError, KeyError):
        whole = False
    if not whole:
        raise RowsError(
            "not a whole file of rows", where=str(path), remedy=f"remove {path} and run again"
        )
    return found


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + _SIDECAR)


def _cut(path: Path, offset: int, count: int) -> None:
    """Shorten a file to `count` rows, its header saying so."""
    with path.open("r+b") as stream:
        npy.write_array_header_1_0(
            stream, {"descr": npy.dtype_to_descr(ROW), "fortran_order": False, "shape": (count,)}
        )
        assert stream.tell() == offset, "numpy pads headers alike"
        stream.truncate(offset + count * ROW.itemsize)
        os.fsync(stream.fileno())


class Shuffle:
    """Which row each sample of a run is.

    Args:
        count: rows.
        seed: of every epoch's permutation.
        run: rows that lie together and are met together: on a disk, one read for so many. Rows
            come from positions sorted by hash, so neighbours are no likelier to be of one game
            than others. An epoch leaves out `count` modulo `run` rows, other ones each time.
    """

    def __init__(self, count: int, seed: int, run: int = 1) -> None:
        if count < 1 or run < 1:
            raise RowsError(
                f"{count} rows in runs of {run}", where="rows", remedy="give at least 1 of each"
            )
        self.count, self.seed, self.run = count, seed, min(run, count)
        self.runs = count // self.run
        self.epoch = self.runs * self.run
        self.bits = max(1, ((self.runs - 1).bit_length() + 1) // 2)

    def rows(self, start: int, stop: int) -> NDArray[np.int64]:
        """Row numbers [stop - start] of samples start to stop, counted from 0 over all epochs."""
        samples = np.arange(start, stop, dtype=np.int64)
        found = np.empty(len(samples), np.int64)
        for epoch in range(start // self.epoch, (stop - 1) // self.epoch + 1):
            here = samples // self.epoch == epoch
            runs, within = np.divmod(samples[here] % self.epoch, self.run)
            keys, first = self._keys(epoch)
            found[here] = (self._permuted(runs, keys) * self.run + within + first) % self.count
        return found

    def _keys(self, epoch: int) -> tuple[NDArray[np.uint64], int]:
        """The rounds' keys of an epoch, and the row its first run begins at."""
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        return rng.integers(0, 1 << 64, ROUNDS, np.uint64), int(rng.integers(self.count))

    def _permuted(self, numbers: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """A permutation of 0..runs: those thrown beyond the end are thrown again."""
        found = self._thrown(numbers.astype(np.uint64), keys)
        while (beyond := found >= self.runs).any():
            found[beyond] = self._thrown(found[beyond], keys)
        return found.astype(np.int64)

    def _thrown(self, numbers: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """A permutation of 0..4^bits, which is less than four times the runs."""
        bits, mask = np.uint64(self.bits), np.uint64((1 << self.bits) - 1)
        left, right = numbers >> bits, numbers & mask
        for key in keys:
            left, right = right, left ^ (_scattered(right + key) & mask)
        return left << bits | right


def _scattered(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each number's bits spread over all 64 (the finaliser of MurmurHash3)."""
    for factor in (_MIX, _MULTIPLY):
        numbers = (numbers ^ numbers >> _SHIFT) * factor
    return numbers ^ numbers >> _SHIFT
