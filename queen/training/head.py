"""The output head at chosen places alone, and the loss behind it.

Most tokens are prompt or padding, and a large vocabulary makes the head the dearest layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
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


def cross_entropy(logits: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """Weighted cross-entropy in float32, summed.

    Its gradient is made along with it, a few rows at a time: torch's own goes ten times through
    all the logits in float32.

    Args:
        logits: [K, vocabulary].
        wanted: [K] ids.
        weights: [K] factors.
    """
    total: Tensor = _CrossEntropy.apply(logits, wanted, weights)  # type: ignore[no-untyped-call]
    return total


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, wanted: Tensor, weights: Tensor, rows: int = 1024) -> Any:
        gradient, sums = torch.empty_like(logits), []
        for part, ids, factors, into in zip(
            *(torch.split(each, rows) for each in (logits, wanted, weights, gradient)), strict=True
        ):
            said = torch.log_softmax(part, 1, dtype=torch.float32)
            sums.append(-(said.gather(1, ids[:, None])[:, 0] * factors).sum())
            change = said.exp_()
            change[torch.arange(len(ids), device=ids.device), ids] -= 1
            into.copy_(change.mul_(factors[:, None]))
        ctx.save_for_backward(gradient)
        return torch.stack(sums).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0], None, None
