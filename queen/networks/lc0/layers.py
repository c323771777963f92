"""Layers shared by the architectures, and how they are read from a file.

Batch normalisation is folded into the convolutions while loading (in float64), so that a module
holds a weight and a bias for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.lc0.errors import NetError
from queen.networks.lc0.format import RELU_SQUARED, SWISH
from queen.networks.lc0.weights import Array, Weights

Activation = Callable[[Tensor], Tensor]
State = dict[str, Array]

_EPSILON = 1e-5  # of batch normalisation


def relu(x: Tensor) -> Tensor:
    """In place: layers' outputs are passed here and needed no more, and fresh memory is slow."""
    return F.relu(x, inplace=True)


def relu_squared(x: Tensor) -> Tensor:
    """The square of what is above zero."""
    return relu(x).square()


def identity(x: Tensor) -> Tensor:
    """No activation."""
    return x


_DEFAULTS: dict[int, Activation] = {0: relu, 1: F.mish}
_FUNCTIONS: dict[int, Activation] = {
    1: F.mish,
    2: relu,
    3: identity,
    4: torch.tanh,
    5: torch.sigmoid,
    6: F.selu,
    SWISH: F.silu,
    RELU_SQUARED: relu_squared,
}


def activation(default: int, number: int = 0) -> Activation:
    """The activation of a number (`format.FUNCTIONS`), 0 for the network's default one.

    Args:
        default: the network's default (`format.ACTIVATIONS`).
    """
    return _FUNCTIONS[number] if number else _DEFAULTS[default]


def conv(inputs: int, outputs: int, kernel: int) -> nn.Conv2d:
    """A convolution that keeps the board's size."""
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)


def as_image(tokens: Tensor) -> Tensor:
    """[B, 64, C] as [B, C, 8, 8], without a copy where tokens are contiguous."""
    return tokens.transpose(1, 2).view(len(tokens), tokens.shape[2], 8, 8)


def as_tokens(image: Tensor) -> Tensor:
    """[B, C, 8, 8] as [B, 64, C]."""
    return image.flatten(2).transpose(1, 2)


def read_conv(weights: Weights, name: str, inputs: int, kernel: int, outputs: int = -1) -> State:
    """A ConvBlock, batch normalisation folded in: weight [out, in, k, k] and bias [out]."""
    block = weights.part(name)
    kernels = block.array("weights", outputs, inputs, kernel, kernel).astype(np.float64)
    outputs = len(kernels)
    bias = _vector(block, "biases", outputs, 0.0)
    if block.has("bn_means"):
        mean = block.array("bn_means", outputs)
        variance = block.array("bn_stddivs", outputs).astype(np.float64) + _EPSILON
        if (variance <= 0).any():
            raise NetError(
                "a variance below zero",
                where=block.where("bn_stddivs"),
                remedy="the file is damaged: get it again",
            )
        scale = _vector(block, "bn_gammas", outputs, 1.0) / np.sqrt(variance)
        kernels *= scale[:, None, None, None]
        bias = (bias - mean) * scale + _vector(block, "bn_betas", outputs, 0.0)
    return {"weight": kernels.astype(np.float32), "bias": bias.astype(np.float32)}


def read_dense(weights: Weights, stem: str, inputs: int, outputs: int = -1) -> State:
    """A dense layer `stem_w`, `stem_b`: weight [out, in] and bias [out]."""
    weight = weights.array(f"{stem}_w", outputs, inputs)
    return {"weight": weight, "bias": weights.array(f"{stem}_b", len(weight))}


def read_norm(weights: Weights, stem: str, width: int) -> State:
    """A layer normalisation `stem_gammas`, `stem_betas`; some networks have no betas."""
    bias = weights.vector_or_zeros(f"{stem}_betas", width)
    return {"weight": weights.array(f"{stem}_gammas", width), "bias": bias}


def scaled(state: State, factor: float) -> State:
    """A linear layer whose outputs are multiplied, in float64."""
    return {name: (value * np.float64(factor)).astype(np.float32) for name, value in state.items()}


def prefixed(prefix: str, state: State) -> State:
    """A part's state under its attribute's name."""
    return {f"{prefix}.{name}": value for name, value in state.items()}


def gather(index: list[Any]) -> Tensor:
    """A gather index as a tensor, real even while parameters are on the meta device."""
    return torch.tensor(index, dtype=torch.long, device="cpu")


def _vector(block: Weights, name: str, size: int, default: float) -> np.ndarray:
    if not block.has(name):
        return np.full(size, default)
    return block.array(name, size).astype(np.float64)
