"""The training loop: any network, any task, exact resume.

A run is a function of (model at the start, task, settings). Killed at any moment it goes on
from its last checkpoint and ends with the same weights, bit for bit, on the same machine with
the same number of threads: the batch of a step depends on the step alone, the optimizer's state
and torch's generator are saved, and torch is held to deterministic algorithms.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils import deterministic as _torch_memory

from queen.errors import QueenError
from queen.training import checkpoint as ck
from queen.training.backend import Backend, Group, open_backend, trained
from queen.training.progress import ShowProgress
from queen.training.settings import TrainSettings

__all__ = [
    "Batch",
    "NotFiniteError",
    "Sink",
    "Task",
    "TrainResult",
    "TrainSettings",
    "deterministic",
    "train",
]

_memory: Any = _torch_memory

Sink = Callable[[int, Mapping[str, float]], None]


class NotFiniteError(QueenError):
    """A loss or gradient that is not a finite number."""


class Batch(Protocol):
    """The examples of one step.

    Attributes:
        weight: what the summed loss is divided by (the number of target tokens, weighted).
        tokens: real tokens, prompts included and padding not.
    """

    @property
    def weight(self) -> float: ...

    @property
    def tokens(self) -> int: ...

    def split(self, size: int) -> Sequence[Self]:
        """Micro-batches of at most `size` examples."""

    def tensors(self) -> dict[str, Tensor]:
        """All that is needed to see what the batch held."""


B = TypeVar("B", bound=Batch)


class Task(Protocol[B]):
    """What is learnt.

    Attributes:
        fingerprint: of the data and its order; a checkpoint made on other data is refused.
    """

    @property
    def fingerprint(self) -> str: ...

    def groups(self, model: Any, settings: TrainSettings) -> list[Group]:
        """Torch's parameter groups of what is trained."""

    def batch(self, step: int) -> B:
        """The batch of a step: a pure function of the step."""

    def loss(self, model: Any, batch: B) -> Tensor:
        """The loss of a (micro-)batch, summed over its targets; a float32 scalar."""

    def figures(self, model: Any) -> dict[str, float]:
        """Further figures of the model as it stands, such as its gates."""


@dataclass(frozen=True, eq=False)
class TrainResult:
    """What a run did.

    Attributes:
        steps: optimizer steps in all, those before a resume included.
        tokens: real tokens seen.
        losses: [steps] mean loss of each step.
        seconds: time spent training, all sittings together.
        resumed_from: step of the checkpoint this sitting began from; 0 for none.
    """

    steps: int
    tokens: int
    losses: NDArray[np.float64]
    seconds: float
    resumed_from: int

    @property
    def final_loss(self) -> float:
        """Mean loss of the last tenth of the run."""
        return float(self.losses[-max(1, len(self.losses) // 10) :].mean())


def train(
    model: nn.Module,
    task: Task[Any],
    settings: TrainSettings,
    *,
    work: Path,
    sink: Sink = lambda step, figures: None,
    progress: ShowProgress = lambda done, total, note="": None,
) -> TrainResult:
    """Train `model` in place, resuming from what `work` holds.

    Args:
        work: folder of this run's checkpoints; the caller removes it once the result is kept.
        sink: given the figures of every `log_every` steps at once.
        progress: told every step.

    Raises:
        NotFiniteError: a loss or gradient is not finite; the batch is saved in `work`.
        CheckpointError: `work` holds a checkpoint of another model, data or settings, or the
            disk is full.
    """
    work.mkdir(parents=True, exist_ok=True)
    with deterministic(settings.threads), _training(model):
        torch.manual_seed(settings.seed)
        run = _Run(model, task, settings, work)
        run.resume()
        while run.step < settings.steps:
            run.advance()
            if run.step % settings.log_every == 0 or run.step == settings.steps:
                sink(run.step, run.figures())
            progress(run.step, settings.steps, run.note())
            run.save_if_due()
        return run.result()


class _Run:
    """A training run between two steps."""

    def __init__(
        self, model: nn.Module, task: Task[Any], settings: TrainSettings, work: Path
    ) -> None:
        self.task, self.settings, self.work, self.model = task, settings, work, model
        self.identity = {
            "task": task.fingerprint,
            "settings": settings.fingerprint(),
            "start": _digest(trained(model)),
        }
        self.backend: Backend = open_backend(model, task.groups(model, settings), settings)
        self.losses = np.zeros(settings.steps)
        self.norms = np.zeros(settings.steps)
        self.step = self.tokens = self.resumed_from = self.saved_at = 0
        self.seconds = 0.0
        self.started = self.saved_time = time.monotonic()
        self.window = (0, self.started)

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        found = ck.latest(self.work)
        if found is None:
            return
        files = (ck.model_file(found.folder), ck.optimizer_file(found.folder))
        ck.matching(found.model, self.backend.model_tensors(), files[0])
        _same_run(found, self.identity)
        self.backend.restore(found.model, found.optimizer, files)
        ck.restore_generators(found.optimizer)
        self.step = self.resumed_from = self.saved_at = found.step
        self.losses[: found.step] = found.optimizer["history/losses"].numpy()
        self.norms[: found.step] = found.optimizer["history/norms"].numpy()
        self.tokens, self.seconds = found.state["tokens"], found.state["seconds"]
        self.window = (self.tokens, time.monotonic())

    def advance(self) -> None:
        """One optimizer step."""
        batch = self.task.batch(self.step)
        size = self.settings.micro_batch
        parts = batch.split(size) if size else [batch]
        losses = [
            self.backend.backward(partial(self.task.loss, self.model, part), batch.weight)
            for part in parts
        ]
        loss = float(sum(losses)) / batch.weight
        if not math.isfinite(loss):
            raise self._not_finite("loss", loss, batch)
        norm = float(self.backend.step(self.settings.lr_share(self.step)))
        if not math.isfinite(norm):
            raise self._not_finite("gradient norm", norm, batch)
        self.losses[self.step], self.norms[self.step] = loss, norm
        self.tokens += batch.tokens
        self.step += 1

    def figures(self) -> dict[str, float]:
        """Means since the last figures, and where the rate and the model stand."""
        steps = (self.step - 1) % self.settings.log_every + 1
        span = slice(self.step - steps, self.step)
        tokens, since = self.window
        self.window = (self.tokens, time.monotonic())
        return {
            "loss": float(self.losses[span].mean()),
            "grad_norm": float(self.norms[span].mean()),
            "lr": self.settings.lr * self.settings.lr_share(self.step - 1),
            "tokens_per_s": (self.tokens - tokens) / max(1e-9, self.window[1] - since),
            **self.task.figures(self.model),
        }

    def note(self) -> str:
        """The latest figures for a progress line."""
        seconds = max(1e-9, self.seconds + time.monotonic() - self.started)
        recent = self.losses[max(0, self.step - self.settings.log_every) : self.step]
        return f"loss {recent.mean():.3f}, {self.tokens / seconds:,.0f} tokens/s"

    def save_if_due(self) -> None:
        """Write a checkpoint if its time or step has come, and always at the end."""
        every, every_s = self.settings.checkpoint_every, self.settings.checkpoint_every_s
        due = self.step == self.settings.steps or (every > 0 and self.step % every == 0)
        due |= every_s > 0 and time.monotonic() - self.saved_time >= every_s
        if due and self.step > self.saved_at:
            self._save()

    def result(self) -> TrainResult:
        return TrainResult(self.step, self.tokens, self.losses, self._spent(), self.resumed_from)

    def _save(self) -> None:
        own = {
            "history/losses": torch.from_numpy(self.losses[: self.step]),
            "history/norms": torch.from_numpy(self.norms[: self.step]),
            **ck.generator_state(),
        }
        state = {**self.identity, "tokens": self.tokens, "seconds": self._spent()}
        optimizer = {**self.backend.optimizer_tensors(), **own}
        ck.save(self.work, ck.Checkpoint(self.step, self.backend.model_tensors(), optimizer, state))
        self.saved_at, self.saved_time = self.step, time.monotonic()

    def _spent(self) -> float:
        return self.seconds + time.monotonic() - self.started

    def _not_finite(self, what: str, value: float, batch: Batch) -> NotFiniteError:
        path = self.work / f"not-finite-{self.step:09d}.safetensors"
        ck.save_tensors(path, batch.tensors())
        return NotFiniteError(
            f"{what} is {value} at step {self.step}; the batch is saved there",
            where=str(path),
            remedy="lower training.lr or training.clip, or try training.precision=fp32",
        )


def _same_run(found: ck.Checkpoint, identity: Mapping[str, Any]) -> None:
    """Refuse to go on from a checkpoint of another run, naming what differs."""
    names = {"task": "training data", "start": "model at the start"}
    settings = identity["settings"]
    differing = [what for key, what in names.items() if found.state.get(key) != identity[key]]
    written = found.state.get("settings", {})
    differing += [
        f"training.{key} (was {written.get(key)!r}, now {settings.get(key)!r})"
        for key in sorted(settings.keys() | written.keys())
        if written.get(key) != settings.get(key)
    ]
    if differing:
        raise ck.CheckpointError(
            f"the checkpoint is of another run: {', '.join(differing)} differs",
            where=str(found.folder),
            remedy=f"restore what differs to go on, or remove {found.folder} to start afresh",
        )


def _digest(tensors: Mapping[str, Tensor]) -> str:
    state = hashlib.sha256()
    for name, tensor in tensors.items():
        state.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
        flat = tensor.detach().to("cpu").contiguous().view(-1)
        state.update(flat.view(torch.uint8).numpy().data)
    return state.hexdigest()


@contextmanager
def _training(model: nn.Module) -> Iterator[None]:
    """Training mode, and back to what it was."""
    before = model.training
    model.train()
    try:
        yield
    finally:
        model.train(before)


@contextmanager
def deterministic(threads: int) -> Iterator[None]:
    """A fixed number of threads and deterministic algorithms, and back to what was."""
    before = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        _memory.fill_uninitialized_memory,
    )
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    _memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
        _memory.fill_uninitialized_memory = before[2]
