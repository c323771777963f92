"""Rows of the bulk data set as fixed-size records, the form in which they are moved about.

A record holds a row of `OCCURRENCES` in one piece, so that a permutation copies each row once. A
column that is null has the value 0 there and its bit in `nulls`; like rows are like bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queen.errors import QueenError
from queen.positions.packed import POSITION_BYTES, Packed
from queen.positions.schema import GAME_BYTES, OCCURRENCES

Records = npt.NDArray[np.void]

BYTES = {"position": POSITION_BYTES, "game": GAME_BYTES}
NUMBERS = tuple(name for name in OCCURRENCES.names if name not in BYTES)
COUNTS = ("seen", "white_wins", "draws", "black_wins")
_BIT = {name: 1 << place for place, name in enumerate(NUMBERS)}


def _kind(name: str) -> np.dtype[Any]:
    """NumPy's type of a column. (Arrow's `to_pandas_dtype` would import pandas.)"""
    return np.dtype("float32" if (kind := str(OCCURRENCES.field(name).type)) == "float" else kind)


OCCURRENCE = np.dtype(
    [(name, f"V{size}") for name, size in BYTES.items()]
    + [(name, _kind(name)) for name in NUMBERS]
    + [("nulls", "<u2")]
)
# A row that stands for several: the survivor of them and what they counted.
COUNTED = np.dtype(OCCURRENCE.descr + [(name, "<u4") for name in COUNTS])


def fill(out: Records, batch: pa.RecordBatch) -> None:
    """Write a batch with the columns of OCCURRENCES into as many records.

    Raises QueenError if a position or a game is null, or a column is missing or of another type.
    """
    nulls = np.zeros(len(out), np.uint16)
    for name in BYTES:
        out[name] = fixed_bytes(_column(batch, name)).view(f"V{BYTES[name]}")[:, 0]
    for name in NUMBERS:
        column = _column(batch, name)
        values = np.frombuffer(column.buffers()[1], _kind(name))[column.offset :][: len(column)]
        if column.null_count:
            absent = _absent(column)
            nulls |= absent * np.uint16(_BIT[name])
            values = np.where(absent, _kind(name).type(0), values)
        out[name] = values
    out["nulls"] = nulls


def _absent(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Where a column is null: its bitmap. Arrow's own functions for it load 40 MB of code."""
    bitmap = np.frombuffer(column.buffers()[0], np.uint8)
    first, last = column.offset, column.offset + len(column)
    bits = np.unpackbits(bitmap[first // 8 : -(-last // 8)], bitorder="little")
    return np.asarray(bits[first % 8 : first % 8 + len(column)] == 0)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    wanted = OCCURRENCES.field(name).type
    if name not in batch.schema.names or batch.schema.field(name).type != wanted:
        found = batch.schema.field(name).type if name in batch.schema.names else "no such column"
        raise QueenError(
            f"the column {name!r} should be {wanted}: {found}",
            where="a table of occurrences",
            remedy="make it with the stage `extract` of this version",
        )
    return batch.column(name)


def fixed_bytes(column: pa.Array) -> Packed:
    """The bytes [n, width] of a column of fixed-size binaries, none of them null; not copied."""
    width = column.type.byte_width
    if column.null_count:
        raise QueenError(
            f"{column.null_count} of {len(column)} values are null",
            where=f"a column of {width} bytes a row",
            remedy="run the stage that made the table again",
        )
    whole = np.frombuffer(column.buffers()[1], np.uint8)
    first = column.offset * width
    return whole[first : first + len(column) * width].reshape(-1, width)


def positions_of(records: Records) -> Packed:
    """The packed positions [n, 36] of records, as one piece of memory."""
    return np.ascontiguousarray(records["position"]).view(np.uint8).reshape(-1, POSITION_BYTES)


def present(records: Records, name: str) -> npt.NDArray[np.bool_]:
    """Where a column is not null."""
    return np.asarray((records["nulls"] & np.uint16(_BIT[name])) == 0)


def table_of(records: Records, schema: pa.Schema) -> pa.Table:
    """Records as a table of the schema's columns."""
    return pa.table([_array(records, entry) for entry in schema], schema=schema)


def _array(records: Records, entry: pa.Field) -> pa.Array:
    """A column from its buffers. (`pa.array` of an ndarray would import pandas.)"""
    values = np.ascontiguousarray(records[entry.name])
    bitmap = None
    if entry.name in _BIT and not (there := present(records, entry.name)).all():
        bitmap = pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers = [bitmap, pa.py_buffer(values.view(np.uint8))]
    return pa.Array.from_buffers(entry.type, len(values), buffers)


def records_of(batches: Iterable[pa.RecordBatch]) -> Records:
    """All batches as records: for tables that fit into memory."""
    parts: Sequence[pa.RecordBatch] = list(batches)
    out = np.empty(sum(len(part) for part in parts), OCCURRENCE)
    done = 0
    for part in parts:
        fill(out[done : done + len(part)], part)
        done += len(part)
    return out
