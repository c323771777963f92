"""Archives worked off part by part, by several processes, so that a kill costs a few parts.

One process streams a file and cuts it; others read the parts. Each part becomes a file of rows,
one of faults and a note that is written last: a part with a note is done. A file is streamed
again after a kill, from its first part that is not done; the parts come out the same, whoever
reads them.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from queen.children import follow_parent
from queen.errors import QueenError
from queen.games.chess.archives import name_of, read_chunks
from queen.games.chess.pgn import EMPTY
from queen.positions.cutting import Part, parts
from queen.positions.extraction import FAULTS, Filters, Tally, extract
from queen.positions.readers import reader_named
from queen.positions.reading import ReaderName

ROW_GROUP = 1 << 17
_REPEATED = ["game", "white_elo", "black_elo", "result", "eval_mate"]


@dataclass(frozen=True)
class Plan:
    """How archives are read.

    Attributes:
        part_bytes: decompressed bytes of a part, and a little more.
        workers: processes that read; 1 reads in the caller's own.
    """

    filters: Filters
    part_bytes: int
    reader: ReaderName = "auto"
    workers: int = 1


@dataclass(frozen=True)
class _Task:
    """A part to read; `stem` is the path of its files without their endings."""

    part: Part
    stem: str
    source: str
    plan: Plan


@dataclass(frozen=True)
class Note:
    """What is said of a part that is done.

    Attributes:
        stem: path of its files without their endings.
        end: byte after it in the file's decompressed text.
        failed: the file breaks off in it.
    """

    stem: str
    end: int
    failed: bool
    counts: Counter[str]
    drops: Counter[str]

    @property
    def rows(self) -> Path:
        """Its table of OCCURRENCES; there only if `counts` has positions."""
        return Path(f"{self.stem}.parquet")

    @property
    def faults(self) -> Path:
        """Its table of FAULTS; there only if it has any."""
        return Path(f"{self.stem}.faults.parquet")


def work_off(
    files: Sequence[Path], folder: Path, plan: Plan, told: Callable[[int, int], None]
) -> list[list[Note]]:
    """Read archives into a folder, each its parts in order; what is there already stays.

    Args:
        told: called with the bytes read of a file's text and the number of the file.
    """
    with _told_of_the_dead(folder), _Crew(plan.workers) as crew:
        for number, path in enumerate(files):
            for task in _tasks(path, folder / f"{number:05d}", plan):
                crew.hand(task)
                told(task.part.end, number)
    return [_notes(folder / f"{number:05d}") for number in range(len(files))]


@contextlib.contextmanager
def _told_of_the_dead(folder: Path) -> Iterator[None]:
    """A process that reads and is killed (by the system, for want of memory) is told plainly."""
    try:
        yield
    except BrokenProcessPool as error:
        raise QueenError(
            "a process that read games was killed",
            where=str(folder),
            remedy="run again, finished parts are kept; where memory is short, with fewer "
            "machine.workers or a smaller extract.part_mb",
        ) from error


def write_rows(path: Path, table: pa.Table) -> None:
    """OCCURRENCES as parquet: bytes depend on the rows alone, groups of ROW_GROUP rows."""
    pq.write_table(
        table,
        path,
        compression="zstd",
        store_schema=False,
        row_group_size=ROW_GROUP,
        use_dictionary=_REPEATED,
    )


def _tasks(path: Path, folder: Path, plan: Plan) -> Iterator[_Task]:
    """The parts of a file that are not done, from the first such on."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _notes(folder)
    if done and done[-1].failed:
        return
    offset, number = (done[-1].end if done else 0), len(done)
    name = name_of(Path(path.name))
    for part in parts(_from(read_chunks(path), offset), plan.part_bytes, offset):
        stem = folder / f"{number:06d}"
        if not _note_path(stem).is_file():
            yield _Task(part, str(stem), name, plan)
        number += 1
    if not number:
        _write(_Task(Part(b"", 0), str(folder / f"{number:06d}"), name, plan), *_nothing())


def _nothing() -> tuple[pa.Table, Tally]:
    tally = Tally()
    tally.fault(EMPTY, 0, "the file holds nothing")
    return pa.table({}), tally


def _from(chunks: Iterator[bytes], offset: int) -> Iterator[bytes]:
    """A stream without its first bytes."""
    for chunk in chunks:
        if offset < len(chunk):
            yield chunk[offset:]
        offset = max(0, offset - len(chunk))


def _read(task: _Task) -> None:
    reader = reader_named(task.plan.reader)
    _write(task, *extract(task.part, task.plan.filters, reader))


def _write(task: _Task, table: pa.Table, tally: Tally) -> None:
    """A part's files, its note last."""
    if table.num_rows:
        write_rows(Path(f"{task.stem}.parquet"), table)
    if tally.faults:
        rows = [{**fault, "source": task.source} for fault in tally.faults]
        faults = pa.Table.from_pylist(rows, schema=FAULTS)
        pq.write_table(faults, f"{task.stem}.faults.parquet", compression="zstd")
    note = {
        "end": task.part.end,
        "failed": task.part.failure is not None,
        "counts": tally.counts,
        "drops": tally.drops,
    }
    path = _note_path(Path(task.stem))
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(note, sort_keys=True))
    os.replace(partial, path)


def _note_path(stem: Path) -> Path:
    return stem.with_name(f"{stem.name}.json")


def _notes(folder: Path) -> list[Note]:
    """The notes of a file's parts, from the first on as far as they go without a gap."""
    found: list[Note] = []
    while (path := _note_path(stem := folder / f"{len(found):06d}")).is_file():
        try:
            told = json.loads(path.read_text())
        except ValueError:  # torn by a machine that went down: the part is read again
            path.unlink()
            break
        counts, drops = Counter(told["counts"]), Counter(told["drops"])
        found.append(Note(str(stem), told["end"], told["failed"], counts, drops))
    return found


class _Crew:
    """Processes that read parts, never more of these waiting than there are processes."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.pool: ProcessPoolExecutor | None = None
        self.under_way: set[Future[None]] = set()

    def __enter__(self) -> _Crew:
        if self.workers > 1:
            self.pool = ProcessPoolExecutor(
                self.workers, mp_context=get_context("spawn"), initializer=follow_parent
            )
        return self

    def hand(self, task: _Task) -> None:
        """Have a part read, now or soon."""
        if self.pool is None:
            _read(task)
            return
        if len(self.under_way) >= self.workers + 1:
            self._collect(FIRST_COMPLETED)
        try:
            self.under_way.add(self.pool.submit(_read, task))
        except OSError as error:  # the pool broke while it started one more process
            raise BrokenProcessPool(str(error)) from error

    def _collect(self, when: str) -> None:
        done, self.under_way = wait(self.under_way, return_when=when)
        for future in done:
            future.result()

    def __exit__(self, kind: object, *rest: object) -> None:
        if self.pool is None:
            return
        try:
            if kind is None:
                self._collect("ALL_COMPLETED")
        finally:
            self.pool.shutdown(wait=True, cancel_futures=True)
