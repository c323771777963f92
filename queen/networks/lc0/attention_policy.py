"""The attention policy: from-square queries against to-square keys, promotions apart.

Source: LC0 file format, "Policy".
"""

from __future__ import annotations

from dataclasses import dataclass

import chess
import torch
from torch import Tensor, nn

from queen.networks.lc0.encoder_layer import (
    POLICY_EPS,
    EncoderLayer,
    LayerRules,
    LayerShape,
    read_layers,
)
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


@dataclass(frozen=True)
class PolicyShape:
    """The sizes of an attention policy; 0 where a part is absent.

    Attributes:
        width: of its tokens.
        depth: of queries and keys.
        embedded: 1 if it has an embedding of its own, 0 if it reads one shared with others.
        layers: number of encoder layers.
        heads, layer_depth, hidden: their attention heads, its width, and the feed-forward width.
    """

    width: int
    depth: int
    embedded: int = 1
    layers: int = 0
    heads: int = 0
    layer_depth: int = 0
    hidden: int = 0


class AttentionPolicy(nn.Module):
    """Embedding, encoder layers, then scaled dot products from square to square: [B, 1858].

    Args:
        inputs: channels of the tokens that its own embedding reads, if it has one.
        shape: its sizes.
        embed_act: the embedding's activation.
        ffn_act: the feed-forward layers'.
    """

    index: Tensor

    def __init__(
        self, inputs: int, shape: PolicyShape, embed_act: Activation, ffn_act: Activation
    ) -> None:
        super().__init__()
        width = shape.width
        self.embed = nn.Linear(inputs, width) if shape.embedded else None
        self.act = embed_act
        layer = LayerShape(width, shape.layer_depth, shape.heads, shape.hidden)
        rules = LayerRules(ffn_act, ffn_act, POLICY_EPS)
        self.layers = nn.ModuleList(EncoderLayer(layer, rules) for _ in range(shape.layers))
        self.q, self.k = nn.Linear(width, shape.depth), nn.Linear(width, shape.depth)
        self.promotion = nn.Linear(shape.depth, 4, bias=False)
        flat = [flat_index(move) for move in MOVES]
        self.register_buffer("index", gather(flat), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens if self.embed is None else self.act(self.embed(tokens))
        for layer in self.layers:
            x = layer(x)
        q, k = self.q(x), self.k(x)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5  # [B, from, to]
        offsets = self.promotion(k[:, 56:])  # [B, file of target, 4]
        offsets = offsets[..., :3] + offsets[..., 3:]
        promotions = scores[:, 48:56, 56:, None] + offsets[:, None]  # [B, from, to, piece]
        return torch.cat((scores.flatten(1), promotions.flatten(1)), 1).index_select(1, self.index)

    @staticmethod
    def read(weights: Weights, inputs: int, shared: int = 0) -> tuple[PolicyShape, State]:
        """Sizes and weights of a head.

        Args:
            inputs: channels of the body's tokens.
            shared: width of an embedding shared by several heads, read where the head has none.
        """
        state: State = {}
        if not shared or weights.has("ip_pol_w"):
            state = prefixed("embed", read_dense(weights, "ip_pol", inputs))
        width = len(state["embed.bias"]) if state else shared
        layer, layers = read_layers(weights, "pol_encoder", "pol_headcount", width, 1.0)
        query = read_dense(weights, "ip2_pol", width)
        depth = len(query["bias"])
        shape = PolicyShape(width, depth, int(bool(state)))
        if layer is not None:
            sizes = len(weights.parts("pol_encoder")), layer.heads, layer.depth, layer.hidden
            shape = PolicyShape(width, depth, int(bool(state)), *sizes)
        state |= layers | prefixed("q", query)
        state |= prefixed("k", read_dense(weights, "ip3_pol", width, depth))
        return shape, state | {"promotion.weight": weights.array("ip4_pol_w", 4, depth)}
