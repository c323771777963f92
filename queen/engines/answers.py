"""Labels as they come, appended to a file, so that a killed run asks no engine twice."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from queen.engines.closing import ClosedAtExit
from queen.engines.labelling import Label

_RECORD = struct.Struct("<IBhHhq")  # number, kind of score, score, best, depth, nodes
_CHECK = struct.Struct("<I")  # CRC-32 of the record before it
_CP, _MATE, _BY_RULES = 1, 2, 4
WRITE_EVERY = 64


class AnswerLog(ClosedAtExit):
    """Answers by the number of their position; `answers` holds what an earlier run left.

    What follows a record that is cut off or damaged counts as missing. Where another process has
    the file, nothing is read or kept: two may be at the same work, if one was taken for dead.

    Args:
        path: the file, made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self.answers: dict[int, Label] = {}
        self._waiting: list[bytes] = []
        self._file = path.open("a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._ours = False
        else:
            self._ours = True
            self._read()

    def _read(self) -> None:
        self._file.seek(0)
        data = self._file.read() or b""
        whole = 0
        for record in _sound(data):
            number, kind, score, best, depth, nodes = _RECORD.unpack(record)
            cp = score if kind & _CP else None
            mate = score if kind & _MATE else None
            self.answers[number] = Label(
                cp, mate, best, depth, nodes, "rules" if kind & _BY_RULES else "engine"
            )
            whole += _RECORD.size + _CHECK.size
        os.ftruncate(self._file.fileno(), whole)

    def add(self, number: int, label: Label) -> None:
        """Keep an answer; it is on its way to the disk after some more."""
        score = label.mate if label.cp is None else label.cp
        kind = _MATE if label.cp is None else _CP
        kind |= _BY_RULES if label.source == "rules" else 0
        record = _RECORD.pack(number, kind, score, label.best, label.depth, label.nodes)
        self._waiting.append(record + _CHECK.pack(zlib.crc32(record)))
        if len(self._waiting) >= WRITE_EVERY:
            self._write()

    def _write(self) -> None:
        left = memoryview(b"".join(self._waiting) if self._ours else b"")
        while left:  # a disk that fills takes a part
            left = left[self._file.write(left) :]
        self._waiting.clear()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._write()
        self._file.close()


def _sound(data: bytes) -> Iterator[bytes]:
    """The records up to the first that is cut off or not as it was written."""
    size = _RECORD.size
    for start in range(0, len(data) - size - _CHECK.size + 1, size + _CHECK.size):
        record = data[start : start + size]
        if _CHECK.unpack_from(data, start + size) != (zlib.crc32(record),):
            return
        yield record
