"""Errors that tell a person what went wrong, where, and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


class QueenError(Exception):
    """A failure a person can act on.

    Args:
        what: what is wrong, in one sentence.
        where: the file, record or field it is about.
        remedy: what to do about it.
    """

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  remedy: {self.remedy}" if self.remedy else head

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.remedy)


def _rebuild(kind: type[QueenError], what: str, where: str, remedy: str) -> QueenError:
    """Unpickle: exceptions with keyword arguments do not by themselves."""
    return kind(what, where=where, remedy=remedy)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what is said of a damaged table within into an error that names its file."""
    try:
        yield
    except (OSError, ValueError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise QueenError(
            f"the table cannot be read: {lines[0][:200]}",
            where=str(path),
            remedy="`queen verify` names what is damaged; `dvc checkout`, or run its stage again",
        ) from error
