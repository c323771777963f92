"""Training a value network on labelled positions by the project's one loop.

Source: METHOD section 2 (cross-entropy plus a weighted ordinal term, AdamW).
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from queen.networks.value.cost import forward_flops
from queen.networks.value.folder import load_value, save_value
from queen.networks.value.labels import ORDINAL_WEIGHT, cross_entropy, ordinal_distance
from queen.networks.value.network import ValueNet
from queen.networks.value.planes import planes_of
from queen.training.backend import plain_groups
from queen.training.crew import Crew
from queen.training.loop import Sink, TrainResult, train
from queen.training.optimizers import Group
from queen.training.order import put_down
from queen.training.progress import ShowProgress
from queen.training.rows import RowFile, Rows, Shuffle, open_rows_file
from queen.training.settings import TrainSettings
from queen.training.world import World

_MODEL = "model"


@dataclass(frozen=True)
class ValueBatch:
    """Positions with the classes they are taught.

    Attributes:
        packed: [B, 36] uint8, see `queen.positions.packed`.
        halfmove: [B] uint8 clocks of the fifty-move rule.
        classes: [B] uint8 classes, see `queen.networks.value.labels`.
    """

    packed: Tensor
    halfmove: Tensor
    classes: Tensor

    @classmethod
    def of(cls, rows: Rows) -> ValueBatch:
        """The batch of rows [B] of a file."""
        fields = (rows[name] for name in ("position", "halfmove", "label"))
        return cls(*(torch.from_numpy(np.ascontiguousarray(field)) for field in fields))

    @property
    def weight(self) -> float:
        return float(len(self.classes))

    @property
    def tokens(self) -> int:
        return len(self.classes)

    def split(self, size: int) -> list[ValueBatch]:
        starts = range(0, len(self.classes), size)
        return [self._rows(slice(start, start + size)) for start in starts]

    def share(self, rank: int, ranks: int) -> ValueBatch:
        return self._rows(slice(rank, None, ranks))

    def tensors(self) -> dict[str, Tensor]:
        return {name: each.contiguous() for name, each in vars(self).items()}

    def planes(self, device: torch.device) -> Tensor:
        """[B, 18, 8, 8], made where they are needed: 37 bytes travel there and not 1,152."""
        return planes_of(self.packed.to(device), self.halfmove.to(device))

    def _rows(self, rows: slice) -> ValueBatch:
        return ValueBatch(self.packed[rows], self.halfmove[rows], self.classes[rows])


class ValueTask:
    """Learning the classes of a file's rows.

    Args:
        file: the rows.
        shuffle: the order in which they are met.
        batch_size: rows of a step.
        ordinal: weight of the ordinal term.
    """

    unit = "positions"

    def __init__(
        self, file: RowFile, shuffle: Shuffle, batch_size: int, ordinal: float = ORDINAL_WEIGHT
    ) -> None:
        self.rows, self.shuffle = file.read(), shuffle
        self.batch_size, self.ordinal = batch_size, ordinal
        self.fingerprint = f"{file.digest} runs of {shuffle.run} ordinal {ordinal}"
        self._sums: Tensor | None = None
        self._reader = ThreadPoolExecutor(1)
        self._ahead: tuple[int, Future[ValueBatch]] | None = None

    def groups(self, model: ValueNet, settings: TrainSettings) -> list[Group]:
        return plain_groups(model, settings)

    def batch(self, step: int) -> ValueBatch:
        """The batch of a step, and the next one is begun to be read."""
        ahead, self._ahead = self._ahead, (step + 1, self._reader.submit(self._read, step + 1))
        return ahead[1].result() if ahead and ahead[0] == step else self._read(step)

    def loss(self, model: ValueNet, batch: ValueBatch) -> Tensor:
        """Cross-entropy and weighted ordinal distance in float32, summed over the batch."""
        logits = model(batch.planes(model.device)).float()
        classes = batch.classes.to(logits.device)
        surprise = cross_entropy(logits, classes).sum()
        distance = ordinal_distance(logits, classes).sum()
        self._count(surprise, distance, len(classes))
        return surprise + self.ordinal * distance

    def figures(self, model: ValueNet) -> dict[str, float]:
        """The two terms' means over all ranks since they were last asked for."""
        own = [0.0, 0.0, 0.0] if self._sums is None else self._sums.tolist()
        self._sums = None
        totals = np.sum(World.here().gather(own), axis=0)
        means = (totals[:2] / max(1.0, totals[2])).tolist()
        return dict(zip(("cross_entropy", "ordinal"), means, strict=True))

    def flops(self, model: ValueNet, batch: ValueBatch) -> float:
        """Operations of a step: the backward pass costs twice the forward one."""
        return 3.0 * forward_flops(model.settings) * batch.tokens

    def _read(self, step: int) -> ValueBatch:
        indices = self.shuffle.rows(step * self.batch_size, (step + 1) * self.batch_size)
        return ValueBatch.of(self.rows[indices])

    def _count(self, surprise: Tensor, distance: Tensor, count: int) -> None:
        own = torch.stack((surprise, distance, surprise.new_tensor(count))).detach().double()
        self._sums = own if self._sums is None else self._sums + own


@dataclass(frozen=True)
class ValueTraining:
    """What `train_value` is to be called with, but for the network; an order for ranks."""

    rows: Path
    settings: TrainSettings
    work: Path
    ordinal: float
    run: int

    def train(self, folder: Path, sink: Sink, progress: ShowProgress) -> TrainResult:
        """As `train_value`, with the network of the folder."""
        net = load_value(folder / _MODEL).requires_grad_(True)
        return self.on(net, sink, progress)

    def on(self, net: ValueNet, sink: Sink, progress: ShowProgress) -> TrainResult:
        """Train this network in place, in this process's part."""
        net.to(World.here().device)
        file, settings = open_rows_file(self.rows), self.settings
        shuffle = Shuffle(file.count, settings.seed, self.run)
        task = ValueTask(file, shuffle, settings.batch_size, self.ordinal)
        return train(net, task, settings, work=self.work, sink=sink, progress=progress)


def train_value(
    net: ValueNet,
    rows: Path,
    settings: TrainSettings,
    *,
    work: Path,
    ordinal: float = ORDINAL_WEIGHT,
    run: int = 1,
    crew: Crew | None = None,
    sink: Sink = lambda step, figures: None,
    progress: ShowProgress = lambda done, total, note="": None,
) -> TrainResult:
    """Train a value network in place; it stays on this process's device.

    Args:
        rows: a file of `write_rows_file`; where ranks train, each must reach it.
        work: folder of resumable checkpoints (see `train`).
        ordinal: weight of the ordinal term.
        run: rows met together, see `Shuffle`.
        crew: ranks that do the work; this process by default.

    Raises:
        RowsError: the file is not whole.
        NotFiniteError, CheckpointError: as `train` does.
    """

    def training(own: TrainSettings) -> ValueTraining:
        return ValueTraining(rows.resolve(), own, work.resolve(), ordinal, run)

    if crew is None:
        return training(settings).on(net, sink, progress)

    def write(folder: Path, own: TrainSettings) -> None:
        save_value(net, folder / _MODEL)
        put_down(folder, training(own))

    more: dict[str, Any] = {"work": work, "sink": sink, "progress": progress}
    return crew.train(net, write, settings, **more)
