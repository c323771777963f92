"""Decoding a network's layers: four number encodings to float32 arrays of a known shape.

Source: LC0 file format; a layer without an encoding is LINEAR16.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from queen.networks.lc0.errors import NetError, UnsupportedNet
from queen.networks.lc0.proto import Message

Array = NDArray[np.float32]

LINEAR16, FLOAT16, BFLOAT16, FLOAT32 = 1, 2, 3, 4


def decode_layer(layer: Message, where: str) -> Array:
    """The numbers of one layer, one-dimensional. Raises NetError naming `where`."""
    encoding = layer.get("encoding", 0) or LINEAR16
    raw = layer.get("params", memoryview(b""))
    width = 4 if encoding == FLOAT32 else 2
    if len(raw) % width:
        raise NetError(
            f"{len(raw)} bytes are no whole number of {width}-byte values",
            where=where,
            remedy="get the file again",
        )
    values = _decoded(layer, encoding, raw, where)
    if not np.isfinite(values).all():
        raise NetError("holds NaN or infinity", where=where, remedy="get the file again")
    return values


def _decoded(layer: Message, encoding: int, raw: memoryview, where: str) -> Array:
    if encoding == LINEAR16:
        t = np.frombuffer(raw, "<u2").astype(np.float32) / np.float32(65535)
        low, high = np.float32(layer.get("min_val", 0)), np.float32(layer.get("max_val", 0))
        return low * (1 - t) + high * t
    if encoding == FLOAT16:
        return np.frombuffer(raw, "<f2").astype(np.float32)
    if encoding == BFLOAT16:
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    if encoding == FLOAT32:
        return np.frombuffer(raw, "<f4").astype(np.float32)
    raise UnsupportedNet(
        f"weights in encoding {encoding}",
        where=where,
        remedy="convert the network to LINEAR16, FLOAT16, BFLOAT16 or FLOAT32 with lc0",
    )


class Weights:
    """A message of the weights that knows its place in the file.

    Args:
        message: the decoded message.
        file: the file's name.
        at: dotted path of the message within the file.
        absent: where the paths of missing layers that were taken as zero are noted.

    Attributes:
        absent: as given; shared by all parts.
    """

    def __init__(
        self, message: Message, file: str, at: str = "weights", absent: list[str] | None = None
    ) -> None:
        self._message, self._file, self._at = message, file, at
        self.absent = [] if absent is None else absent

    def where(self, name: str) -> str:
        """How errors name a field: the file and the field's path."""
        return f"{self._file}, field {self._at}.{name}"

    def has(self, name: str) -> bool:
        """Whether the field is there and not empty."""
        value = self._message.get(name)
        return bool(value.get("params") if isinstance(value, dict) and "params" in value else value)

    def number(self, name: str) -> int:
        """An integer field, 0 where absent."""
        return int(self._message.get(name, 0))

    def part(self, name: str) -> Weights:
        """A nested message. Raises NetError where it is missing."""
        if name not in self._message:
            raise self._missing(name)
        return self._within(self._message[name], name)

    def parts(self, name: str) -> list[Weights]:
        """A repeated nested message."""
        found = self._message.get(name, [])
        return [self._within(one, f"{name}[{i}]") for i, one in enumerate(found)]

    def text(self, name: str) -> str:
        """A string field, empty where absent."""
        return str(self._message.get(name, ""))

    def array(self, name: str, *shape: int) -> Array:
        """A layer in the given shape, where one size may be -1 (from the layer's length).

        Raises NetError where the layer is missing or its length does not fit the shape.
        """
        if not self.has(name):
            raise self._missing(name)
        values = decode_layer(self._message[name], self.where(name))
        known = math.prod(size for size in shape if size != -1)
        fits = values.size % known == 0 if -1 in shape else values.size == known
        if not fits:
            wanted = " x ".join("n" if size == -1 else str(size) for size in shape)
            raise NetError(
                f"{values.size} values where {wanted} are expected",
                where=self.where(name),
                remedy="the file is damaged or of another architecture than it says: get it again",
            )
        return values.reshape(shape)

    def vector_or_zeros(self, name: str, size: int) -> Array:
        """A layer that some networks do without; its absence is noted in `absent`."""
        if self.has(name):
            return self.array(name, size)
        self.absent.append(f"{self._at}.{name}")
        return np.zeros(size, np.float32)

    def _within(self, message: Message, name: str) -> Weights:
        return Weights(message, self._file, f"{self._at}.{name}", self.absent)

    def _missing(self, name: str) -> NetError:
        return NetError(
            "missing",
            where=self.where(name),
            remedy="the file is incomplete or of another architecture than it says: get it again",
        )
