"""Stops a training run from within, as whoever watches its progress may."""

from __future__ import annotations

from collections.abc import Callable


class HaltError(Exception):
    pass


def halt_at(step: int) -> Callable[..., None]:
    """A progress that raises HaltError once so many steps are done."""

    def progress(done: int, total: int, note: str = "") -> None:
        if done >= step:
            raise HaltError

    return progress
