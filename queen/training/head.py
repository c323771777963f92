"""The output head at chosen places alone.

Most tokens are prompt or padding, and a large vocabulary makes the head the dearest layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from queen.networks.queen import QueenModel


@contextmanager
def head_at(model: QueenModel, places: Tensor) -> Iterator[None]:
    """Inside it, the output head sees only these of the B * T hidden states."""

    def select(module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (args[0].flatten(0, 1).index_select(0, places),)

    handle = model.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()
