"""Stage `extract`: game archives in, every position of their games out, packed.

Work is divided by files: a shard is a run of them, in order of their paths, of SHARD_BYTES or
one file that is larger. Within a shard each file is streamed once by one process and cut into
parts of whole games, which machine.workers processes read. A part is a file of rows, so memory
does not grow with the archive, and a killed run keeps its finished parts.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.lineage.artifact import Draft, file_digest, read_json, write_json
from queen.positions.archive_parts import Note, Plan, work_off
from queen.positions.extraction import FAULTS, Filters, Rating
from queen.positions.headers import CHESS960, STANDARD
from queen.positions.reading import ReaderName
from stages.base import Job, Shard, StageSpec
from stages.bulk import gates as bulk_gates
from stages.sources import game_files

SHARD_BYTES = 256 << 20
_LARGEST_PART_MB = 1024
FAULTS_FILE, TALLY = "faults.parquet", "tally.json"


@dataclass(frozen=True)
class Params:
    """Which positions are taken.

    Attributes:
        source: a .pgn, .pgn.gz, .pgn.zst, .pgn.bz2 file or a folder of them.
        licence: what the games' licence is.
        skip_plies, rating, time_control, variants, results, share: see
            `queen.positions.extraction.Filters`.
        reader: `rust`, `python-chess`, or `auto` for the fast one where it is installed; rows do
            not depend on it.
        part_mb: MiB of decompressed text in a part.
    """

    source: str
    licence: str = "unknown"
    skip_plies: int = 0
    rating: Rating = field(default_factory=Rating)
    time_control: tuple[str, ...] = ()
    variants: tuple[str, ...] = (STANDARD, CHESS960)
    results: tuple[str, ...] = ()
    share: float = 1.0
    reader: ReaderName = field(default="auto", metadata={"aside": True})
    part_mb: float = 32.0

    def __post_init__(self) -> None:
        for name, words in self.filters().unknown().items():
            raise QueenError(
                f"{', '.join(words)}: no such value",
                where=f"extract.{name}",
                remedy="params/config.yaml says what there is",
            )
        for name, fits in self._bounds().items():
            if not fits:
                raise QueenError(
                    f"{getattr(self, name)} is out of range",
                    where=f"extract.{name}",
                    remedy="params/config.yaml says what each stands for",
                )

    def _bounds(self) -> dict[str, bool]:
        """Whether each number is one that makes sense."""
        low, high = self.rating.min, self.rating.max
        return {
            "skip_plies": self.skip_plies >= 0,
            "rating": low >= 0 and (high == 0 or high >= low),
            "share": 0.0 < self.share <= 1.0,
            "part_mb": 0.0 < self.part_mb <= _LARGEST_PART_MB,
        }

    def filters(self) -> Filters:
        return Filters(
            skip_plies=self.skip_plies,
            rating=self.rating,
            time_control=self.time_control,
            variants=self.variants,
            results=self.results,
            share=self.share,
        )


def shards(job: Job[Params]) -> Sequence[Shard]:
    """Runs of files of SHARD_BYTES, or one larger; their digests make the key, not their paths."""
    groups: list[list[int]] = []
    size = SHARD_BYTES
    paths = game_files(job.params.source, job.project, "extract.source")
    for number, path in enumerate(paths):
        here = path.stat().st_size
        if size + here > SHARD_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += here
    return [
        Shard(paths[group[0]].name, {"files": [[n, file_digest(paths[n])] for n in group]})
        for group in groups
    ]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Read the files of a shard, part by part; parts outlive a kill."""
    paths = game_files(job.params.source, job.project, "extract.source")
    files = [paths[number] for number, _ in shard.spec["files"]]
    plan = Plan(
        filters=job.params.filters(),
        part_bytes=max(1, int(job.params.part_mb * (1 << 20))),
        reader=job.params.reader,
        workers=job.machine.workers,
    )

    def told(end: int, number: int) -> None:
        job.progress(number, len(files), f"{files[number].name}, {end >> 20} MiB of text")

    notes = [note for file in work_off(files, job.scratch(), plan, told) for note in file]
    for number, note in enumerate(note for note in notes if note.rows.is_file()):
        _take(note.rows, out / _part_name(number))
    faults = [pq.read_table(note.faults) for note in notes if note.faults.is_file()]
    pq.write_table(pa.concat_tables([FAULTS.empty_table(), *faults]), out / FAULTS_FILE)
    write_json(out / TALLY, _summed(notes))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """The parts of all shards in order, one count of all."""
    parts = [part for folder in folders for part in sorted(folder.glob("part-*.parquet"))]
    counts, drops = Counter[str](), Counter[str]()
    for folder in folders:
        told = read_json(folder / TALLY)
        counts.update(told["counts"])
        drops.update(told["drops"])
    if not parts:
        raise _no_position(job.params.source, drops)
    copies = [out / _part_name(number) for number in range(len(parts))]
    for part, copy in zip(parts, copies, strict=True):
        shutil.copyfile(part, copy)
    bulk_gates.check_occurrences(copies)
    faults = pa.concat_tables([pq.read_table(folder / FAULTS_FILE) for folder in folders])
    pq.write_table(faults, out / FAULTS_FILE, compression="zstd")
    return Draft(
        counts={"parts": len(parts), **counts},
        drops=+drops,
        licences={"games": job.params.licence},
    )


def _part_name(number: int) -> str:
    return f"part-{number:06d}.parquet"


def _take(source: Path, target: Path) -> None:
    """A part from the scratch folder, which goes when the artifact is whole."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _summed(notes: Sequence[Note]) -> dict[str, Counter[str]]:
    counts, drops = Counter[str](), Counter[str]()
    for note in notes:
        counts.update(note.counts)
        drops.update(note.drops)
    return {"counts": counts, "drops": drops}


def _no_position(source: str, drops: Counter[str]) -> QueenError:
    told = ", ".join(f"{reason} {count}" for reason, count in sorted(drops.items()))
    return QueenError(
        f"no position could be taken ({told or 'the files hold no game'})",
        where=source,
        remedy="give PGN files and filters that leave something: `queen configure extract...`",
    )


SPEC = StageSpec(
    name="extract",
    params=Params,
    section="extract",
    inputs={},
    output="data/extract",
    shards=shards,
    work=work,
    assemble=assemble,
)
