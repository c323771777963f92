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
from queen.networks.value.labels import class_of
from queen.positions.packed import POSITION_BYTES
from queen.positions.schema import GAME_BYTES
from queen.training.rows import ROW, RowFile, Rows, open_rows_file, write_rows_file

TRAIN, HELDOUT, TOLD = "train.npy", "heldout.npz", "rows.json"
BATCH = 1 << 16
RULES = "rules"
_POSITION, _GAME = f"S{POSITION_BYTES}", f"S{GAME_BYTES}"
_LABEL = np.dtype(
    [("position", _POSITION), ("cp", "<i2"), ("mate", "<i2"), ("is_mate", "?"), ("rules", "?")]
)

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
    np.savez(folder / HELDOUT, rows=rows, games=games.view("u1").reshape(-1, GAME_BYTES))
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
    names = sorted(e.name for e in label.record.files if e.name.endswith(".parquet"))
    return [n for n in names if {"position", "source"} <= set(pq.read_schema(label.file(n)).names)]


def _pairs(
    dedup: Artifact, label: Artifact, name: str, sources: Sequence[str], counts: Counter[str]
) -> Iterator[tuple[Rows, Array]]:
    """Rows and games of one file's labelled positions."""
    source = label.file(name)
    labels = _Labels(_label_batches(source, sources))
    with pq.ParquetFile(dedup.file(name)) as file:
        for batch in file.iter_batches(BATCH, columns=["position", "game", "halfmove"]):
            positions, games = _fixed(batch["position"], _POSITION), _fixed(batch["game"], _GAME)
            places, found = labels.of(positions)
            counts[RULES] += int(found["rules"].sum())
            counts[sources[0]] += int((~found["rules"]).sum())
            if len(places):
                halfmove = batch["halfmove"].to_numpy()[places]
                yield _rows(found, halfmove), games[places]
    if labels.rest():
        raise QueenError(
            "labels of positions that are not there, or not in the same order",
            where=str(source),
            remedy="make both again: `queen run label`",
        )


def _rows(labels: Array, halfmove: Array) -> Rows:
    rows = np.zeros(len(labels), ROW)
    positions = np.ascontiguousarray(labels["position"])
    rows["position"] = positions.view("u1").reshape(-1, POSITION_BYTES)
    rows["halfmove"] = halfmove
    rows["label"] = class_of(labels["cp"], labels["mate"], labels["is_mate"])
    rows["cp"] = labels["cp"]
    return rows


class _Labels:
    """Labels of a file, taken as the positions they belong to come by."""

    def __init__(self, batches: Iterator[Array]) -> None:
        self.batches, self.held = batches, np.zeros(0, _LABEL)

    def of(self, positions: Array) -> tuple[NDArray[np.int64], Array]:
        """Places of positions that have a label, and the labels; a second label is left out."""
        order = np.argsort(positions)
        places: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        found = [np.zeros(0, _LABEL)]
        while len(self.held) or self._more():
            at = np.searchsorted(positions, self.held["position"], sorter=order)
            place = order[np.minimum(at, len(positions) - 1)]
            here = positions[place] == self.held["position"]
            count = len(here) if here.all() else int(here.argmin())
            places.append(place[:count])
            found.append(self.held[:count])
            self.held = self.held[count:]
            if len(self.held):
                break
        which, first = np.unique(np.concatenate(places), return_index=True)
        return which, np.concatenate(found)[first]

    def rest(self) -> bool:
        """Whether labels are left."""
        return bool(len(self.held)) or self._more()

    def _more(self) -> bool:
        for batch in self.batches:
            if len(batch):
                self.held = batch
                return True
        return False


def _label_batches(path: Path, sources: Sequence[str]) -> Iterator[Array]:
    """Labels of the named sources in the file's order."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(BATCH, columns=["position", "source", "cp", "mate"]):
            kept = batch.filter(pc.is_in(batch["source"], pa.array(sources)))
            labels = np.zeros(kept.num_rows, _LABEL)
            labels["position"] = _fixed(kept["position"], _POSITION)
            labels["cp"] = pc.fill_null(kept["cp"], 0).to_numpy()
            labels["mate"] = pc.fill_null(kept["mate"], 0).to_numpy()
            labels["is_mate"] = pc.is_valid(kept["mate"]).to_numpy(zero_copy_only=False)
            labels["rules"] = pc.equal(kept["source"], RULES).to_numpy(zero_copy_only=False)
            yield labels


def _fixed(column: pa.Array, kind: str) -> Array:
    """A column of bytes of fixed length as numpy's; equal length, so equal means the same bytes."""
    size = np.dtype(kind).itemsize
    data = column.buffers()[1]
    whole = np.frombuffer(data, kind, count=len(column), offset=column.offset * size)
    return whole if len(column) else np.zeros(0, kind)
