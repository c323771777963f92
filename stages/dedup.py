"""Stage `dedup`: occurrences in, each position once out, with what it counted.

The pieces of work are ranges of position hashes, a file each. Before the first of them every part
of the input is cut into partitions, in the scratch folder: a part that is whole there stays, so a
run that was killed goes on where it was. The bounds (`buckets`, `memory_mb`) change no output.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import chess
import pyarrow as pa
import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.lineage.artifact import (
    RECORD,
    Artifact,
    Draft,
    digest_of,
    file_digest,
    open_artifact,
    read_json,
    write_json,
)
from queen.positions.barred import Barred, games_through
from queen.positions.dedup import (
    Bounds,
    distinct,
    file_name,
    partition,
    read_batches,
    told_of,
    whole_part,
    write_distinct,
)
from queen.positions.packed import pack
from queen.positions.runs import Part
from stages.base import ROWS, Job, Shard, StageSpec, tables_in
from stages.bulk import gates as bulk_gates
from stages.versions import version_of

ASIDE = {"aside": True}
TOLD = "told.json"
PART_ROWS = 1 << 23


@dataclass(frozen=True)
class Params:
    """How positions are told apart, and within which bounds.

    Attributes:
        evaluation: what must not enter: an evaluation set (an artifact with columns `fen` and
            `ply`), or a text file with a FEN or EPD in each line, # before remarks.
        game_ply: a game that has a position of the evaluation set at the same ply, this one or a
            later, counts as the same game and is left out whole; 0 looks at positions alone.
        files: of the output, each a range of hashes; a power of two, at most `buckets`.
        buckets: partitions on disk, a power of two. METHOD: 4,096.
        memory_mb: MiB that the process may take, for tables of any size.
    """

    evaluation: str = "data/evalset"
    game_ply: int = 20
    files: int = 16
    buckets: int = field(default=256, metadata=ASIDE)
    memory_mb: int = field(default=1024, metadata=ASIDE)

    def __post_init__(self) -> None:
        if self.files < 1 or self.bounds.buckets % self.files:
            raise QueenError(
                f"{self.files} files of {self.buckets} buckets",
                where="dedup.files",
                remedy="a power of two, at most dedup.buckets",
            )

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.buckets, self.memory_mb)


def shards(job: Job[Params]) -> Sequence[Shard]:
    """A shard for each range of hashes; what may not enter is part of its key."""
    barred = evaluation_digest(job.project, job.params.evaluation)
    return [
        Shard(f"{n:04d}", {"file": n, "files": job.params.files, "evaluation": barred})
        for n in range(job.params.files)
    ]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """The distinct positions of one range of hashes."""
    parts = _partitioned(job, shard)
    each = job.params.buckets // job.params.files
    first = each * int(shard.spec["file"])
    rows = distinct(parts, first, first + each, job.params.bounds, job.scratch())
    write_distinct(rows, out / ROWS)
    write_json(out / TOLD, dict(told_of(parts)))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """The files of all ranges; the partitions are needed no more."""
    told = read_json(folders[0] / TOLD)
    files = [out / file_name(number) for number in range(len(folders))]
    for folder, path in zip(folders, files, strict=True):
        shutil.copyfile(folder / ROWS, path)
    bulk_gates.check_distinct(files, barred_of(job.project, job.params.evaluation))
    kept = sum(pq.read_metadata(path).num_rows for path in files)
    drops = {name: count for name, count in told.items() if name != "rows" and count}
    repeated = told["rows"] - sum(drops.values()) - kept
    counts = {"rows": told["rows"], "distinct": kept}
    shutil.rmtree(_scratch(job, shards(job)[0]), ignore_errors=True)
    return Draft(
        counts=counts,
        drops={**drops, "repeated": repeated},
        figures={"distinct_share": round(kept / max(1, told["rows"]), 6)},
        licences=job.inputs["extract"].record.licences,
    )


def _partitioned(job: Job[Params], shard: Shard) -> list[Part]:
    """Every part of the input cut into partitions; those already there are taken."""
    folder = _scratch(job, shard)
    spans = list(_spans(job.inputs["extract"]))
    bounds, parts = job.params.bounds, []
    for number, names in enumerate(spans):
        job.progress(number, len(spans), "partitions")
        stem = folder / f"{number:06d}"
        found = whole_part(stem, bounds)
        rows = _rows(job.inputs["extract"], names)
        parts.append(found or partition(rows, stem, bounds, _barred_in(job, names)))
    return parts


def _barred_in(job: Job[Params], names: Sequence[str]) -> Barred:
    """The evaluation set's positions, and those of these files' games that are its games."""
    barred = barred_of(job.project, job.params.evaluation)
    landmarks = _landmarks(job.project, job.params)
    if not landmarks:
        return barred
    rows = _rows(job.inputs["extract"], names, ["position", "game", "ply"])
    return replace(barred, games=games_through(rows, landmarks))


def _landmarks(project: Path, params: Params) -> dict[bytes, frozenset[int]]:
    """Where the evaluation set's games are to be known by: its deep positions, with their plies."""
    path = _evaluation(project, params.evaluation)
    if not params.game_ply or not path.is_dir():
        return {}
    table = pq.read_table(open_artifact(path).file(ROWS), columns=["fen", "ply"])
    found: dict[bytes, frozenset[int]] = {}
    for n, (fen, ply) in enumerate(zip(*map(pa.ChunkedArray.to_pylist, table), strict=True)):
        if ply >= params.game_ply:
            key = _packed(fen, f"{path / ROWS}, row {n}")
            found[key] = found.get(key, frozenset()) | {ply}
    return found


def _scratch(job: Job[Params], shard: Shard) -> Path:
    """Where the partitions lie: known by what they are made of, not by the piece of work."""
    extract = job.inputs["extract"].content
    params = [job.params.buckets, job.params.game_ply]
    made_of = [version_of("dedup"), extract, shard.spec["evaluation"], *params]
    return job.state.scratch / "dedup" / digest_of(made_of)[:40]


def occurrence_files(extract: Artifact) -> list[str]:
    """The files of occurrences of the stage `extract`, in order; other tables left alone."""
    return [name for name, columns in tables_in(extract) if "position" in columns]


def _spans(extract: Artifact) -> Iterator[list[str]]:
    """Files that make one part: about so many rows, for small files make small reads."""
    span, rows = [], 0
    for name in occurrence_files(extract):
        span.append(name)
        rows += pq.read_metadata(extract.file(name)).num_rows
        if rows >= PART_ROWS:
            yield span
            span, rows = [], 0
    if span:
        yield span


def _rows(
    extract: Artifact, names: Sequence[str], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    for name in names:
        yield from read_batches(extract.file(name), columns)


def evaluation_digest(project: Path, named: str) -> str:
    """The content of what must not enter."""
    path = _evaluation(project, named)
    return open_artifact(path).content if path.is_dir() else file_digest(path)


def barred_of(project: Path, named: str) -> Barred:
    """The positions that must not enter.

    Raises QueenError naming the file and line that is no position.
    """
    path = _evaluation(project, named)
    if not path.is_dir():
        lines = path.read_text().splitlines()
        fens = [(s, n) for n, s in enumerate(lines, 1) if s.strip() and not s.startswith("#")]
        return Barred(frozenset(_packed(fen, f"{path}, line {n}") for fen, n in fens))
    table = pq.read_table(open_artifact(path).file(ROWS), columns=["fen"])
    fens = [(fen, n) for n, fen in enumerate(table["fen"].to_pylist())]
    return Barred(frozenset(_packed(fen, f"{path / ROWS}, row {n}") for fen, n in fens))


def _packed(text: str, where: str) -> bytes:
    """The bytes of a FEN or of an EPD with its operations."""
    fields = text.split()[:4]
    try:
        return pack(chess.Board(" ".join([*fields, "0", "1"]), chess960=True))
    except ValueError as error:
        raise QueenError(
            f"not a position: {error}", where=where, remedy="give a FEN or EPD in each line"
        ) from error


def _evaluation(project: Path, named: str) -> Path:
    path = Path(named) if Path(named).is_absolute() else project / named
    if path.is_file() or (path / RECORD).is_file():
        return path
    raise QueenError(
        "the positions that must not enter are not here",
        where=f"dedup.evaluation: {path}",
        remedy="`queen run evalset` makes them; dedup.evaluation may name a file of others",
    )


SPEC = StageSpec(
    name="dedup",
    params=Params,
    section="dedup",
    inputs={"extract": "data/extract"},
    output="data/dedup",
    shards=shards,
    work=work,
    assemble=assemble,
)
