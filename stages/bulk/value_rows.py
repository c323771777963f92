"""Labelled positions as rows for the trainer: positions joined with their labels, split by game.

Files of distinct positions and of labels have the same names, and a file's labels stand in the
order of its positions: the two are read side by side, in memory that does not grow with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from queen.errors import QueenError
from queen.lineage.artifact import Artifact, read_json, write_json
from queen.positions.dedup import read_batches
from queen.positions.joining import LabelReader, labelled
from queen.positions.records import fixed_bytes
from queen.training.rows import ROW, RowFile, Rows, open_rows_file, write_rows_file
from stages.base import tables_in

TRAIN, HELDOUT, TOLD = "train.npy", "heldout.npz", "rows.json"
RULES = "rules"
LABEL_COLUMNS = ["position", "source", "cp", "mate"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Split:
    """Which games are held out: a share of them, by hash of the game's id.

    Attributes:
        share: of the games.
        most: positions kept of theirs; further ones are used for nothing.
        seed: other seeds hold out other games.
    """

    share: float
    most: int
    seed: int

    def holds_out(self, games: Array) -> NDArray[np.bool_]:
        """[n] whether each of these games' ids, [n] of 16 bytes, is held out."""
        halves = np.ascontiguousarray(games).view("<u8").reshape(-1, 2)
        mixed = halves[:, 0] ^ (halves[:, 1] * np.uint64(2 * self.seed + 1))
        mixed = (mixed ^ mixed >> np.uint64(33)) * np.uint64(0xFF51AFD7ED558CCD)
        place = (mixed ^ mixed >> np.uint64(33)) >> np.uint64(11)
        return np.asarray(place < self.share * 2.0**53)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a training needs of the data.

    Attributes:
        train: the file of rows that is trained on.
        heldout: [n] rows of held-out games.
        games: [n] the game of each of them.
        counts: rows by source and part.
    """

    train: RowFile
    heldout: Rows
    games: list[bytes]
    counts: dict[str, int]


def prepare(
    dedup: Artifact, label: Artifact, sources: Sequence[str], split: Split, folder: Path
) -> Prepared:
    """Write the rows into a folder, or take those that are whole there.

    Args:
        sources: whose labels count: `engine` or `dump`, and `rules`.

    Raises:
        QueenError: no label, no held-out position, or labels of positions that are not there.
    """
    if not (folder / TOLD).is_file():
        _write(dedup, label, sources, split, folder)
    kept = np.load(folder / HELDOUT)
    games = [bytes(row) for row in kept["games"]]
    counts = read_json(folder / TOLD)
    return Prepared(open_rows_file(folder / TRAIN), kept["rows"], games, counts)


def _write(
    dedup: Artifact, label: Artifact, sources: Sequence[str], split: Split, folder: Path
) -> None:
    kept: list[tuple[Rows, Array]] = []
    counts: Counter[str] = Counter()
    names = _files(label)
    most = sum(pq.read_metadata(label.file(name)).num_rows for name in names)
    parts = (
        part
        for name in names
        for part in _train_parts(_pairs(dedup, label, name, sources, counts), split, kept, counts)
    )
    file = write_rows_file(folder / TRAIN, parts, most)
    if not kept:
        raise QueenError(
            "no position is held out", where=label.name, remedy="raise value.heldout.share"
        )
    rows, games = (np.concatenate(each) for each in zip(*kept, strict=True))
    np.savez(folder / HELDOUT, rows=rows, games=games)
    write_json(folder / TOLD, {**counts, "train": file.count, "heldout": len(rows)})


def _train_parts(
    pairs: Iterator[tuple[Rows, Array]],
    split: Split,
    kept: list[tuple[Rows, Array]],
    counts: Counter[str],
) -> Iterator[Rows]:
    """The rows to train on; those held out go to `kept` while there is room."""
    for rows, games in pairs:
        out = split.holds_out(games)
        room = split.most - sum(len(each) for each, _ in kept)
        chosen = np.flatnonzero(out)
        counts["heldout_spared"] += max(0, len(chosen) - room)
        if len(chosen[:room]):
            kept.append((rows[chosen[:room]], games[chosen[:room]]))
        yield rows[~out]


def _files(label: Artifact) -> list[str]:
    """The files of labels, in order; other tables left alone."""
    return [name for name, columns in tables_in(label) if {"position", "source"} <= set(columns)]


def _pairs(
    dedup: Artifact, label: Artifact, name: str, sources: Sequence[str], counts: Counter[str]
) -> Iterator[tuple[Rows, Array]]:
    """Rows and games of one file's labelled positions."""
    reader = LabelReader(read_batches(label.file(name), LABEL_COLUMNS), sources)
    positions = read_batches(dedup.file(name), ["position", "game", "halfmove"])
    for batch, labels in labelled(positions, reader):
        by_rules = int(pc.sum(pc.equal(labels["source"], RULES)).as_py())
        counts[RULES] += by_rules
        counts[sources[0]] += len(labels) - by_rules
        yield _rows(batch, labels), fixed_bytes(batch["game"])
    reader.require_end()


def _rows(batch: pa.RecordBatch, labels: pa.Table) -> Rows:
    from queen.networks.value.labels import class_of

    rows = np.zeros(len(batch), ROW)
    cp, mate = (pc.fill_null(labels[name], 0).to_numpy() for name in ("cp", "mate"))
    rows["position"] = fixed_bytes(batch["position"])
    rows["halfmove"] = batch["halfmove"].to_numpy()
    rows["label"] = class_of(cp, mate, labels["mate"].is_valid().to_numpy())
    rows["cp"] = cp
    return rows
