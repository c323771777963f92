"""Clocks and evaluations in a game's comments: `[%clk 0:09:58]`, `[%eval -0.31]`, `[%eval #4]`.

One reading of them for every reader. Mates are written as numbers that no evaluation has, since
the fast reader knows numbers only.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

LARGEST = 1_000  # pawns; more is no evaluation
LARGEST_CP = 32_000  # further is cut to it: 16 bits hold it
# Mate in 3, 12 and 120 are written 10003, 100012 and 1000120: this before the digits.
_MATE = b"1000"
_MATES = ((10_000, 10), (100_000, 100), (1_000_000, 1_000))  # from, how many

_DEPTHS = re.compile(rb"(\[%eval [+-]?[0-9.]+),\d+\]")
_TAGS = re.compile(r"\[%([^\]]*)\]")
_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
# Python reads no number of more than 4,300 digits.
_CLOCK = re.compile(r"clk\s*\+?(\d{1,4000}):\+?(\d{1,4000}):" + _NUMBER)
_EVAL = re.compile(r"eval\s*" + _NUMBER)

Floats = npt.NDArray[np.float32]


def numeric(body: bytes) -> bytes:
    """Movetext with mates written as numbers and without the depths of evaluations."""
    return _DEPTHS.sub(rb"\1]", numeric_mates(body))


def numeric_mates(body: bytes) -> bytes:
    """Movetext with mates written as numbers."""
    negative = body.replace(b"[%eval #-", b"[%eval -" + _MATE)
    return negative.replace(b"[%eval #", b"[%eval " + _MATE)


def told(comment: str) -> tuple[float | None, float | None]:
    """Clock in seconds and evaluation in pawns of a comment in `numeric` text; the last counts."""
    clock = evaluation = None
    for tag in _TAGS.findall(comment):
        if (found := _CLOCK.fullmatch(tag)) and int(found[2]) <= 255 and int(found[1]) <= 65535:
            clock = int(found[1]) * 3600 + int(found[2]) * 60 + float(found[3])
        elif found := _EVAL.fullmatch(tag):
            evaluation = float(found[1])
    return clock, evaluation


def scores(
    evals: Floats, white_to_move: npt.NDArray[np.bool_]
) -> tuple[np.ma.MaskedArray, np.ma.MaskedArray]:  # type: ignore[type-arg]
    """Centipawns and moves to mate from the side to move, of evaluations as White sees them.

    Args:
        evals: pawns or `numeric` mates, NaN for none, [n].

    Returns:
        Two masked int16 arrays, [n]: masked where there is none of the kind.
    """
    side = np.where(white_to_move, 1.0, -1.0)
    size = np.nan_to_num(np.abs(evals), nan=LARGEST)
    mates = np.zeros(len(evals))
    mate = np.zeros(len(evals), np.bool_)
    for first, count in _MATES:
        here = (size >= first) & (size < first + count)
        mates = np.where(here, np.floor(size - first), mates)
        mate |= here
    plain = size < LARGEST
    pawns = np.where(plain, evals, 0.0).astype(np.float64)
    cp = np.clip(np.rint(pawns * 100.0 * side), -LARGEST_CP, LARGEST_CP)
    moves = mates * np.sign(np.where(mate, evals, 0.0)) * side
    return (
        np.ma.MaskedArray(cp.astype(np.int16), ~plain),
        np.ma.MaskedArray(moves.astype(np.int16), ~mate),
    )
