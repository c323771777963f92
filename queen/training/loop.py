"""The training loop: any network, any task, exact resume.

A run is a function of (model at the start, task, settings). Killed at any moment it goes on
from its last checkpoint and ends with the same weights, bit for bit, on the same machine with
the same number of threads and ranks: the batch of a step depends on the step alone, the
optimizer's state and torch's generator are saved, and torch is held to deterministic algorithms.

Several ranks (see `world`) each take their part of a step's batch. With another number of them
a run goes on with the same batches, and its losses differ by rounding alone.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
import zlib
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
from queen.memory import release_memory
from queen.training import checkpoint as ck
from queen.training.backend import (
    Backend,
    recomputing,
    saved_buffers,
    trained,
)
from queen.training.backends import open_backend
from queen.training.figures import Meter, unit_of
from queen.training.optimizers import Group
from queen.training.progress import ShowProgress
from queen.training.settings import SettingsError, TrainSettings
from queen.training.world import World

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

    def share(self, rank: int, ranks: int) -> Self:
        """The part of one of several ranks; all parts together are the batch."""

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

    Where several ranks are joined, each calls this with the same arguments; the first of them
    writes checkpoints, figures and progress.

    Args:
        work: folder of this run's checkpoints; the caller removes it once the result is kept.
            All ranks must see it.
        sink: given the figures of every `log_every` steps at once.
        progress: told every step.

    Raises:
        NotFiniteError: a loss or gradient is not finite; the batch is saved in `work`.
        CheckpointError: `work` holds a checkpoint of another model, data or settings, or the
            disk is full.
    """
    work.mkdir(parents=True, exist_ok=True)
    world = World.here()
    with deterministic(settings.threads), _training(model, settings):
        torch.manual_seed(_seed_of(settings.seed, world.rank))
        run = _Run(model, task, settings, work, world)
        run.resume()
        while run.step < settings.steps:
            run.advance()
            if run.step % settings.log_every == 0 or run.step == settings.steps:
                run.tell(sink)
            if world.first:
                progress(run.step, settings.steps, run.note())
            run.save_if_due()
        run.backend.finish()
        return run.result()


class _Run:
    """A training run between two steps."""

    def __init__(
        self,
        model: nn.Module,
        task: Task[Any],
        settings: TrainSettings,
        work: Path,
        world: World,
    ) -> None:
        self.task, self.settings, self.work, self.world = task, settings, work, world
        self.given = model
        self.identity = {
            "task": task.fingerprint,
            "settings": settings.fingerprint(),
            "start": _digest(trained(model)),
        }
        self.backend: Backend = open_backend(
            model, lambda each: task.groups(each, settings), settings, world
        )
        self.losses = np.zeros(settings.steps)
        self.norms = np.zeros(settings.steps)
        self.step = self.tokens = self.resumed_from = self.saved_at = 0
        self.seconds = 0.0
        self.started = self.saved_time = time.monotonic()
        self.meter = Meter(settings, world, unit_of(task))

    def resume(self) -> None:
        """Go on from the newest checkpoint, if there is one."""
        found = self._latest()
        if found is None:
            return
        files = (ck.model_file(found.folder), ck.optimizer_file(found.folder))
        wanted = {**trained(self.given), **dict(saved_buffers(self.given))}
        ck.matching(found.model, wanted, files[0])
        _same_run(found, self.identity)
        self.backend.restore(found.model, found.optimizer, files)
        seed = _seed_of(self.settings.seed, self.world.rank, found.step)
        ck.restore_generators(found.optimizer, self.world, seed)
        self.step = self.resumed_from = self.saved_at = found.step
        self.losses[: found.step] = found.optimizer["history/losses"].numpy()
        self.norms[: found.step] = found.optimizer["history/norms"].numpy()
        self.tokens, self.seconds = found.state["tokens"], found.state["seconds"]

    def advance(self) -> None:
        """One optimizer step."""
        batch, world = self.task.batch(self.step), self.world
        own = batch.share(world.rank, world.size) if world.size > 1 else batch
        size = self.settings.micro_batch
        parts = own.split(size) if size else [own]
        model = self.backend.model
        losses = [
            self.backend.backward(
                partial(self.task.loss, model, part), batch.weight, number == len(parts)
            )
            for number, part in enumerate(parts, 1)
        ]
        every = world.gather([float(sum(losses))])
        loss = sum(own_loss for (own_loss,) in every) / batch.weight
        if not math.isfinite(loss):
            raise self._not_finite("loss", loss, batch)
        norm = float(self.backend.step(self.settings.lr_share(self.step)))
        if not math.isfinite(norm):
            raise self._not_finite("gradient norm", norm, batch)
        self.losses[self.step], self.norms[self.step] = loss, norm
        self.tokens += batch.tokens
        self.meter.count(self.task, self.given, batch)
        self.step += 1

    def tell(self, sink: Sink) -> None:
        """Give the sink the means since the last figures, and where rate and model stand."""
        steps = (self.step - 1) % self.settings.log_every + 1
        span = slice(self.step - steps, self.step)
        figures = {
            "loss": float(self.losses[span].mean()),
            "grad_norm": float(self.norms[span].mean()),
            "lr": self.settings.lr * self.settings.lr_share(self.step - 1),
            **self.meter.read(),
            **self.task.figures(self.backend.model),
        }
        if self.world.first:
            sink(self.step, figures)

    def note(self) -> str:
        """The latest figures for a progress line."""
        seconds = max(1e-9, self.seconds + time.monotonic() - self.started)
        span = slice(max(0, self.step - self.settings.log_every), self.step)
        rate = self.settings.lr * self.settings.lr_share(self.step - 1)
        figures = (
            f"loss {self.losses[span].mean():.3f}, norm {self.norms[span].mean():.2g}, "
            f"lr {rate:.1e}, {self.tokens / seconds:,.0f} {self.meter.unit}/s"
        )
        return figures + self.meter.note()

    def save_if_due(self) -> None:
        """Write a checkpoint if its time or step has come, and always at the end."""
        every, every_s = self.settings.checkpoint_every, self.settings.checkpoint_every_s
        due = self.step == self.settings.steps or (every > 0 and self.step % every == 0)
        if every_s > 0 and not due:
            due = bool(self.world.agree(time.monotonic() - self.saved_time >= every_s))
        if due and self.step > self.saved_at:
            self._save()

    def result(self) -> TrainResult:
        return TrainResult(self.step, self.tokens, self.losses, self._spent(), self.resumed_from)

    def _latest(self) -> ck.Checkpoint | None:
        """The newest checkpoint; the first rank looks first, for it clears what is unfinished."""
        found = ck.latest(self.work) if self.world.first else None
        self.world.wait()
        found = found if self.world.first else ck.latest(self.work)
        step = found.step if found else 0
        if self.world.agree(step) != step:
            raise ck.CheckpointError(
                f"rank {self.world.rank} sees another checkpoint than the first rank",
                where=str(self.work),
                remedy="put the working folder where every rank reaches it",
            )
        return found

    def _save(self) -> None:
        """Every rank gives what it holds, the first one writes."""
        model, optimizer = self.backend.model_tensors(), self.backend.optimizer_tensors()
        generators = ck.generator_state(self.world)
        release_memory()  # batches of ever new shapes leave it in pieces
        self.saved_at, self.saved_time = self.step, time.monotonic()
        if not self.world.first:
            return
        own = {
            "history/losses": torch.from_numpy(self.losses[: self.step]),
            "history/norms": torch.from_numpy(self.norms[: self.step]),
            **generators,
        }
        state = {**self.identity, "tokens": self.tokens, "seconds": self._spent()}
        frozen, config = _hugging_face(self.given)
        optimizer = {**optimizer, **own}
        whole = ck.Checkpoint(self.step, model, optimizer, state, frozen=frozen, config=config)
        ck.save(self.work, whole)
        self.saved_time = time.monotonic()

    def _spent(self) -> float:
        return self.seconds + time.monotonic() - self.started

    def _not_finite(self, what: str, value: float, batch: Batch) -> NotFiniteError:
        path = self.work / f"not-finite-{self.step:09d}.safetensors"
        if self.world.first:
            ck.save_tensors(path, batch.tensors())
        return NotFiniteError(
            f"{what} is {value} at step {self.step}; the batch is saved there",
            where=str(path),
            remedy="lower train.lr or train.clip of this stage, or try train.precision=fp32",
        )


def _hugging_face(model: nn.Module) -> tuple[dict[str, Tensor], str]:
    """What a checkpoint needs to be a folder of Hugging Face's: frozen weights and config."""
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "to_json_string"):
        return {}, ""
    frozen = {
        name: each.detach() for name, each in model.named_parameters() if not each.requires_grad
    }
    return frozen, str(config.to_json_string())


def _seed_of(seed: int, rank: int, step: int = 0) -> int:
    """A rank's seed; the first rank's is the run's own."""
    return seed if not rank and not step else zlib.crc32(f"{seed} {rank} {step}".encode())


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
def _training(model: nn.Module, settings: TrainSettings) -> Iterator[None]:
    """Training mode, with layers computed anew where asked, and back to what it was."""
    before = model.training
    model.train()
    recompute = settings.gradient_checkpointing
    if recompute:
        _recompute(model, recomputing(settings))
    try:
        yield
    finally:
        model.train(before)
        if recompute:
            _recompute(model, None)


def _recompute(model: Any, wanted: dict[str, Any] | None) -> None:
    """Hugging Face's activation checkpointing, under the name this version has for it."""
    names = ("activation_checkpointing", "gradient_checkpointing")
    kind = next((name for name in names if hasattr(model, f"{name}_enable")), None)
    if kind is None:
        raise SettingsError(
            "this network cannot compute its layers anew",
            where="train.gradient_checkpointing",
            remedy="set it to false",
        )
    if wanted is None:
        getattr(model, f"{kind}_disable")()
    else:
        getattr(model, f"{kind}_enable")(wanted)


@contextmanager
def deterministic(threads: int) -> Iterator[None]:
    """A fixed number of threads and deterministic algorithms, and back to what was."""
    before = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        _memory.fill_uninitialized_memory,
    )
    torch.set_num_threads(threads)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks of cuBLAS for it
    torch.use_deterministic_algorithms(True)
    _memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
        _memory.fill_uninitialized_memory = before[2]
