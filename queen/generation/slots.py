"""What a batch under way keeps of each of its slots, beside the decoder's own cache."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Protocol

import torch
from torch import Tensor

from queen.generation.choice import DRAWS
from queen.networks.bridge import Context


class Stepper(Protocol):
    """A decoder that reads one token at a time for a batch of slots and keeps its own caches."""

    def open(self, slots: int, length: int, context: list[Context] | None) -> None:
        """Make room for slots of at most `length` tokens; the context shows what to keep of it."""

    def prefill(
        self, slots: Tensor, ids: Tensor, lengths: Tensor, context: list[Context] | None
    ) -> Tensor:
        """Read prompts [n, T], filled up on the right, into slots [n]; logits [n, V] after each."""

    def step(self, tokens: Tensor, lengths: Tensor, longest: int) -> Tensor:
        """Read one token for each slot [B]; logits [B, V].

        Args:
            tokens: [B].
            lengths: [B] how many tokens each slot has read before.
            longest: the most of them among slots in use.
        """

    def keep(self, slots: Tensor) -> None:
        """Drop every slot but these [m]; they become slots 0..m-1."""


@dataclass
class Slots:
    """One row for each slot.

    Attributes:
        ids: [B, L] the tokens so far.
        lengths: [B] how many there are.
        prompts: [B] how many of them are the prompt's.
        limits: [B] length at which the slot is cut.
        scores: [B] log-probability of what was written.
        uniforms: [B, room, 2] its random numbers.
        live: [B] whether the slot is in use.
    """

    ids: Tensor
    lengths: Tensor
    prompts: Tensor
    limits: Tensor
    scores: Tensor
    uniforms: Tensor
    live: Tensor

    @classmethod
    def empty(cls, slots: int, length: int, room: int, device: torch.device) -> Slots:
        """Slots that are all vacant."""
        return cls(
            ids=torch.zeros(slots, length, dtype=torch.long, device=device),
            lengths=torch.ones(slots, dtype=torch.long, device=device),
            prompts=torch.ones(slots, dtype=torch.long, device=device),
            limits=torch.ones(slots, dtype=torch.long, device=device),
            scores=torch.zeros(slots, dtype=torch.double, device=device),
            uniforms=torch.zeros(slots, room, DRAWS, dtype=torch.double, device=device),
            live=torch.zeros(slots, dtype=torch.bool, device=device),
        )

    def start(self, slots: Tensor, ids: Tensor, lengths: Tensor, rooms: Tensor) -> None:
        """Put prompts [n, T] of these lengths into slots [n], with room for so many tokens more."""
        self.ids[slots, : ids.shape[1]] = ids
        self.lengths[slots] = lengths
        self.prompts[slots] = lengths
        self.limits[slots] = lengths + rooms
        self.scores[slots] = 0
        self.live[slots] = True

    def append(self, tokens: Tensor, logprobs: Tensor) -> None:
        """Write one token [B] into every slot in use, with its log-probability [B]."""
        here = self.lengths.clamp(max=self.ids.shape[1] - 1)
        self.ids.scatter_(1, here[:, None], tokens[:, None])
        self.scores += logprobs
        self.lengths += self.live

    @property
    def uniform(self) -> Tensor:
        """[B, 2] the random numbers of each slot's next token."""
        written = (self.lengths - self.prompts).clamp(max=self.uniforms.shape[1] - 1)
        return self.uniforms[torch.arange(len(written), device=written.device), written]

    def kept(self, slots: Tensor) -> Slots:
        """These slots [m] alone."""
        return Slots(**{part.name: getattr(self, part.name)[slots] for part in fields(self)})
