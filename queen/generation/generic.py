"""A decode step through the model's own forward, for any Hugging Face decoder."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from queen.generation.requests import GenerationError
from queen.networks.bridge import Context
from queen.networks.queen import QueenModel


class SlotCache(Cache):  # type: ignore[misc]
    """Keys and values of each slot, in buffers allocated beforehand: [slots, heads, length, width].

    Attributes:
        filling: the slots [n] that a prompt is being read into; None while stepping.
        lengths: [slots] where a step writes.
        seen: how many columns a step reads.
    """

    def __init__(self, slots: int, length: int) -> None:
        super().__init__(layers=[])
        self.slots, self.length = slots, length
        self.buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self.filling: Tensor | None = None
        self.lengths = torch.zeros(slots, dtype=torch.long)
        self.seen = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values; return what the layer attends to."""
        keys, values = self.buffers.setdefault(layer_idx, self._new(key_states, value_states))
        if self.filling is not None:
            width = key_states.shape[2]
            keys[self.filling, :, :width] = key_states
            values[self.filling, :, :width] = value_states
            return key_states, value_states
        rows = torch.arange(self.slots, device=keys.device)
        keys[rows, :, self.lengths] = key_states[:, :, 0]
        values[rows, :, self.lengths] = value_states[:, :, 0]
        return keys[:, :, : self.seen], values[:, :, : self.seen]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """How many tokens came before: none while a prompt is read."""
        return 0 if self.filling is not None else self.seen - 1

    def keep(self, slots: Tensor) -> None:
        """Drop every slot but these."""
        self.slots = len(slots)
        self.buffers = {i: (k[slots], v[slots]) for i, (k, v) in self.buffers.items()}

    def _new(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(  # type: ignore[return-value]
            like.new_zeros(self.slots, like.shape[1], self.length, like.shape[3])
            for like in (keys, values)
        )


class GenericStepper:
    """See `Stepper`. The model is copied if it is of another type than asked."""

    def __init__(self, model: QueenModel, dtype: torch.dtype) -> None:
        self.model = model if model.dtype == dtype else copy.deepcopy(model).to(dtype)
        self.dtype, self.device = dtype, model.device
        self.context: list[Context] | None = None

    def open(self, slots: int, length: int, context: list[Context] | None) -> None:
        window = getattr(self.model.config.decoder(), "sliding_window", None)
        if window and length > window:
            raise GenerationError(
                f"{length} tokens are more than the decoder's sliding window of {window}",
                remedy="lower max_new_tokens",
            )
        self.cache = SlotCache(slots, length)
        self.bias = torch.full((slots, length), -torch.inf, dtype=self.dtype, device=self.device)
        self.context = [self._room(slots, part) for part in context] if context else None

    def keep(self, slots: Tensor) -> None:
        self.cache.keep(slots)
        self.bias = self.bias[slots]
        if self.context:
            self.context = [Context(part.keys[slots], part.values[slots]) for part in self.context]

    def prefill(
        self, slots: Tensor, ids: Tensor, lengths: Tensor, context: list[Context] | None
    ) -> Tensor:
        columns = torch.arange(self.bias.shape[1], device=self.device)
        self.bias[slots] = self.bias.new_zeros(()).where(columns < lengths[:, None], -torch.inf)
        for held, part in zip(self.context or (), context or (), strict=True):
            held.keys[slots], held.values[slots] = (
                part.keys.to(held.keys),
                part.values.to(held.keys),
            )
        self.cache.filling = slots
        positions = torch.arange(ids.shape[1], device=self.device).expand_as(ids)
        logits = self.model(ids, context=context, position_ids=positions, cache=self.cache)
        last: Tensor = logits[torch.arange(len(ids), device=self.device), lengths - 1]
        return last.float()

    def step(self, tokens: Tensor, lengths: Tensor, longest: int) -> Tensor:
        self.bias.scatter_(1, lengths[:, None], 0)
        self.cache.filling, self.cache.lengths, self.cache.seen = None, lengths, longest + 1
        logits: Tensor = self.model(
            tokens[:, None],
            context=self.context,
            position_ids=lengths[:, None],
            attention_mask=self.bias[:, None, None, : longest + 1],
            cache=self.cache,
        )
        return logits[:, -1].float()

    def _room(self, slots: int, part: Context) -> Context:
        return Context(
            part.keys.new_zeros(slots, *part.keys.shape[1:]),
            part.values.new_zeros(slots, *part.values.shape[1:]),
        )
