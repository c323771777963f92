"""Where a position belongs: 64 bits mixed from its 36 bytes.

The number spreads positions over partitions and orders them. It is never their identity: that is
the bytes themselves, compared wherever two numbers agree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from queen.positions.packed import POSITION_BYTES, Packed

Hashes = npt.NDArray[np.uint64]

_ROWS_AT_ONCE = 1 << 14  # what is mixed stays in the processor's cache
_FACTORS = tuple(
    np.uint64(n)
    for n in (
        0x9E3779B97F4A7C15,
        0xBF58476D1CE4E5B9,
        0x94D049BB133111EB,
        0xD6E8FEB86659FD93,
        0xA0761D6478BD642F,
    )
)
_HALF, _SEED = np.uint64(32), np.uint64(0x2545F4914F6CDD1D)


def position_hash(packed: Packed) -> Hashes:
    """A number for each of the positions [n, 36]; all of its bits are mixed alike."""
    rows = np.ascontiguousarray(packed)
    out = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, len(rows))
        out[start:stop] = _mixed(rows[start:stop])
    return out


def _mixed(rows: Packed) -> Hashes:
    """Word by word: exclusive or, multiply, fold the upper half down."""
    number = np.full(len(rows), _SEED)
    for word, factor in zip(_words(rows), _FACTORS, strict=True):
        number ^= word
        number *= factor
        number ^= number >> _HALF
    number *= _FACTORS[0]
    number ^= number >> _HALF
    number *= _FACTORS[1]
    return number


def _words(rows: Packed) -> list[npt.NDArray[np.unsignedinteger]]:
    """The 36 bytes of each row as four words of 8 bytes and one of 4."""
    steps = (POSITION_BYTES,)
    wide = [np.ndarray(len(rows), "<u8", rows, 8 * n, steps) for n in range(4)]
    return [*wide, np.ndarray(len(rows), "<u4", rows, 32, steps)]
