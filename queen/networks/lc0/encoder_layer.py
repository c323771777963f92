"""Encoder layers of attention bodies and of attention policies.

A layer is post-norm: LN(x + alpha * attention), LN(x + alpha * FFN). Alpha is folded into the last
linear layer of each branch while loading, and the three projections of the attention are one.
Source: LC0 file format, "Encoder layer i".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.lc0.errors import NetError
from queen.networks.lc0.layers import (
    Activation,
    State,
    gather,
    prefixed,
    read_dense,
    read_norm,
    scaled,
)
from queen.networks.lc0.weights import Array, Weights

SQUARES = 64
OFFSETS = 225  # pairs of a rank's and a file's difference, each -7 ... 7
SMOLGEN_EPS = 1e-3
POLICY_EPS = 1e-6


@dataclass(frozen=True)
class LayerShape:
    """The sizes of an encoder layer; 0 where a part is absent.

    Attributes:
        width: channels of the tokens.
        depth: width of queries, keys and values, all heads together.
        heads: number of attention heads.
        hidden: width of the feed-forward layer.
        compressed, generator, generated: smolgen's channels for each square, its hidden width and
            its outputs for each head.
        relative: 1 if there are relative position encodings.
    """

    width: int
    depth: int
    heads: int
    hidden: int
    compressed: int = 0
    generator: int = 0
    generated: int = 0
    relative: int = 0


@dataclass(frozen=True)
class LayerRules:
    """What the encoder layers of a network have in common beside their sizes.

    Attributes:
        act: activation of the feed-forward layers.
        smolgen_act: of smolgen's dense layers.
        eps: of the two normalisations.
    """

    act: Activation
    smolgen_act: Activation
    eps: float


class Smolgen(nn.Module):
    """Attention logits made from the whole board: [B, 64, C] to [B, H, 64, 64]."""

    def __init__(self, shape: LayerShape, act: Activation) -> None:
        super().__init__()
        outputs = shape.heads * shape.generated
        self.compress = nn.Linear(shape.width, shape.compressed, bias=False)
        self.dense1 = nn.Linear(SQUARES * shape.compressed, shape.generator)
        self.norm1 = nn.LayerNorm(shape.generator, eps=SMOLGEN_EPS)
        self.dense2 = nn.Linear(shape.generator, outputs)
        self.norm2 = nn.LayerNorm(outputs, eps=SMOLGEN_EPS)
        self.heads, self.act = shape.heads, act

    def forward(self, x: Tensor, shared: Tensor) -> Tensor:
        """With the weight shared by all layers, [4096, generated]."""
        board = self.norm1(self.act(self.dense1(self.compress(x).flatten(1))))
        made = self.norm2(self.act(self.dense2(board))).view(len(x), self.heads, -1)
        return F.linear(made, shared).view(len(x), self.heads, SQUARES, SQUARES)

    @staticmethod
    def read(weights: Weights, width: int, heads: int) -> State:
        compress = weights.array("compress", -1, width)
        first = read_dense(weights, "dense1", SQUARES * len(compress))
        second = read_dense(weights, "dense2", len(first["bias"]))
        _divided(len(second["bias"]), heads, weights.where("dense2_b"))
        return (
            {"compress.weight": compress}
            | prefixed("dense1", first)
            | prefixed("norm1", read_norm(weights, "ln1", len(first["bias"])))
            | prefixed("dense2", second)
            | prefixed("norm2", read_norm(weights, "ln2", len(second["bias"])))
        )


class RelativePositions(nn.Module):
    """Vectors for each offset between two squares, added to keys, queries and values.

    Parameters `q`, `k`, `v` are [H, 225, depth of a head].
    """

    offset: Tensor
    target: Tensor

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        size = shape.heads, OFFSETS, shape.depth // shape.heads
        self.q, self.k, self.v = (nn.Parameter(torch.empty(size)) for _ in range(3))
        offsets, targets = _offset_tables()
        self.register_buffer("offset", offsets, persistent=False)  # [q, k] to offset
        self.register_buffer("target", targets, persistent=False)  # [q, offset] to k, or 64

    def logits(self, q: Tensor, k: Tensor) -> Tensor:
        """q.Rq + k.Rk for q, k [B, H, 64, d]: [B, H, 64, 64]."""
        index = self.offset.expand(*q.shape[:2], -1, -1)
        from_query = (q @ self.q.transpose(1, 2)).gather(3, index)
        return from_query + (k @ self.k.transpose(1, 2)).gather(3, index.mT).mT

    def mixed(self, share: Tensor) -> Tensor:
        """The sum over keys of share * Rv, for shares [B, H, 64, 64]: [B, H, 64, d]."""
        index = self.target.expand(*share.shape[:2], -1, -1)
        return F.pad(share, (0, 1)).gather(3, index) @ self.v

    @staticmethod
    def read(weights: Weights, depth: int, heads: int) -> State:
        return {name: _relative(weights, f"rpe_{name}", depth, heads) for name in "qkv"}


class Attention(nn.Module):
    """Multi-head self-attention over 64 squares; heads are contiguous chunks."""

    def __init__(self, shape: LayerShape, smolgen_act: Activation) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.depth)
        self.out = nn.Linear(shape.depth, shape.width)
        self.smolgen = Smolgen(shape, smolgen_act) if shape.generated else None
        self.relative = RelativePositions(shape) if shape.relative else None

    def forward(self, x: Tensor, shared: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        bias = None
        if self.smolgen is not None:
            assert shared is not None
            bias = self.smolgen(x, shared)
        if self.relative is None:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        else:
            mixed = _with_positions(q, k, v, bias, self.relative)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out

    @staticmethod
    def read(weights: Weights, width: int, heads: int, alpha: float) -> State:
        query = weights.array("q_w", -1, width)
        depth = len(query)
        _divided(depth, heads, weights.where("q_w"))
        arrays = [query, weights.array("k_w", depth, width), weights.array("v_w", depth, width)]
        biases = [weights.vector_or_zeros(f"{name}_b", depth) for name in "qkv"]
        state: State = {"qkv.weight": np.concatenate(arrays), "qkv.bias": np.concatenate(biases)}
        state |= prefixed("out", scaled(read_dense(weights, "dense", depth, width), alpha))
        if weights.has("smolgen"):
            state |= prefixed("smolgen", Smolgen.read(weights.part("smolgen"), width, heads))
        if any(weights.has(f"rpe_{name}") for name in "qkv"):
            state |= prefixed("relative", RelativePositions.read(weights, depth, heads))
        return state


class EncoderLayer(nn.Module):
    """A post-norm encoder layer: [B, 64, C] to the same."""

    def __init__(self, shape: LayerShape, rules: LayerRules) -> None:
        super().__init__()
        self.mha = Attention(shape, rules.smolgen_act)
        self.norm1, self.norm2 = (nn.LayerNorm(shape.width, eps=rules.eps) for _ in range(2))
        self.ffn1 = nn.Linear(shape.width, shape.hidden)
        self.ffn2 = nn.Linear(shape.hidden, shape.width)
        self.act = rules.act

    def forward(self, x: Tensor, shared: Tensor | None = None) -> Tensor:
        """With smolgen's shared weight, where there is smolgen."""
        x = self.norm1(x + self.mha(x, shared))
        out: Tensor = self.norm2(x + self.ffn2(self.act(self.ffn1(x))))
        return out

    @staticmethod
    def read(weights: Weights, width: int, heads: int, alpha: float) -> tuple[LayerShape, State]:
        """A layer of the file, its sizes and its state."""
        mha = Attention.read(weights.part("mha"), width, heads, alpha)
        ffn = read_feed_forward(weights.part("ffn"), width, alpha)
        norms = [prefixed(f"norm{i}", read_norm(weights, f"ln{i}", width)) for i in (1, 2)]
        shape = LayerShape(width, len(mha["qkv.bias"]) // 3, heads, len(ffn["ffn1.bias"]))
        if "smolgen.norm2.bias" in mha:
            shape = replace(
                shape,
                compressed=len(mha["smolgen.compress.weight"]),
                generator=len(mha["smolgen.norm1.bias"]),
                generated=len(mha["smolgen.norm2.bias"]) // heads,
            )
        shape = replace(shape, relative=int("relative.q" in mha))
        return shape, prefixed("mha", mha) | ffn | norms[0] | norms[1]


def read_feed_forward(weights: Weights, width: int, alpha: float) -> State:
    """`ffn1` and `ffn2`, the latter multiplied by alpha."""
    first = read_dense(weights, "dense1", width)
    second = read_dense(weights, "dense2", len(first["bias"]), width)
    return prefixed("ffn1", first) | prefixed("ffn2", scaled(second, alpha))


def read_layers(
    weights: Weights, name: str, headcount: str, width: int, alpha: float
) -> tuple[LayerShape | None, State]:
    """All layers of a stack, which must be of one shape: `layers.0` ..., None for no layers.

    Args:
        name: the field of the layers; headcount: that of their number of attention heads.
    """
    shape, state, heads = None, State(), weights.number(headcount)
    for i, layer in enumerate(weights.parts(name)):
        if heads <= 0:
            raise NetError(
                f"{heads} attention heads",
                where=weights.where(headcount),
                remedy="the file is damaged: get it again",
            )
        found, one = EncoderLayer.read(layer, width, heads, alpha)
        if shape is not None and found != shape:
            raise NetError(
                f"a layer of {found} in a stack of {shape}",
                where=layer.where("mha"),
                remedy="the file is damaged: get it again",
            )
        shape = found
        state |= prefixed(f"layers.{i}", one)
    return shape, state


def _with_positions(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, relative: RelativePositions
) -> Tensor:
    logits = (q @ k.mT + relative.logits(q, k)) / q.shape[-1] ** 0.5
    share = (logits if bias is None else logits + bias).softmax(-1)
    mixed: Tensor = share @ v + relative.mixed(share)
    return mixed


def _relative(weights: Weights, name: str, depth: int, heads: int) -> Array:
    """[225, depth] with columns depth-major, as [H, 225, depth of a head]."""
    stored = weights.array(name, OFFSETS, depth // heads, heads)
    return np.ascontiguousarray(stored.transpose(2, 0, 1))


def _offset_tables() -> tuple[Tensor, Tensor]:
    """[64, 64] query and key to offset; [64, 225] query and offset to key, 64 for none."""
    ranks, files = np.divmod(np.arange(SQUARES), 8)
    rank, file = (part[:, None] - part[None] + 7 for part in (ranks, files))
    offsets = 15 * rank + file
    targets = np.full((SQUARES, OFFSETS), SQUARES)
    np.put_along_axis(targets, offsets, np.arange(SQUARES)[None], 1)
    return gather(offsets.tolist()), gather(targets.tolist())


def _divided(size: int, heads: int, where: str) -> None:
    if size % heads:
        raise NetError(
            f"{heads} heads do not divide a width of {size}",
            where=where,
            remedy="the file is damaged: get it again",
        )
