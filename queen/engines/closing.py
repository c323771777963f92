"""What has a `close` is closed where its `with` block ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class ClosedAtExit(ABC):
    """A context manager that closes itself, whatever happened inside."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held; a second call does nothing more."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
