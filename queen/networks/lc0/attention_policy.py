"""The attention policy: from-square queries against to-square keys, promotions apart.

Source: LC0 file format, "Policy" and "Encoder layer i".
"""

from __future__ import annotations

import chess
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.lc0.errors import NetError
from queen.networks.lc0.layers import Activation, State, gather, prefixed, read_dense
from queen.networks.lc0.moves import MOVES
from queen.networks.lc0.weights import Weights

_PROMOTIONS = "qrb"


def flat_index(move: str) -> int:
    """Where a move's logit stands behind one another: 64x64 from-to, then 8x8x3 promotions."""
    origin, target = chess.parse_square(move[:2]), chess.parse_square(move[2:4])
    if len(move) == 4:
        return 64 * origin + target
    files = 24 * chess.square_file(origin) + 3 * chess.square_file(target)
    return 4096 + files + _PROMOTIONS.index(move[4])


class Attention(nn.Module):
    """Multi-head self-attention over 64 squares; heads are contiguous chunks."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, depth) for _ in range(3))
        self.dense = nn.Linear(depth, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.dense(mixed.transpose(1, 2).flatten(2))
        return out


class EncoderLayer(nn.Module):
    """A post-norm encoder layer, as policy heads use it: alpha 1, eps 1e-6.

    Args:
        width: channels of the tokens.
        depth: width of queries, keys and values, all heads together.
        heads: number of heads.
        hidden: width of the feed-forward layer.
        act: its activation.
    """

    def __init__(self, width: int, depth: int, heads: int, hidden: int, act: Activation) -> None:
        super().__init__()
        self.mha = Attention(width, depth, heads)
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.ffn1, self.ffn2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.mha(x))
        out: Tensor = self.norm2(x + self.ffn2(self.act(self.ffn1(x))))
        return out

    @staticmethod
    def read(weights: Weights, width: int, depth: int = -1, hidden: int = -1) -> State:
        """Where sizes are given (those of an earlier layer), the layer must have them."""
        mha, ffn = weights.part("mha"), weights.part("ffn")
        state: State = {}
        for name in ("q", "k", "v"):
            state |= prefixed(f"mha.{name}", read_dense(mha, name, width, depth))
            depth = len(state["mha.q.bias"])
        state |= prefixed("mha.dense", read_dense(mha, "dense", depth, width))
        state |= prefixed("ffn1", read_dense(ffn, "dense1", width, hidden))
        hidden = len(state["ffn1.bias"])
        state |= prefixed("ffn2", read_dense(ffn, "dense2", hidden, width))
        for i in (1, 2):
            state[f"norm{i}.weight"] = weights.array(f"ln{i}_gammas", width)
            state[f"norm{i}.bias"] = weights.array(f"ln{i}_betas", width)
        return state


class AttentionPolicy(nn.Module):
    """Embedding, encoder layers, then scaled dot products from square to square: [B, 1858].

    Args:
        inputs: channels of the tokens.
        width: of the embedding and the encoder layers.
        depth: of queries and keys.
        layers: number of encoder layers.
        heads, layer_depth, hidden: their attention heads, its width, and the feed-forward width.
        embed_act: the embedding's activation; ffn_act: the feed-forward layers'.
    """

    index: Tensor

    def __init__(
        self,
        inputs: int,
        width: int,
        depth: int,
        layers: int,
        heads: int,
        layer_depth: int,
        hidden: int,
        embed_act: Activation,
        ffn_act: Activation,
    ) -> None:
        super().__init__()
        self.embed, self.act = nn.Linear(inputs, width), embed_act
        self.layers = nn.ModuleList(
            EncoderLayer(width, layer_depth, heads, hidden, ffn_act) for _ in range(layers)
        )
        self.q, self.k = nn.Linear(width, depth), nn.Linear(width, depth)
        self.promotion = nn.Linear(depth, 4, bias=False)
        flat = [flat_index(move) for move in MOVES]
        self.register_buffer("index", gather(flat), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.act(self.embed(tokens))
        for layer in self.layers:
            x = layer(x)
        q, k = self.q(x), self.k(x)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5  # [B, from, to]
        offsets = self.promotion(k[:, 56:])  # [B, file of target, 4]
        offsets = offsets[..., :3] + offsets[..., 3:]
        promotions = scores[:, 48:56, 56:, None] + offsets[:, None]  # [B, from, to, piece]
        return torch.cat((scores.flatten(1), promotions.flatten(1)), 1).index_select(1, self.index)

    @staticmethod
    def read(weights: Weights, inputs: int) -> State:
        state = prefixed("embed", read_dense(weights, "ip_pol", inputs))
        width, sizes = len(state["embed.bias"]), (-1, -1)
        for i, layer in enumerate(weights.parts("pol_encoder")):
            one = EncoderLayer.read(layer, width, *sizes)
            sizes = len(one["mha.q.bias"]), len(one["ffn1.bias"])
            state |= prefixed(f"layers.{i}", one)
        state |= prefixed("q", read_dense(weights, "ip2_pol", width))
        depth = len(state["q.bias"])
        state |= prefixed("k", read_dense(weights, "ip3_pol", width, depth))
        state["promotion.weight"] = weights.array("ip4_pol_w", 4, depth)
        return state

    @staticmethod
    def heads(weights: Weights, state: State) -> int:
        """The number of heads of the encoder layers, 0 where there are none."""
        if not weights.parts("pol_encoder"):
            return 0
        heads, depth = weights.number("pol_headcount"), len(state["layers.0.mha.q.bias"])
        if heads <= 0 or depth % heads:
            raise NetError(
                f"{heads} heads do not divide a width of {depth}",
                where=weights.where("pol_headcount"),
                remedy="the file is damaged: get it again",
            )
        return heads
