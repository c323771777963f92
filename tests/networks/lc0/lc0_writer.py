"""A small writer of lc0 network files, independent of the reader under test."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

LINEAR16, FLOAT16, BFLOAT16, FLOAT32 = 1, 2, 3, 4


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: Any) -> bytes:
    """One field on the wire: an int as a varint, a float as four bytes, bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(fields: Mapping[int, Any]) -> bytes:
    return b"".join(
        field(number, one)
        for number, value in fields.items()
        for one in (value if isinstance(value, list) else [value])
    )


def layer(values: np.ndarray, encoding: int | None = FLOAT32) -> bytes:
    flat = np.asarray(values, np.float32).ravel()
    fields: dict[int, Any] = {}
    if encoding in (None, LINEAR16):
        low, high = float(flat.min()), float(flat.max())
        span = (high - low) or 1.0
        fields |= {1: low, 2: high}
        raw = np.rint((flat - low) / span * 65535).astype("<u2").tobytes()
    elif encoding == FLOAT16:
        raw = flat.astype("<f2").tobytes()
    elif encoding == BFLOAT16:
        raw = (flat.view(np.uint32) >> 16).astype("<u2").tobytes()
    else:
        raw = flat.astype("<f4").tobytes()
    fields[3] = raw
    if encoding is not None:
        fields[4] = encoding
    return message(fields)


class RandomNet:
    """A random SE-ResNet: `arrays` holds every tensor under a dotted name, `blob` the file.

    Args:
        policy: 1 dense, 2 convolution, 3 attention (one encoder layer of two heads).
        value: 1 scalar, 2 win/draw/loss.
        squeeze: width of the SE units, 0 for none.
    """

    def __init__(
        self,
        policy: int = 2,
        value: int = 2,
        moves_left: int = 1,
        activation: int = 0,
        squeeze: int = 3,
        filters: int = 6,
        blocks: int = 2,
        seed: int = 0,
        encoding: int | None = FLOAT32,
        format_fields: Mapping[int, int] | None = None,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.arrays: dict[str, np.ndarray] = {}
        self.encoding, self.blocks, self.activation = encoding, blocks, activation
        self.squeeze, self.policy, self.value, self.moves_left = squeeze, policy, value, moves_left
        form = {
            1: 1, 2: value, 3: 4 if squeeze else 3, 4: policy, 5: value, 6: moves_left,
            7: activation, **(format_fields or {}),
        }  # fmt: skip
        weights = self._body(filters, blocks) | self._policy(filters) | self._scalars(filters)
        self.fields = {4: message({1: 1, 2: message(form)}), 10: message(weights)}
        self.weights = weights

    @property
    def blob(self) -> bytes:
        return b"\x0d" + struct.pack("<I", 0x1C0) + message({2: b"none", **self.fields})

    def write(self, path: Path) -> Path:
        blob = self.blob
        path.write_bytes(gzip.compress(blob, 1) if path.suffix == ".gz" else blob)
        return path

    def _layer(self, name: str, *shape: int, positive: bool = False) -> bytes:
        values = self.rng.normal(0, 0.3, shape).astype(np.float32)
        self.arrays[name] = np.abs(values) + 0.5 if positive else values
        return layer(self.arrays[name], self.encoding)

    def _conv(self, name: str, outputs: int, inputs: int, kernel: int, norm: bool = True) -> bytes:
        fields = {
            1: self._layer(f"{name}.weights", outputs, inputs, kernel, kernel),
            2: self._layer(f"{name}.biases", outputs),
        }
        if norm:
            fields |= {
                3: self._layer(f"{name}.mean", outputs),
                4: self._layer(f"{name}.variance", outputs, positive=True),
                5: self._layer(f"{name}.gamma", outputs, positive=True),
                6: self._layer(f"{name}.beta", outputs),
            }
        return message(fields)

    def _dense(self, name: str, outputs: int, inputs: int, first: int) -> dict[int, bytes]:
        """Weights under field `first`, biases under the next."""
        return {
            first: self._layer(f"{name}.w", outputs, inputs),
            first + 1: self._layer(f"{name}.b", outputs),
        }

    def _body(self, filters: int, blocks: int) -> dict[int, Any]:
        return {
            1: self._conv("input", filters, 112, 3),
            2: [self._residual(f"block{i}", filters) for i in range(blocks)],
        }

    def _residual(self, name: str, filters: int) -> bytes:
        fields = {
            1: self._conv(f"{name}.conv1", filters, filters, 3),
            2: self._conv(f"{name}.conv2", filters, filters, 3),
        }
        if self.squeeze:
            first = self._dense(f"{name}.se1", self.squeeze, filters, 1)
            second = self._dense(f"{name}.se2", 2 * filters, self.squeeze, 3)
            fields[3] = message(first | second)
        return message(fields)

    def _policy(self, filters: int) -> dict[int, Any]:
        if self.policy == 1:
            return {3: self._conv("policy", 4, filters, 1)} | self._dense("dense", 1858, 256, 4)
        if self.policy == 2:
            first = self._conv("policy1", filters, filters, 3)
            return {11: first, 3: self._conv("policy", 80, filters, 3, norm=False)}
        width, depth = 8, 10
        query, key = self._dense("q", depth, width, 17), self._dense("k", depth, width, 19)
        return {
            **self._dense("embed", width, filters, 4), **query, **key,
            22: self._layer("ppo", 4, depth), 21: [self._encoder(width)], 24: 2,
        }  # fmt: skip

    def _encoder(self, width: int) -> bytes:
        mha = message(
            self._dense("mha.q", 12, width, 1) | self._dense("mha.k", 12, width, 3)
            | self._dense("mha.v", 12, width, 5) | self._dense("mha.out", width, 12, 7)
        )  # fmt: skip
        ffn = message(self._dense("ffn1", 14, width, 1) | self._dense("ffn2", width, 14, 3))
        norms = {
            number: self._layer(name, width)
            for number, name in ((2, "ln1.g"), (3, "ln1.b"), (5, "ln2.g"), (6, "ln2.b"))
        }
        return message({1: mha, 4: ffn} | norms)

    def _scalars(self, filters: int) -> dict[int, Any]:
        outputs = 3 if self.value == 2 else 1
        fields = {6: self._conv("value", 5, filters, 1)}
        fields |= self._dense("value1", 7, 320, 7) | self._dense("value2", outputs, 7, 9)
        if self.moves_left:
            fields[12] = self._conv("moves", 2, filters, 1)
            fields |= self._dense("moves1", 9, 128, 13) | self._dense("moves2", 1, 9, 15)
        return fields
