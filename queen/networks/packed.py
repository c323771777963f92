"""Sequences laid end to end in one row, each of which sees itself alone.

Everything a decoder does token by token then meets no padding at all, and attention is done
sequence by sequence, neighbours of one length in one call: exact, and cheaper than a block-diagonal
mask over the whole row (benchmarks/train_packing.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from queen.networks.errors import NetworkError

ATTENTION = "queen_packed"

Runs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Packed:
    """How a row [1, T] is divided.

    Attributes:
        lengths: tokens of each sequence, in order; with `tail` their sum is T.
        owners: which of the context's N positions each sequence reads.
        tail: tokens at the end that belong to no sequence and of which nothing is asked.
    """

    lengths: tuple[int, ...]
    owners: tuple[int, ...]
    tail: int = 0

    @cached_property
    def runs(self) -> Runs:
        """(how many, their length) of neighbours of one length, in order."""
        return tuple((len(list(equal)), length) for length, equal in groupby(self.lengths))

    def places(self, device: torch.device) -> Tensor:
        """[1, T] place of each token in its own sequence."""
        places = [torch.arange(length, device=device).repeat(count) for count, length in self.runs]
        return torch.cat([*places, places[0].new_zeros(self.tail)])[None]


def read_packed(query: Tensor, keys: Tensor, values: Tensor, packed: Packed) -> Tensor:
    """Cross-attention of each sequence to its own position.

    Args:
        query: [T, heads, head width].
        keys, values: [N, heads, 64, head width].

    Returns:
        [T, heads, head width].
    """
    if packed.owners != tuple(range(len(keys))):
        owners = torch.tensor(packed.owners, device=keys.device)
        keys, values = keys.index_select(0, owners), values.index_select(0, owners)
    counts = [count for count, _ in packed.runs]
    owned = torch.split(keys, counts), torch.split(values, counts)
    parts = zip(_by_runs(query, packed), *owned, strict=True)
    return _joined([F.scaled_dot_product_attention(*part) for part in parts], packed.tail)


def attend_packed(query: Tensor, keys: Tensor, values: Tensor, packed: Packed) -> Tensor:
    """Causal self-attention of each sequence.

    Args:
        query, keys, values: [T, heads, head width]; keys and values may have fewer heads.

    Returns:
        [T, heads, head width].
    """
    shared = query.shape[1] != keys.shape[1]
    parts = (_by_runs(each, packed) for each in (query, keys, values))
    read = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
        for q, k, v in zip(*parts, strict=True)
    ]
    return _joined(read, packed.tail)


def _by_runs(tensor: Tensor, packed: Packed) -> list[Tensor]:
    """Views [count, heads, length, head width] of [T, heads, head width], one for each run."""
    sizes = [count * length for count, length in packed.runs]
    *parts, _ = torch.split(tensor, [*sizes, packed.tail])
    views = zip(parts, packed.runs, strict=True)
    return [part.view(*run, *tensor.shape[1:]).transpose(1, 2) for part, run in views]


def _joined(parts: Sequence[Tensor], tail: int) -> Tensor:
    """[T, heads, head width] of what `_by_runs` took apart."""
    rows = [part.transpose(1, 2).flatten(0, 1) for part in parts]
    return torch.cat([*rows, rows[0].new_zeros(tail, *rows[0].shape[1:])])


@contextmanager
def packed_attention(decoder: PreTrainedModel) -> Iterator[None]:
    """Inside it, the decoder attends by sequences and is called with packed rows alone.

    It must last until after the backward pass where layers are recomputed in it.
    """
    before = decoder.config._attn_implementation
    decoder.config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        decoder.config._attn_implementation = before


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: Packed,
    **options: Any,
) -> tuple[Tensor, None]:
    """Causal self-attention of each sequence, as Hugging Face's decoders call it.

    No mask function belongs to this attention, so that none is made for the row.
    """
    window, longest = options.get("sliding_window"), max(packed.lengths)
    if window is not None and longest > window:
        raise NetworkError(
            f"a sequence of {longest} tokens in a window of {window}",
            where=type(module).__name__,
            remedy="set training.packing=false: this decoder's attention slides",
        )
    options = {name: each for name, each in options.items() if name != "is_causal"}
    parts = (_by_runs(each[0].transpose(0, 1), packed) for each in (query, key, value))
    outputs = [
        sdpa_attention_forward(module, *part, None, is_causal=True, **options)[0].transpose(1, 2)
        for part in zip(*parts, strict=True)
    ]
    return _joined(outputs, packed.tail)[None], None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attend)
