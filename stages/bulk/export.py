"""The labelled positions as parquet shards with a data card, as `datasets` reads them."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.lineage.artifact import Artifact, hash_problems, open_artifact, writing
from queen.positions.dedup import read_batches
from queen.positions.fens import fens
from queen.positions.joining import LabelReader, labelled
from queen.positions.records import fixed_bytes
from queen.positions.schema import move_of
from stages.bulk.card import data_card
from stages.bulk.survey import table_files

SOURCES = {"engine": frozenset({"engine", "rules"}), "dump": frozenset({"dump"})}
DATA = "data"
CARD = "README.md"
EXPORTED = pa.schema(
    [
        ("fen", pa.string()),
        ("cp", pa.int16()),
        ("mate", pa.int16()),
        ("source", pa.string()),
        ("best", pa.string()),
        ("depth", pa.int16()),
        ("nodes", pa.int64()),
        ("seen", pa.uint32()),
        ("white_wins", pa.uint32()),
        ("draws", pa.uint32()),
        ("black_wins", pa.uint32()),
        ("ply", pa.int16()),
        ("played", pa.string()),
        ("white_elo", pa.int16()),
        ("black_elo", pa.int16()),
    ]
)
FROM_LABEL = ("cp", "mate", "source", "depth", "nodes")
MOVES = ("best", "played")


@dataclass(frozen=True)
class Exported:
    """What was written."""

    rows: int
    shards: int


def export_positions(root: Path, folder: Path, label_source: str) -> Exported:
    """Write the positions that have a label of this source, in the order of the data set.

    Args:
        root: the project, whose artifacts `dedup` and `label` are joined.
        folder: is made, or must be empty; it is there when it is whole.
        label_source: `engine` (with the rules' labels of games that are over) or `dump`.

    Raises:
        QueenError: no such source, nothing to export, a folder that holds something, a file whose
            bytes are not those of its record.
    """
    if label_source not in SOURCES:
        raise QueenError(
            f"no labels of source {label_source!r}",
            where="label_source",
            remedy=f"one of {', '.join(SOURCES)}",
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise QueenError(
            "the folder holds something already",
            where=str(folder),
            remedy="name a new folder, or empty this one",
        )
    positions, labels = (open_artifact(root / f"data/{name}") for name in ("dedup", "label"))
    for each in (positions, labels):
        _require_whole(each)
    building = folder.resolve().parent / f".{folder.resolve().name}.part"
    shutil.rmtree(building, ignore_errors=True)
    with writing(folder):
        (building / DATA).mkdir(parents=True)
        done = _write(positions, labels, label_source, building)
        (building / CARD).write_text(data_card(positions, labels, label_source, done.rows))
        if folder.is_dir():
            folder.rmdir()
        os.replace(building, folder)
    return done


def _require_whole(artifact: Artifact) -> None:
    """What leaves the project is what its record says, byte for byte."""
    for problem in hash_problems(artifact.path, artifact.record):
        raise QueenError(
            problem,
            where=str(artifact.path),
            remedy="`dvc checkout` brings it back, or run its stage again",
        )


def _write(positions: Artifact, labels: Artifact, label_source: str, building: Path) -> Exported:
    """A shard for each file of positions that has labels, numbered without a gap."""
    batches = (batch for path in table_files(labels) for batch in read_batches(path))
    reader = LabelReader(batches, SOURCES[label_source])
    counts: list[int] = []
    for path in table_files(positions):
        target = building / DATA / f"{len(counts):05d}.parquet"
        rows = _write_shard(read_batches(path), reader, target)
        if rows:
            counts.append(rows)
        else:
            target.unlink()
    reader.require_end()
    if not counts:
        raise QueenError(
            f"there are no labels of source {label_source!r}",
            where=str(labels.path),
            remedy="choose another source, or label with it: `queen run label`",
        )
    for number in range(len(counts)):
        name = f"train-{number:05d}-of-{len(counts):05d}.parquet"
        os.replace(building / DATA / f"{number:05d}.parquet", building / DATA / name)
    return Exported(sum(counts), len(counts))


def _write_shard(batches: Iterator[pa.RecordBatch], reader: LabelReader, target: Path) -> int:
    rows = 0
    with pq.ParquetWriter(target, EXPORTED, compression="zstd", store_schema=False) as writer:
        for batch, found in labelled(batches, reader):
            rows += len(batch)
            writer.write_batch(_exported(batch, found))
    return rows


def _exported(batch: pa.RecordBatch, labels: pa.Table) -> pa.RecordBatch:
    """The columns of a data set that others read: FENs and moves as text."""
    packed = fixed_bytes(batch.column("position"))
    halfmoves, plies = (batch.column(name).to_numpy() for name in ("halfmove", "ply"))
    columns: dict[str, Any] = {
        "fen": fens(packed, halfmoves, plies // 2 + 1),
        "best": [_uci(code or 0) for code in labels["best"].to_pylist()],
        "played": [_uci(code) for code in batch.column("played").to_pylist()],
        **{name: labels[name].to_pylist() for name in FROM_LABEL},
    }
    arrays = [
        pa.array(columns[entry.name], entry.type)
        if entry.name in columns
        else batch.column(entry.name)
        for entry in EXPORTED
    ]
    return pa.record_batch(arrays, schema=EXPORTED)


@functools.lru_cache(maxsize=1 << 15)
def _uci(code: int) -> str | None:
    move = move_of(code)
    return None if move is None else move.uci()
