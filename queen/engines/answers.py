"""Labels as they come, appended to a file, so that a killed run asks no engine twice."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path
from typing import Self

from queen.engines.labelling import Label

_RECORD = struct.Struct("<IBhHhqB")  # number, kind of score, score, best, depth, nodes, end mark
_CP, _MATE, _BY_RULES, _END = 1, 2, 4, 0xA5
WRITE_EVERY = 64


class AnswerLog:
    """Answers by the number of their position; `answers` holds what an earlier run left.

    A record cut off by a kill counts as missing. Where another process has the file, nothing is
    read or kept: two may be at the same work, if one was taken for dead.

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
        whole = len(data) - len(data) % _RECORD.size
        for number, kind, score, best, depth, nodes, end in _RECORD.iter_unpack(data[:whole]):
            if end == _END:
                cp = score if kind & _CP else None
                mate = score if kind & _MATE else None
                self.answers[number] = Label(
                    cp, mate, best, depth, nodes, "rules" if kind & _BY_RULES else "engine"
                )
        os.ftruncate(self._file.fileno(), whole)

    def add(self, number: int, label: Label) -> None:
        """Keep an answer; it is on its way to the disk after some more."""
        score = label.mate if label.cp is None else label.cp
        kind = _MATE if label.cp is None else _CP
        kind |= _BY_RULES if label.source == "rules" else 0
        self._waiting.append(
            _RECORD.pack(number, kind, score, label.best, label.depth, label.nodes, _END)
        )
        if len(self._waiting) >= WRITE_EVERY:
            self._write()

    def _write(self) -> None:
        if self._ours and self._waiting:
            self._file.write(b"".join(self._waiting))
        self._waiting.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._write()
        self._file.close()
