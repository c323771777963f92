"""From planes to the first state of an attention body: [B, 112, 8, 8] to [B, 64, C].

Source: LC0 file format, "Embedding".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.lc0.encoder_layer import SQUARES, read_feed_forward
from queen.networks.lc0.layers import (
    Activation,
    State,
    as_tokens,
    prefixed,
    read_dense,
    read_norm,
)
from queen.networks.lc0.moves import reachable
from queen.networks.lc0.planes import PLANES
from queen.networks.lc0.weights import Weights

PIECES = 12
DENSE_EPS = 1e-3


@dataclass(frozen=True)
class EmbeddingShape:
    """The sizes of an embedding; 0 where a part is absent.

    Attributes:
        width: channels of the tokens.
        board: PE_DENSE only: channels for each square made from the whole board.
        hidden: PE_DENSE only: width of its feed-forward layer.
        multiplied, added: 1 if tokens are multiplied by, and added to, a value for each square.
    """

    width: int
    board: int = 0
    hidden: int = 0
    multiplied: int = 0
    added: int = 0


class Gates(nn.Module):
    """A factor and a summand for each square and channel, where the network has them."""

    def __init__(self, shape: EmbeddingShape) -> None:
        super().__init__()
        size = SQUARES, shape.width
        self.factor = nn.Parameter(torch.empty(size)) if shape.multiplied else None
        self.summand = nn.Parameter(torch.empty(size)) if shape.added else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.factor is None else x * self.factor
        return x if self.summand is None else x + self.summand

    @staticmethod
    def read(weights: Weights, width: int) -> State:
        """Stored [width, 64]; here [64, width]."""
        names = {"factor": "ip_mult_gate", "summand": "ip_add_gate"}
        return {
            name: np.ascontiguousarray(weights.array(stored, width, SQUARES).T)
            for name, stored in names.items()
            if weights.has(stored)
        }


class MapEmbedding(nn.Module):
    """PE_MAP: planes beside a fixed map of the squares that a queen or knight could reach."""

    reach: Tensor

    def __init__(self, shape: EmbeddingShape, act: Activation) -> None:
        super().__init__()
        self.dense = nn.Linear(PLANES + SQUARES, shape.width)
        self.gates, self.act = Gates(shape), act
        self.register_buffer("reach", reach_map(), persistent=False)

    def forward(self, planes: Tensor) -> Tensor:
        on_planes, on_map = self.dense.weight[:, :PLANES], self.dense.weight[:, PLANES:]
        fixed = F.linear(self.reach.to(planes.dtype), on_map, self.dense.bias)
        tokens: Tensor = self.gates(self.act(as_tokens(planes) @ on_planes.T + fixed))
        return tokens

    @staticmethod
    def read(weights: Weights) -> tuple[EmbeddingShape, State]:
        dense = read_dense(weights, "ip_emb", PLANES + SQUARES)
        width = len(dense["bias"])
        gates = Gates.read(weights, width)
        shape = EmbeddingShape(width, 0, 0, int("factor" in gates), int("summand" in gates))
        return shape, prefixed("dense", dense) | prefixed("gates", gates)


class DenseEmbedding(nn.Module):
    """PE_DENSE: planes beside channels made from all pieces at once, then a feed-forward layer."""

    def __init__(self, shape: EmbeddingShape, act: Activation, ffn_act: Activation) -> None:
        super().__init__()
        self.board = nn.Linear(SQUARES * PIECES, SQUARES * shape.board)
        self.dense = nn.Linear(PLANES + shape.board, shape.width)
        self.norm, self.ffn_norm = (nn.LayerNorm(shape.width, eps=DENSE_EPS) for _ in range(2))
        self.ffn1 = nn.Linear(shape.width, shape.hidden)
        self.ffn2 = nn.Linear(shape.hidden, shape.width)
        self.gates, self.act, self.ffn_act = Gates(shape), act, ffn_act

    def forward(self, planes: Tensor) -> Tensor:
        tokens = as_tokens(planes)
        board = self.board(tokens[..., :PIECES].flatten(1)).unflatten(1, (SQUARES, -1))
        x = self.gates(self.norm(self.act(self.dense(torch.cat((tokens, board), 2)))))
        out: Tensor = self.ffn_norm(x + self.ffn2(self.ffn_act(self.ffn1(x))))
        return out

    @staticmethod
    def read(weights: Weights, alpha: float) -> tuple[EmbeddingShape, State]:
        board = read_dense(weights, "ip_emb_preproc", SQUARES * PIECES)
        channels = len(board["bias"]) // SQUARES
        dense = read_dense(weights, "ip_emb", PLANES + channels)
        width = len(dense["bias"])
        gates = Gates.read(weights, width)
        ffn = read_feed_forward(weights.part("ip_emb_ffn"), width, alpha)
        hidden = len(ffn["ffn1.bias"])
        shape = EmbeddingShape(
            width, channels, hidden, int("factor" in gates), int("summand" in gates)
        )
        state = prefixed("board", board) | prefixed("dense", dense) | prefixed("gates", gates) | ffn
        state |= prefixed("norm", read_norm(weights, "ip_emb_ln", width))
        state |= prefixed("ffn_norm", read_norm(weights, "ip_emb_ffn_ln", width))
        return shape, state


def reach_map() -> Tensor:
    """[64, 64]: -1 on the diagonal, 1 where a queen or a knight could move, else 0."""
    rows = [
        [-1.0 if a == b else float(reachable(a, b)) for b in range(SQUARES)] for a in range(SQUARES)
    ]
    return torch.tensor(rows, device="cpu")
