"""Exact deduplication in bounded memory: partitions on disk, then each in memory.

First pass: every part of the input is cut by the leading bits of its positions' hashes
(`queen.positions.runs`). Second pass: buckets are read as many at a time as memory holds, and
grouped; a bucket that is too large alone is grouped piece by piece and cut again by further bits.
Rows come out in order of their hashes, so neither the order of the input, nor the number of
buckets, nor the memory, nor how often a run was killed, can be seen in the output.

The way of METHOD, section 2.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from queen.errors import QueenError, readable
from queen.memory import release_memory
from queen.positions.barred import Barred
from queen.positions.grouping import group
from queen.positions.hashing import Hashes, position_hash
from queen.positions.records import COUNTED, OCCURRENCE, Records, fill, positions_of, table_of
from queen.positions.runs import HASH_BITS, Cut, Part, PartWriter, open_part, sizes_of
from queen.positions.schema import DISTINCT

ROW_GROUP = 1 << 15
BATCH = 1 << 13
_FIXED_MB = 129  # the interpreter, Arrow, a row group on its way to the disk
_ROW_BYTES = 150  # of a record in memory, with all that grouping it needs
_AGAIN_BITS = 6
_FEWEST_ROWS = 1 << 15


@dataclass(frozen=True)
class Bounds:
    """How the work is cut; no output depends on it.

    Attributes:
        buckets: partitions, a power of two.
        memory_mb: MiB of the whole process.
    """

    buckets: int = 256
    memory_mb: int = 1024

    def __post_init__(self) -> None:
        if self.buckets not in (1 << n for n in range(17)):
            raise QueenError(
                f"{self.buckets} is no power of two up to 65,536",
                where="dedup.buckets",
                remedy="METHOD has 4,096; 256 do for a hundred million rows",
            )
        if self.rows < _FEWEST_ROWS:
            raise QueenError(
                f"{self.memory_mb} MiB are too few",
                where="dedup.memory_mb",
                remedy=f"at least {_FIXED_MB + _FEWEST_ROWS * _ROW_BYTES // 2**20 + 1}",
            )

    @property
    def rows(self) -> int:
        """Records that may be in memory at a time."""
        return (self.memory_mb - _FIXED_MB) * 2**20 // _ROW_BYTES

    @property
    def cut(self) -> Cut:
        return Cut(0, self.buckets.bit_length() - 1)


def whole_part(stem: Path, bounds: Bounds) -> Part | None:
    """The part of this name if an earlier run made it, whole and with as many buckets."""
    found = open_part(stem)
    return found if found and found.starts.shape[1] == bounds.buckets + 1 else None


def partition(
    batches: Iterable[pa.RecordBatch], stem: Path, bounds: Bounds, barred: Barred
) -> Part:
    """Cut the rows of one part of the input; what is there and whole is taken as it is.

    Args:
        batches: with the columns of OCCURRENCES.
        stem: path of the part's files, without suffix.
        barred: what is left out, and counted in the part's `told` by reason.
    """
    found = whole_part(stem, bounds)
    if found is not None:
        return found
    told: Counter[str] = Counter(rows=0)
    with frugal(), PartWriter(stem, OCCURRENCE, bounds.cut) as writer:
        for records, hashes in _filled(batches, bounds.rows, barred, told):
            writer.add(records, hashes)
        return writer.finish(told)


def _filled(
    batches: Iterable[pa.RecordBatch], most: int, barred: Barred, told: Counter[str]
) -> Iterator[tuple[Records, Hashes]]:
    """The rows that may enter, as many at a time as memory holds."""
    records, hashes, done = np.empty(most, OCCURRENCE), np.empty(most, np.uint64), 0
    for batch in _small(batches):
        if done + len(batch) > most:
            yield records[:done], hashes[:done]
            done = 0
        told["rows"] += len(batch)
        room = slice(done, done + len(batch))
        fill(records[room], batch)
        hashes[room] = position_hash(positions_of(records[room]))
        done += len(batch) if not barred else _sifted(records[room], hashes[room], barred, told)
    if done:
        yield records[:done], hashes[:done]


def _small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, len(batch), BATCH):
            yield batch.slice(start, BATCH)


def _sifted(records: Records, hashes: Hashes, barred: Barred, told: Counter[str]) -> int:
    """Move what may enter to the front; returns how many these are."""
    out = np.zeros(len(records), np.bool_)
    for reason, mask in barred.reasons(records, hashes).items():
        told[reason] += int(mask.sum())
        out |= mask
    if not out.any():
        return len(records)
    kept = np.flatnonzero(~out)
    records[: len(kept)], hashes[: len(kept)] = records[kept], hashes[kept]
    return len(kept)


def distinct(
    parts: Sequence[Part], first: int, last: int, bounds: Bounds, scratch: Path
) -> Iterator[Records]:
    """The distinct positions of buckets `first` to before `last`, in order, as COUNTED records.

    Args:
        scratch: a folder for buckets that have to be cut again.
    """
    yield from _distinct(parts, range(first, last), bounds.cut, bounds.rows, scratch)


def _distinct(
    parts: Sequence[Part], buckets: range, cut: Cut, most: int, scratch: Path
) -> Iterator[Records]:
    sizes = sizes_of(parts, cut.buckets)
    at = buckets.start
    while at < buckets.stop:
        end, rows = at + 1, int(sizes[at])
        while end < buckets.stop and rows + sizes[end] <= most:
            rows += int(sizes[end])
            end += 1
        if rows <= most or cut.skipped + cut.bits >= HASH_BITS - _AGAIN_BITS:
            yield from _grouped(parts, at, end, rows)
        else:
            yield from _cut_again(parts, at, cut, most, scratch)
        at = end


def _grouped(parts: Sequence[Part], first: int, last: int, rows: int) -> Iterator[Records]:
    """Buckets that fit into memory."""
    kind = next((part.kind for part in parts), OCCURRENCE)
    records, done = np.empty(rows, kind), 0
    for part in parts:
        done += part.read(first, last, records[done:])
    yield from _counted(records)


def _counted(records: Records) -> Iterator[Records]:
    """Records grouped, a row group's worth at a time."""
    groups = group(records, _hashes(records))
    for start in range(0, len(groups), ROW_GROUP):
        yield groups.take(records, start, min(start + ROW_GROUP, len(groups)))


def _hashes(records: Records) -> Hashes:
    out = np.empty(len(records), np.uint64)
    for start in range(0, len(records), BATCH):
        out[start : start + BATCH] = position_hash(positions_of(records[start : start + BATCH]))
    return out


def _cut_again(
    parts: Sequence[Part], bucket: int, cut: Cut, most: int, scratch: Path
) -> Iterator[Records]:
    """A bucket beyond the bound: each piece is grouped first, so that what repeats shrinks."""
    deeper = Cut(cut.skipped + cut.bits, _AGAIN_BITS)
    stem = scratch / f"{cut.skipped}-{bucket}"
    with PartWriter(stem, COUNTED, deeper) as writer:
        for part in parts:
            for begin, end in part.pieces(bucket, most):
                for records in _counted(part.piece(begin, end)):
                    writer.add(records, _hashes(records))
        again = writer.finish({})
    yield from _distinct([again], range(deeper.buckets), deeper, most, scratch)
    for suffix in (".rows", ".json"):
        stem.with_suffix(suffix).unlink()


def write_distinct(rows: Iterable[Records], path: Path) -> int:
    """Write distinct positions as parquet (DISTINCT), in row groups of one size; returns how many.

    The bytes depend on the rows alone, not on the pieces they come in.
    """
    held: list[Records] = []
    waiting = total = 0
    with frugal(), _writer(path) as writer:
        for piece in rows:
            held.append(piece)
            waiting, total = waiting + len(piece), total + len(piece)
            if waiting >= ROW_GROUP:
                whole = np.concatenate(held)
                for start in range(0, waiting - ROW_GROUP + 1, ROW_GROUP):
                    writer.write_table(table_of(whole[start : start + ROW_GROUP], DISTINCT))
                held = [whole[waiting - waiting % ROW_GROUP :].copy()]
                waiting %= ROW_GROUP
        if waiting:
            writer.write_table(table_of(np.concatenate(held), DISTINCT))
    return total


@contextlib.contextmanager
def frugal() -> Iterator[None]:
    """Arrow takes memory from the system and gives it back; its own pools keep it."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)
        release_memory()


def _writer(path: Path) -> pq.ParquetWriter:
    """No dictionaries for what never repeats."""
    plain = ("position", "game")
    return pq.ParquetWriter(
        path,
        DISTINCT,
        compression="zstd",
        store_schema=False,
        use_dictionary=[name for name in DISTINCT.names if name not in plain],
        write_statistics=False,
    )


def read_batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a parquet file, a little at a time, its column chunks never read whole."""
    with readable(path), pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
        yield from file.iter_batches(batch_size=BATCH, columns=columns, use_threads=False)


def dedup(
    inputs: Sequence[Path],
    out: Path,
    bounds: Bounds,
    scratch: Path,
    *,
    files: int = 1,
    barred: Barred | None = None,
) -> Counter[str]:
    """All in one call: parquet files of OCCURRENCES in, `files` of DISTINCT out.

    Args:
        files: a power of two, at most as many as buckets.
        scratch: a folder for the partitions, taken up again after a kill, empty at the end.

    Returns:
        Counts: rows in, distinct out, left out by reason.
    """
    parts = [
        partition(read_batches(path), scratch / f"{n:06d}", bounds, barred or Barred())
        for n, path in enumerate(inputs)
    ]
    counts = told_of(parts)
    out.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        final = out / file_name(number)
        if not final.is_file():
            counts["distinct"] += _one_file(parts, number, files, bounds, scratch, final)
        else:
            counts["distinct"] += pq.read_metadata(final).num_rows
    shutil.rmtree(scratch)
    return counts


def _one_file(
    parts: Sequence[Part], number: int, files: int, bounds: Bounds, scratch: Path, final: Path
) -> int:
    building = final.with_name(f".{final.name}")
    each = bounds.buckets // files
    rows = distinct(parts, number * each, (number + 1) * each, bounds, scratch)
    count = write_distinct(rows, building)
    os.replace(building, final)
    return count


def told_of(parts: Sequence[Part]) -> Counter[str]:
    """What was said of all parts together."""
    told: Counter[str] = Counter()
    for part in parts:
        told.update(part.told)
    return told


def file_name(number: int) -> str:
    """Of the output's file for a piece of the range of hashes."""
    return f"{number:04d}.parquet"
