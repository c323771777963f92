"""Batches without padding: a micro-batch's sequences end to end, each seeing itself alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from queen.networks.llama import PackedForward, trains_packed
from queen.networks.packed import Packed
from queen.networks.queen import QueenModel
from queen.training.examples import EncodedSet
from queen.training.head import head_at
from queen.training.states import PositionStates


@dataclass(frozen=True)
class PackedBatch:
    """Sequences end to end and where their answers stand.

    Attributes:
        ids: [T] token ids.
        lengths: [B] tokens of each sequence; their sum is T.
        targets: [T] True where the token is to be predicted from those before it.
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
        return float(self.weights.double()[self.target_rows()].sum())

    @property
    def tokens(self) -> int:
        return len(self.ids)

    def split(self, size: int) -> list[PackedBatch]:
        """Micro-batches of at most `size` sequences."""
        return [
            self._take(torch.arange(len(self.lengths))[start : start + size])
            for start in range(0, len(self.lengths), size)
        ]

    def share(self, rank: int, ranks: int) -> PackedBatch:
        """What one of `ranks` processes takes: every ranks-th sequence."""
        return self._take(torch.arange(len(self.lengths))[rank::ranks])

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))

    def target_rows(self) -> Tensor:
        """[K] the sequence of each target token."""
        return self._owners()[self.targets]

    def _owners(self) -> Tensor:
        """[T] the sequence of each token."""
        return torch.arange(len(self.lengths)).repeat_interleave(self.lengths)

    def _take(self, rows: Tensor) -> PackedBatch:
        kept = torch.isin(self._owners(), rows)
        return PackedBatch(
            self.ids[kept], self.lengths[rows], self.targets[kept],
            self.weights[rows], self.positions[rows],
        )  # fmt: skip


def pack_batch(examples: EncodedSet, indices: NDArray[Any]) -> PackedBatch:
    """The batch of these examples, end to end in this order."""
    spans = examples.spans(indices)
    lengths = examples.lengths[indices]
    targets = examples.answers[spans]
    targets[np.cumsum(lengths) - lengths] = False  # nothing comes before it that could predict it
    return PackedBatch(
        torch.from_numpy(examples.tokens[spans].astype(np.int64)),
        torch.from_numpy(lengths),
        torch.from_numpy(targets),
        torch.from_numpy(examples.weights[indices]),
        torch.from_numpy(examples.position_of[indices].astype(np.int64)),
    )


@dataclass(frozen=True)
class Levelled:
    """A micro-batch as it is computed: sequences by length, those of like length made equal.

    A little filling lets attention take many sequences in one call.

    Attributes:
        order: [B] the sequences, shortest first.
        lengths: [B] tokens each of them has here.
        sources: [P] which of the T tokens stands at each place; filling repeats the last one.
        places: [T] where each token stands.
        tail: places at the end, of the P, that are no sequence's.
    """

    order: NDArray[np.int64]
    lengths: NDArray[np.int64]
    sources: NDArray[np.int64]
    places: NDArray[np.int64]
    tail: int


def level(lengths: NDArray[np.int64], worth: int = 8, step: int = 32) -> Levelled:
    """Lay out sequences of these lengths.

    Args:
        worth: tokens of filling that cost as much as one run of equal sequences more.
        step: P is a multiple of it. Each matrix product of a new shape costs a CPU half a
            millisecond or more before it begins; so shapes come again.
    """
    order = np.argsort(lengths, kind="stable")
    own = lengths[order]
    given = _levels(own, worth)
    within = np.arange(given.sum()) - np.repeat(np.cumsum(given) - given, given)
    starts = (np.cumsum(lengths) - lengths)[order]
    sources = np.repeat(starts, given) + np.minimum(within, np.repeat(own - 1, given))
    real = within < np.repeat(own, given)
    places = np.empty(lengths.sum(), np.int64)
    places[sources[real]] = real.nonzero()[0]
    tail = -len(sources) % step
    return Levelled(order, given, np.pad(sources, (0, tail), mode="edge"), places, tail)


def _levels(ascending: NDArray[np.int64], worth: int) -> NDArray[np.int64]:
    """[B] the lengths filled up to the ends of the runs that cost least together."""
    least, begun = np.zeros(len(ascending) + 1), np.zeros(len(ascending), np.int64)
    for last, length in enumerate(ascending):
        costs = least[: last + 1] + np.arange(last + 1, 0, -1) * length + worth
        begun[last] = costs.argmin()
        least[last + 1] = costs[begun[last]]
    levels, end = ascending.copy(), len(ascending)
    while end:
        start = begun[end - 1]
        levels[start:end] = ascending[end - 1]
        end = start
    return levels


def packed_logits(
    model: QueenModel, batch: PackedBatch, states: PositionStates | None
) -> tuple[Tensor, Tensor]:
    """Logits [K, vocabulary] and ids [K] of the K target tokens, in order.

    Each position's states are asked for once, however many sequences read them.
    """
    laid = level(batch.lengths.numpy())
    distinct, owners = _distinct(batch.positions.numpy()[laid.order])
    packed = Packed(tuple(laid.lengths.tolist()), tuple(owners.tolist()), laid.tail)
    read = states.of(distinct, model.device) if states else None
    ids = batch.ids[torch.from_numpy(laid.sources)].to(model.device)
    places = torch.from_numpy(laid.places)[batch.targets].to(model.device)
    if trains_packed(model):
        context = None if read is None else model.context(read)
        return PackedForward(model, packed, context).logits(ids, places - 1), ids[places]
    with head_at(model, places - 1):
        logits = model.packed(ids[None], packed, read)
    return logits, ids[places]


def _distinct(positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each position once, in order of first use, and which of them each sequence reads."""
    found, first, inverse = np.unique(positions, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return found[order], np.argsort(order)[inverse]
