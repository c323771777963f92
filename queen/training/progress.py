"""A progress line for a training run: done, rate, time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class ShowProgress(Protocol):
    """Told how far a run is; `note` carries its latest figures."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


@contextmanager
def progress_line(label: str) -> Iterator[ShowProgress]:
    """A line on standard error while it is a terminal; nothing at all elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total, note="": None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _updater(bar, label)


def _updater(bar: Progress, label: str) -> Callable[..., None]:
    task = bar.add_task(label, total=None, note="")

    def show(done: int, total: int, note: str = "") -> None:
        bar.update(task, completed=done, total=total, note=note)

    return show
