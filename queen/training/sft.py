"""Supervised fine-tuning of a QUEEN: examples, the frozen expert's states, loss on the answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from queen.errors import QueenError
from queen.networks.digest import weights_digest
from queen.networks.expert import Expert
from queen.networks.packed import packed_attention
from queen.networks.queen import QueenModel, parameter_groups
from queen.training.examples import EncodedSet, concatenate
from queen.training.flops import queen_flops
from queen.training.head import cross_entropy, head_at
from queen.training.loop import Sink, TrainResult, deterministic, train
from queen.training.optimizers import Group
from queen.training.packing import PackedBatch, pack_batch, packed_logits
from queen.training.progress import ShowProgress
from queen.training.sampling import BatchPlan, Share
from queen.training.settings import TrainSettings
from queen.training.states import PositionStates
from queen.training.world import World

STATES = "states.npy"


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

    def share(self, rank: int, ranks: int) -> QueenBatch:
        """What one of `ranks` processes takes: every ranks-th sequence, so that all take alike."""
        return self._rows(slice(rank, None, ranks))

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def target_rows(self) -> Tensor:
        """[K] the sequence of each target token."""
        return self.targets.nonzero()[:, 0]

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
    spans = examples.spans(indices)
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
        packing: sequences end to end in place of padded ones; the same loss.
    """

    def __init__(
        self,
        examples: EncodedSet,
        plan: BatchPlan,
        states: PositionStates | None,
        pad: int,
        packing: bool = False,
    ) -> None:
        self.examples, self.plan, self.states, self.pad = examples, plan, states, pad
        self.packing = packing
        shares = [(part.name, len(part.lengths), part.share) for part in plan.parts]
        read = states.fingerprint if states else "no encoder"
        self.fingerprint = hashlib.sha256(
            repr((examples.digest, shares, read)).encode()
        ).hexdigest()

    def groups(self, model: QueenModel, settings: TrainSettings) -> list[Group]:
        return parameter_groups(model, settings.lr, settings.gate_lr_factor, settings.weight_decay)

    def batch(self, step: int) -> QueenBatch | PackedBatch:
        indices = self.plan.batch_indices(step)
        if self.packing:
            return pack_batch(self.examples, indices)
        return make_batch(self.examples, indices, self.pad)

    def loss(self, model: QueenModel, batch: QueenBatch | PackedBatch) -> Tensor:
        """Cross-entropy in float32, summed over the answers' tokens."""
        if isinstance(batch, PackedBatch):
            logits, wanted = packed_logits(model, batch, self.states)
            weights = batch.weights[batch.target_rows()].to(logits.device)
            return cross_entropy(logits, wanted, weights)
        read = self.states.of(batch.positions.numpy(), model.device) if self.states else None
        logits, wanted = target_logits(model, batch, read)
        losses = F.cross_entropy(logits.float(), wanted, reduction="none")
        return (losses * batch.weights[batch.target_rows()].to(losses.device)).sum()

    def figures(self, model: QueenModel) -> dict[str, float]:
        return {f"gate/{name}": value for name, value in model.gate_values().items()}

    def flops(self, model: QueenModel, batch: QueenBatch | PackedBatch) -> float:
        """Operations that a step on this batch takes, padding not counted."""
        return queen_flops(model, batch.lengths, batch.positions, int(batch.targets.sum()))


def target_logits(
    model: QueenModel, batch: QueenBatch, states: Sequence[Tensor] | None
) -> tuple[Tensor, Tensor]:
    """Logits [K, vocabulary] and ids [K] of the K target tokens, row by row."""
    ids, targets = batch.ids.to(model.device), batch.targets.to(model.device)
    before = targets[:, 1:].flatten().nonzero().squeeze(1)
    rows, columns = before // (ids.shape[1] - 1), before % (ids.shape[1] - 1)
    with head_at(model, rows * ids.shape[1] + columns):
        logits = model(ids, states=states)
    return logits, ids[rows, columns + 1]


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

    Model and encoder are moved to this process's device (`world.own_device`) and stay there.

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
    world = World.here()
    model.to(world.device)
    with ExitStack() as stack:
        stack.enter_context(deterministic(settings.threads))
        if settings.packing:
            stack.enter_context(packed_attention(model.decoder))
        states = None
        if expert:
            visits = settings.steps * settings.batch_size
            here = expert.on(world.device)
            together = world.same_machine()
            visits = visits if together else visits // world.size
            states = PositionStates(here, examples.positions, visits, table_mb)
            if together and world.size > 1:
                states.share(world, work / STATES)
        task = QueenTask(examples, plan, states, model.config.pad_id, settings.packing)
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
