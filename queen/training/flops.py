"""Floating-point operations of training a QUEEN.

A matrix of n entries costs 2n operations forward for each row it is applied to, 2n backward for
the row's own gradient, and 2n more where its entries learn (the usual 6N a token, with frozen
parts at 4N). What gradient checkpointing computes twice is not counted twice.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from queen.networks.bridge import SQUARES, StateReader
from queen.networks.queen import QueenModel, decoder_layers


def queen_flops(model: QueenModel, lengths: Tensor, positions: Tensor, targets: int) -> float:
    """Operations of one step of training: forward and backward, no padding.

    Args:
        lengths: [B] tokens of each sequence.
        positions: [B] index of each sequence's position; each is read once.
        targets: tokens that the output head is asked about.
    """
    tokens, pairs = float(lengths.sum()), float((lengths.double() ** 2).sum()) / 2
    squares = SQUARES * len(torch.unique(positions))
    readers = [reader for block in model.blocks for reader in _within(block, StateReader)]
    by_square = {id(each) for reader in readers for each in _within(reader, nn.Linear)}
    spoken = [each for block in model.blocks for each in _within(block, nn.Linear)]
    work = squares * sum(_cost(each) for each in spoken if id(each) in by_square)
    work += tokens * sum(_cost(each) for each in spoken if id(each) not in by_square)
    layers = decoder_layers(model.decoder)
    work += tokens * sum(_cost(each) for layer in layers for each in _within(layer, nn.Linear))
    head = model.get_output_embeddings()
    work += targets * (_cost(head) if isinstance(head, nn.Linear) else 0.0)
    width, inner = model.config.decoder().hidden_size, model.config.bridge_width
    attended = len(layers) * width * pairs + len(model.blocks) * inner * SQUARES * tokens
    return float(work + 3 * 4 * attended)


def _within(module: nn.Module, kind: type[nn.Module]) -> Iterable[nn.Module]:
    return (each for each in module.modules() if isinstance(each, kind))


def _cost(linear: nn.Module) -> float:
    """Operations of a matrix for each row: sizes and not tensors, which ZeRO may have taken."""
    assert isinstance(linear, nn.Linear)
    learns = linear.weight.requires_grad
    return (6.0 if learns else 4.0) * linear.in_features * linear.out_features
