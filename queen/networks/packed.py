"""Sequences laid end to end in one row, each of which sees itself alone.

Everything a decoder does token by token then meets no padding at all, and attention is done
sequence by sequence: exact, and cheaper than a block-diagonal mask over the whole row
(benchmarks/train_packing.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from queen.networks.errors import NetworkError

ATTENTION = "queen_packed"


class Packed(NamedTuple):
    """How a row [1, T] is divided.

    Attributes:
        lengths: tokens of each sequence, in order; their sum is T.
        owners: which of the context's N positions each sequence reads.
    """

    lengths: tuple[int, ...]
    owners: tuple[int, ...]

    def places(self, device: torch.device) -> Tensor:
        """[1, T] place of each token in its own sequence."""
        return torch.cat([torch.arange(length) for length in self.lengths])[None].to(device)


def read_packed(query: Tensor, keys: Tensor, values: Tensor, packed: Packed) -> Tensor:
    """Cross-attention of each sequence to its own position.

    Args:
        query: [1, heads, T, head width].
        keys, values: [N, heads, 64, head width].

    Returns:
        [1, heads, T, head width].
    """
    parts = torch.split(query, list(packed.lengths), dim=2)
    owned = list(zip(torch.split(keys, 1), torch.split(values, 1), strict=True))
    read = [
        F.scaled_dot_product_attention(part, *owned[owner])
        for part, owner in zip(parts, packed.owners, strict=True)
    ]
    return torch.cat(read, dim=2)


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
    packed_lengths: Sequence[int] = (),
    **options: Any,
) -> tuple[Tensor, None]:
    """Causal self-attention of each sequence, as Hugging Face's decoders call it.

    No mask function belongs to this attention, so that none is made for the row.
    """
    window = options.get("sliding_window")
    if window is not None and max(packed_lengths) > window:
        raise NetworkError(
            f"a sequence of {max(packed_lengths)} tokens in a window of {window}",
            where=type(module).__name__,
            remedy="set training.packing=false: this decoder's attention slides",
        )
    options = {name: each for name, each in options.items() if name != "is_causal"}
    parts = (torch.split(each, list(packed_lengths), dim=2) for each in (query, key, value))
    outputs = [
        sdpa_attention_forward(module, *part, None, is_causal=True, **options)[0]
        for part in zip(*parts, strict=True)
    ]
    return torch.cat(outputs, dim=1), None


ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _attend)
