"""A training put down in a folder, for processes that did not build it.

    order/
      model/        the QUEEN as it starts, in Hugging Face's format
      expert/       its encoder, if it has one
      order.pickle  mixture, settings and the rest
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from queen.errors import QueenError
from queen.networks.expert import Expert
from queen.networks.lc0.load import load_encoder, save_encoder
from queen.networks.queen import QueenModel, freeze
from queen.training.loop import TrainResult
from queen.training.settings import TrainSettings
from queen.training.sft import Part, fine_tune

_MODEL, _EXPERT, _PICKLE, _REPORTS = "model", "expert", "order.pickle", "reports.jsonl"
_ERROR, ALIVE = "error.pickle", "alive"


@dataclass(frozen=True)
class Order:
    """What `fine_tune` is to be called with, but for the networks.

    Attributes:
        wanted: states that the expert gives; empty for a training without one.
        frozen: parts of the model that do not learn.
    """

    mixture: tuple[Part, ...]
    settings: TrainSettings
    work: Path
    table_mb: int
    wanted: tuple[int, ...]
    frozen: tuple[str, ...]


def write_order(
    folder: Path,
    model: QueenModel,
    expert: Expert | None,
    mixture: Sequence[Part],
    settings: TrainSettings,
    work: Path,
    table_mb: int,
) -> None:
    """Put a training down in an empty folder."""
    model.save_pretrained(folder / _MODEL)
    if expert is not None:
        save_encoder(expert.encoder, folder / _EXPERT)
    wanted = expert.wanted if expert is not None else ()
    order = Order(tuple(mixture), settings, work, table_mb, wanted, model.frozen_parts)
    (folder / ALIVE).write_text(f"{socket.gethostname()} {os.getpid()}")
    (folder / _PICKLE).write_bytes(pickle.dumps(order))


def carry_out(folder: Path, first: bool) -> None:
    """Do the training in this process's part; the first rank tells of it.

    Raises:
        QueenError: as `fine_tune` does; it is kept in the folder for who waits.
    """
    order: Order = pickle.loads((folder / _PICKLE).read_bytes())
    model = QueenModel.from_pretrained(folder / _MODEL)
    if order.frozen:
        freeze(model, order.frozen)
    expert = None
    if order.wanted:
        expert = Expert(load_encoder(folder / _EXPERT), order.wanted, memory_mb=0)
    reports = Reports(folder) if first else None
    try:
        result = fine_tune(
            model,
            expert,
            order.mixture,
            order.settings,
            work=order.work,
            table_mb=order.table_mb,
            sink=reports.figures if reports else _nowhere,
            progress=reports.progress if reports else _nothing,
        )
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
def take_over(model: QueenModel, trained: Mapping[str, torch.Tensor]) -> None:
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
