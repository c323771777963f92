"""A training put down in a folder, for processes that did not build it.

    order/
      order.pickle  what is to be done, as plain data; its networks lie beside it
      reports.jsonl what the first rank tells: progress, figures, the result
      error.pickle  what a rank stopped for
      alive         which process waits, touched by it; ranks end when it no longer is

What was trained is read from the run's last checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from queen.errors import QueenError
from queen.training.loop import Sink, TrainResult
from queen.training.progress import ShowProgress

_PICKLE, _REPORTS = "order.pickle", "reports.jsonl"
_ERROR, ALIVE = "error.pickle", "alive"


class Order(Protocol):
    """A training as plain data that can be pickled; its networks are files in the folder."""

    def train(self, folder: Path, sink: Sink, progress: ShowProgress) -> TrainResult:
        """Do it in this process's part, with the networks read from the folder."""


def put_down(folder: Path, order: Order) -> None:
    """Put an order down in a folder that holds its networks."""
    (folder / ALIVE).write_text(f"{socket.gethostname()} {os.getpid()}")
    (folder / _PICKLE).write_bytes(pickle.dumps(order))


def carry_out(folder: Path, first: bool) -> None:
    """Do the training in this process's part; the first rank tells of it.

    Raises:
        QueenError: as the training does; it is kept in the folder for who waits.
    """
    order: Order = pickle.loads((folder / _PICKLE).read_bytes())
    reports = Reports(folder) if first else None
    sink, progress = (reports.figures, reports.progress) if reports else (_nowhere, _nothing)
    try:
        result = order.train(folder, sink, progress)
    except QueenError as error:
        _keep(folder, error)
        raise
    if reports:
        reports.result(result)


class Reports:
    """Writes what the first rank tells, line by line."""

    def __init__(self, folder: Path) -> None:
        self.stream = (folder / _REPORTS).open("a", encoding="utf-8")

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        self._tell(kind="figures", step=step, figures=dict(figures))

    def progress(self, done: int, total: int, note: str = "") -> None:
        self._tell(kind="progress", done=done, total=total, note=note)

    def result(self, result: TrainResult) -> None:
        told = {**vars(result), "losses": result.losses.tolist()}
        self._tell(kind="result", **told)

    def _tell(self, **report: Any) -> None:
        self.stream.write(json.dumps(report) + "\n")
        self.stream.flush()


class Reading:
    """Reads reports as they come."""

    def __init__(self, folder: Path) -> None:
        self.path, self.offset = folder / _REPORTS, 0

    def new(self) -> list[dict[str, Any]]:
        """Whole lines since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            whole = stream.read().rpartition(b"\n")[0]
        self.offset += len(whole) + bool(whole)
        return [json.loads(line) for line in whole.splitlines()]


def kept_error(folder: Path) -> QueenError | None:
    """What a rank stopped for, if it is a failure a person can act on."""
    path = folder / _ERROR
    error: QueenError | None = pickle.loads(path.read_bytes()) if path.exists() else None
    return error


@torch.no_grad()
def take_over(model: nn.Module, trained: Mapping[str, torch.Tensor]) -> None:
    """Put trained tensors into a model of the same shape."""
    state = model.state_dict()
    for name, value in trained.items():
        state[name].copy_(value)


def _keep(folder: Path, error: QueenError) -> None:
    """The first rank to fail is heard: the others fail because of it."""
    partial = folder / f".{_ERROR}.{os.getpid()}"
    partial.write_bytes(pickle.dumps(error))
    with contextlib.suppress(FileExistsError):
        os.link(partial, folder / _ERROR)
    partial.unlink()


def _nowhere(step: int, figures: Mapping[str, float]) -> None:
    pass


def _nothing(done: int, total: int, note: str = "") -> None:
    pass
