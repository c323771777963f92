"""Supervised fine-tuning of a QUEEN: examples, the frozen expert's states, loss on the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from queen.errors import QueenError
from queen.networks.expert import Expert
from queen.networks.lc0.load import weights_digest
from queen.networks.queen import QueenModel, parameter_groups
from queen.training.backend import Group
from queen.training.examples import EncodedSet, concatenate
from queen.training.loop import Sink, TrainResult, deterministic, train
from queen.training.progress import ShowProgress
from queen.training.sampling import BatchPlan, Share
from queen.training.settings import TrainSettings
from queen.training.states import PositionStates


class ExpertMismatchError(QueenError):
    """An expert that is not the one the model reads, or that did not stay as it was."""


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a training mixture: its name, its examples, its relative share."""

    name: str
    examples: EncodedSet
    share: float


@dataclass(frozen=True)
class QueenBatch:
    """Padded sequences and where their answers stand.

    Attributes:
        ids: [B, T] token ids, padded on the right (causal attention never looks there).
        lengths: [B] real tokens of each.
        targets: [B, T] True where the token is to be predicted from those before it.
        weights: [B] factors on the loss.
        positions: [B] index of each sequence's position.
    """

    ids: Tensor
    lengths: Tensor
    targets: Tensor
    weights: Tensor
    positions: Tensor

    @property
    def weight(self) -> float:
        """Sum of the weights of all targets."""
        return float((self.targets.sum(1) * self.weights.double()).sum())

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    def split(self, size: int) -> list[QueenBatch]:
        """Micro-batches, each cut to its own longest sequence."""
        return [
            self._rows(slice(start, start + size)) for start in range(0, len(self.lengths), size)
        ]

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def _rows(self, rows: slice) -> QueenBatch:
        width = int(self.lengths[rows].max())
        return QueenBatch(
            self.ids[rows, :width], self.lengths[rows], self.targets[rows, :width],
            self.weights[rows], self.positions[rows],
        )  # fmt: skip


def make_batch(examples: EncodedSet, indices: NDArray[Any], pad: int) -> QueenBatch:
    """The batch of these examples, padded to the longest."""
    lengths = examples.lengths[indices]
    real = np.arange(lengths.max()) < lengths[:, None]
    spans = np.concatenate(
        [np.arange(examples.offsets[i], examples.offsets[i + 1]) for i in indices]
    )
    ids = np.full(real.shape, pad, np.int64)
    targets = np.zeros(real.shape, np.bool_)
    ids[real], targets[real] = examples.tokens[spans], examples.answers[spans]
    targets[:, 0] = False  # nothing comes before it that could predict it
    return QueenBatch(
        torch.from_numpy(ids),
        torch.from_numpy(lengths),
        torch.from_numpy(targets),
        torch.from_numpy(examples.weights[indices]),
        torch.from_numpy(examples.position_of[indices].astype(np.int64)),
    )


class QueenTask:
    """Learning to write the answers of a mixture.

    Args:
        examples: all parts end to end, numbered as `plan` numbers them.
        plan: which of them form a step's batch.
        states: what the expert says of the examples' positions; None trains without an encoder.
        pad: token id that fills a batch.
    """

    def __init__(
        self, examples: EncodedSet, plan: BatchPlan, states: PositionStates | None, pad: int
    ) -> None:
        self.examples, self.plan, self.states, self.pad = examples, plan, states, pad
        shares = [(part.name, len(part.lengths), part.share) for part in plan.parts]
        read = states.fingerprint if states else "no encoder"
        self.fingerprint = hashlib.sha256(
            repr((examples.digest, shares, read)).encode()
        ).hexdigest()

    def groups(self, model: QueenModel, settings: TrainSettings) -> list[Group]:
        return parameter_groups(model, settings.lr, settings.gate_lr_factor, settings.weight_decay)

    def batch(self, step: int) -> QueenBatch:
        return make_batch(self.examples, self.plan.batch_indices(step), self.pad)

    def loss(self, model: QueenModel, batch: QueenBatch) -> Tensor:
        """Cross-entropy in float32, summed over the answers' tokens."""
        states = self.states.of(batch.positions.numpy(), model.device) if self.states else None
        logits, wanted = target_logits(model, batch, states)
        losses = F.cross_entropy(logits.float(), wanted, reduction="none")
        rows = batch.targets.nonzero()[:, 0]
        return (losses * batch.weights[rows].to(losses.device)).sum()

    def figures(self, model: QueenModel) -> dict[str, float]:
        return {f"gate/{name}": value for name, value in model.gate_values().items()}


def target_logits(
    model: QueenModel, batch: QueenBatch, states: Sequence[Tensor] | None
) -> tuple[Tensor, Tensor]:
    """Logits [K, vocabulary] and ids [K] of the K target tokens, row by row.

    The output head is applied at those places alone: most tokens are prompt or padding, and a
    large vocabulary makes the head the dearest layer.
    """
    ids, targets = batch.ids.to(model.device), batch.targets.to(model.device)
    before = targets[:, 1:].flatten().nonzero().squeeze(1)
    rows, columns = before // (ids.shape[1] - 1), before % (ids.shape[1] - 1)
    with _head_at(model, rows * ids.shape[1] + columns):
        logits = model(ids, states=states)
    return logits, ids[rows, columns + 1]


@contextmanager
def _head_at(model: QueenModel, places: Tensor) -> Iterator[None]:
    """Inside it, the output head sees only these of the B * T hidden states."""

    def select(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0].flatten(0, 1).index_select(0, places),)

    handle = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


def fine_tune(
    model: QueenModel,
    expert: Expert | None,
    mixture: Sequence[Part],
    settings: TrainSettings,
    *,
    work: Path,
    table_mb: int = 1024,
    sink: Sink = lambda step, figures: None,
    progress: ShowProgress = lambda done, total, note="": None,
) -> TrainResult:
    """Train a QUEEN in place on a mixture of examples.

    Args:
        expert: the frozen encoder that the model reads; None trains without (ablation).
        work: folder of resumable checkpoints (see `train`).
        table_mb: most memory, in MiB, for the states of all positions at once; where they need
            more, each step's are computed anew.

    Raises:
        ExpertMismatchError: the model was made for another encoder or other states, or the
            encoder changed while training.
        MixtureError, NotFiniteError, CheckpointError: as `BatchPlan` and `train` do.
    """
    _check_expert(model, expert)
    shares = [Share(part.name, part.examples.lengths, part.share) for part in mixture]
    plan = BatchPlan(shares, settings.batch_size, settings.steps, settings.seed, settings.megabatch)
    examples = concatenate([part.examples for part in mixture])
    with deterministic(settings.threads):
        states = None
        if expert:
            visits = settings.steps * settings.batch_size
            states = PositionStates(expert, examples.positions, visits, table_mb)
        task = QueenTask(examples, plan, states, model.config.pad_id)
        result = train(model, task, settings, work=work, sink=sink, progress=progress)
    if expert and weights_digest(expert.encoder) != expert.digest:
        raise ExpertMismatchError(
            "the frozen encoder's weights changed while training",
            where=model.config.encoder_name,
            remedy="report this fault; throw the trained model away",
        )
    return result


def _check_expert(model: QueenModel, expert: Expert | None) -> None:
    if expert is None:
        return
    config = model.config
    for field, wanted, given in (
        ("encoder_digest", config.encoder_digest, expert.digest),
        ("bridge_states", list(config.bridge_states or ()), list(expert.wanted)),
    ):
        if wanted and wanted != given:
            raise ExpertMismatchError(
                f"the model reads {wanted}, the expert gives {given}",
                where=f"QueenConfig.{field}",
                remedy="give the expert that the model was made for",
            )
