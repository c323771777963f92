"""What the bulk data set holds, by artifact: for `queen positions stats` and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from queen.errors import QueenError, readable
from queen.lineage.artifact import Artifact, open_artifact
from queen.positions.survey import Survey, survey
from stages.base import tables_in

NAMES = ("data/extract", "data/dedup", "data/label")
COLUMNS = ("position", "ply", "white_elo", "black_elo", "eval_cp", "eval_mate", "result", "seen")
LABEL_COLUMNS = ("position", "source", "cp", "mate")


@dataclass(frozen=True)
class Surveyed:
    """An artifact and what was counted in it.

    Attributes:
        total: rows of the artifact; `survey.rows` of them were looked at.
    """

    artifact: Artifact
    total: int
    survey: Survey

    @property
    def whole(self) -> bool:
        return self.survey.rows == self.total

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        record = self.artifact.record
        return {
            "artifact": record.name,
            "content": record.content,
            "rows": self.total,
            "looked_at": self.survey.rows,
            "counts": dict(record.counts),
            "drops": dict(record.drops),
            "licences": dict(record.licences),
            "histograms": self.survey.histograms,
        }


def artifacts_of(root: Path, named: str | None) -> list[Artifact]:
    """The artifact named (`dedup`, `data/dedup` or a folder), or all of the bulk data set.

    Raises QueenError if there is none, or if it holds no positions.
    """
    if named is not None:
        tried = [root / named, root / "data" / named, Path(named)]
        folder = next((path for path in tried if path.is_dir()), tried[0])
        found = open_artifact(folder)
        if not table_files(found):
            raise QueenError(
                "no table of positions of the bulk data set is in it",
                where=str(folder),
                remedy=f"name one of {', '.join(NAMES)}",
            )
        return [found]
    there = [root / name for name in NAMES if (root / name).is_dir()]
    if not there:
        raise QueenError(
            "the bulk data set has not been begun",
            where=str(root / "data"),
            remedy="`queen run dedup` extracts positions and makes each distinct",
        )
    return [open_artifact(folder) for folder in there]


def table_files(artifact: Artifact) -> list[Path]:
    """The files of an artifact that hold rows of the bulk data set, in order."""
    return [artifact.file(name) for name, columns in tables_in(artifact) if _read_of(columns)]


def _read_of(columns: Sequence[str]) -> list[str]:
    """Those of a file's columns that a survey reads; none if it is another table."""
    names = set(columns)
    if set(LABEL_COLUMNS) <= names:
        return list(LABEL_COLUMNS)
    return [name for name in COLUMNS if name in names] if {"position", "game"} <= names else []


def surveyed(artifact: Artifact, most: int = 0) -> Surveyed:
    """Count an artifact's rows.

    Args:
        most: look at row groups at even distances, about so many rows; 0 looks at all.
    """
    paths = table_files(artifact)
    total = sum(pq.read_metadata(path).num_rows for path in paths)
    step = max(1, -(-total // most)) if most else 1
    return Surveyed(artifact, total, survey(_batches(paths, step)))


def _batches(paths: list[Path], step: int) -> Iterator[pa.RecordBatch]:
    number = 0
    for path in paths:
        with readable(path), pq.ParquetFile(path) as file:
            columns = _read_of(file.schema_arrow.names)
            for group in range(file.num_row_groups):
                if number % step == 0:
                    yield from file.iter_batches(row_groups=[group], columns=columns)
                number += 1
