"""Heads of convolutional networks: dense and convolution policy, value, moves left.

Each reads the last state as tokens [B, 64, C]. Source: LC0 file format, "Policy", "Value".
"""

from __future__ import annotations

import chess
import torch
from torch import Tensor, nn

from queen.networks.lc0.layers import (
    Activation,
    State,
    as_image,
    conv,
    gather,
    prefixed,
    read_conv,
    read_dense,
)
from queen.networks.lc0.moves import MOVES
from queen.networks.lc0.weights import Weights

POLICY_PLANES = 80

_COMPASS = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]  # file, rank
_KNIGHT = [(1, 2), (2, 1), (2, -1), (1, -2), (-1, -2), (-2, -1), (-2, 1), (-1, 2)]
_PROMOTION_ORDER = "rbq"


def policy_plane(move: str) -> int:
    """The plane of the convolution policy on which a move's origin square holds its logit."""
    origin, target = chess.parse_square(move[:2]), chess.parse_square(move[2:4])
    files = chess.square_file(target) - chess.square_file(origin)
    ranks = chess.square_rank(target) - chess.square_rank(origin)
    if len(move) == 5:
        return 64 + 3 * (files + 1) + _PROMOTION_ORDER.index(move[4])
    if (files, ranks) in _KNIGHT:
        return 56 + _KNIGHT.index((files, ranks))
    distance = max(abs(files), abs(ranks))
    return 7 * _COMPASS.index((files // distance, ranks // distance)) + distance - 1


class ConvolutionPolicy(nn.Module):
    """Two convolutions; each move's logit stands on its plane at its origin: [B, 1858]."""

    index: Tensor

    def __init__(self, width: int, planes: int, act: Activation) -> None:
        super().__init__()
        self.first, self.second = conv(width, planes, 3), conv(planes, POLICY_PLANES, 3)
        self.act = act
        flat = [64 * policy_plane(move) + chess.parse_square(move[:2]) for move in MOVES]
        self.register_buffer("index", gather(flat), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        planes = self.second(self.act(self.first(as_image(tokens))))
        logits: Tensor = planes.flatten(1).index_select(1, self.index)
        return logits

    @staticmethod
    def read(weights: Weights, width: int) -> State:
        first = read_conv(weights, "policy1", width, 3)
        second = read_conv(weights, "policy", len(first["bias"]), 3, POLICY_PLANES)
        return prefixed("first", first) | prefixed("second", second)


class DensePolicy(nn.Module):
    """A 1x1 convolution and one dense layer: [B, 1858]."""

    def __init__(self, width: int, planes: int, act: Activation) -> None:
        super().__init__()
        self.first, self.second = conv(width, planes, 1), nn.Linear(64 * planes, len(MOVES))
        self.act = act

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.second(self.act(self.first(as_image(tokens))).flatten(1))
        return logits

    @staticmethod
    def read(weights: Weights, width: int) -> State:
        first = read_conv(weights, "policy", width, 1)
        second = read_dense(weights, "ip_pol", 64 * len(first["bias"]), len(MOVES))
        return prefixed("first", first) | prefixed("second", second)


class ScalarHead(nn.Module):
    """A 1x1 convolution and two dense layers: value (1 or 3 raw outputs) or moves left (1).

    Args:
        width: channels of the tokens.
        planes: outputs of the convolution.
        hidden: width of the first dense layer.
        outputs: width of the second.
        positive: whether the outputs are cut off below zero (moves left).
    """

    def __init__(
        self, width: int, planes: int, hidden: int, outputs: int, act: Activation, positive: bool
    ) -> None:
        super().__init__()
        self.conv = conv(width, planes, 1)
        self.hidden, self.out = nn.Linear(64 * planes, hidden), nn.Linear(hidden, outputs)
        self.act, self.positive = act, positive

    def forward(self, tokens: Tensor) -> Tensor:
        flat = self.act(self.conv(as_image(tokens))).flatten(1)
        raw: Tensor = self.out(self.act(self.hidden(flat)))
        return torch.relu(raw) if self.positive else raw

    @staticmethod
    def read(weights: Weights, block: str, stem: str, width: int, outputs: int) -> State:
        """From ConvBlock `block` and the dense layers `ip1_stem` and `ip2_stem`."""
        planes = read_conv(weights, block, width, 1)
        hidden = read_dense(weights, f"ip1_{stem}", 64 * len(planes["bias"]))
        out = read_dense(weights, f"ip2_{stem}", len(hidden["bias"]), outputs)
        return prefixed("conv", planes) | prefixed("hidden", hidden) | prefixed("out", out)
