"""Writing network files: the inverse of `proto.decode`."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from queen.networks.lc0.proto import SCHEMA, Field, Message, wire_type
from queen.networks.lc0.weights import BFLOAT16, FLOAT16, FLOAT32, LINEAR16, Array


def write_net(net: Message, path: Path) -> None:
    """Write a decoded `Net`, gzipped if the name ends in .gz; whole or not at all."""
    staged = path.with_name(f".{path.name}.{os.getpid()}")
    with gzip.open(staged, "wb", 1) if path.suffix == ".gz" else staged.open("wb") as file:
        file.writelines(encode(net, "Net"))
    os.replace(staged, path)


def encode(message: Message, kind: str) -> Iterator[bytes | memoryview]:
    """A message's bytes in pieces, fields in the order of their numbers."""
    for number, field in sorted(SCHEMA[kind].items()):
        if field.name in message:
            values = message[field.name]
            for value in values if field.repeated else [values]:
                yield from _field(number, field, value)


def encode_layer(values: Array, encoding: int = FLOAT32) -> Message:
    """An array as a decoded `Layer`; LINEAR16, FLOAT16 and BFLOAT16 round to the nearest."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    layer: Message = {"encoding": encoding}
    if encoding == LINEAR16:
        low, high = (float(flat.min()), float(flat.max())) if flat.size else (0.0, 0.0)
        steps = (flat.astype(np.float64) - low) / ((high - low) or 1.0) * 65535
        layer |= {"min_val": low, "max_val": high}
        raw = np.rint(steps).astype("<u2")
    elif encoding == FLOAT16:
        raw = flat.astype("<f2")
    elif encoding == BFLOAT16:
        bits = flat.view(np.uint32).astype(np.uint64)
        raw = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
    else:
        raw = flat.astype("<f4")
    return layer | {"params": raw.view(np.uint8).data}


def _field(number: int, field: Field, value: Any) -> Iterator[bytes | memoryview]:
    wire = wire_type(field.kind)
    yield _varint(number << 3 | wire)
    if wire == 0:
        yield _varint(value)
    elif wire == 5:
        yield struct.pack("<f" if field.kind == "float" else "<I", value)
    else:
        parts = _contents(field.kind, value)
        yield _varint(sum(len(part) for part in parts))
        yield from parts


def _contents(kind: str, value: Any) -> list[bytes | memoryview]:
    if kind == "string":
        return [value.encode()]
    return [value] if kind == "bytes" else list(encode(value, kind))


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
