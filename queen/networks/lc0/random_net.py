"""Networks of random weights in a given shape, for tests, benchmarks and sizes of nets not at hand.

write_net(random_net(BT4), Path("bt4-like.pb.gz"))
encoder = build(net_of(random_net(BT5), "bt5-like"))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from queen.networks.lc0.format import (
    ATTENTION_BODY,
    MULTIHEAD,
    POLICY_ATTENTION,
    SWISH,
    VALUE_SCALAR,
    VALUE_WDL,
)
from queen.networks.lc0.planes import PLANES
from queen.networks.lc0.proto import MAGIC, Message
from queen.networks.lc0.weights import FLOAT32
from queen.networks.lc0.write import encode_layer

_PIECES, _SQUARES, _OFFSETS = 12, 64, 225


@dataclass(frozen=True)
class RandomShape:
    """An attention-body network to be made up.

    Attributes:
        layers, width, heads, hidden: of the encoder; hidden is the feed-forward width.
        board: PE_DENSE: channels for each square from the whole board; 0 for PE_MAP.
        smolgen: its channels for each square, hidden width and outputs for each head; () for none.
        relative: whether there are relative position encodings.
        policy: width of the policy's tokens, queries and keys.
        policies, values: names of the heads; with one of each and PE_MAP there is a single head.
        policy_layers: encoder layers of each policy head, of 4 heads.
        value: channels and hidden width of a value head; moves_left: of the moves-left head, () for
            none.
        wdl: whether values are win, draw and loss.
        biases: whether there are q/k/v biases and LN betas.
        activation, smolgen_activation, ffn_activation, input: numbers of the format.
    """

    layers: int = 2
    width: int = 32
    heads: int = 4
    hidden: int = 48
    board: int = 8
    smolgen: tuple[int, ...] = (4, 16, 8)
    relative: bool = False
    policy: int = 24
    policies: tuple[str, ...] = ("vanilla", "optimistic_st")
    values: tuple[str, ...] = ("winner", "q")
    policy_layers: int = 0
    value: tuple[int, int] = (8, 16)
    moves_left: tuple[int, ...] = (4, 8)
    wdl: bool = True
    biases: bool = True
    activation: int = 1
    smolgen_activation: int = SWISH
    ffn_activation: int = 0
    input: int = 1


_LARGE: Mapping[str, Any] = {
    "layers": 15,
    "width": 1024,
    "heads": 32,
    "board": 512,
    "policy": 1024,
    "values": ("winner",),
    "value": (128, 128),
    "moves_left": (8, 128),
}
BT4 = RandomShape(
    **_LARGE,
    hidden=1536,
    smolgen=(32, 256, 256),
    policies=("vanilla", "optimistic_st", "soft", "opponent"),
)
BT5 = RandomShape(
    **_LARGE,
    hidden=4096,
    smolgen=(),
    relative=True,
    policies=("vanilla", "optimistic_st", "soft"),
)


def random_net(shape: RandomShape, seed: int = 0, encoding: int = FLOAT32) -> Message:
    """A decoded `Net` of normal weights, scaled by the layers' inputs."""
    return _Maker(shape, seed, encoding).net()


class _Maker:
    """Draws one network."""

    def __init__(self, shape: RandomShape, seed: int, encoding: int) -> None:
        self.shape, self.encoding = shape, encoding
        self.rng = np.random.default_rng(seed)

    def net(self) -> Message:
        shape = self.shape
        many = bool(shape.board)
        form = {
            "input": shape.input,
            "output": 2 if shape.wdl else 1,
            "network": MULTIHEAD if many else ATTENTION_BODY,
            "policy": POLICY_ATTENTION,
            "value": VALUE_WDL if shape.wdl else VALUE_SCALAR,
            "moves_left": int(bool(shape.moves_left)),
            "default_activation": shape.activation,
            "smolgen_activation": shape.smolgen_activation,
            "ffn_activation": shape.ffn_activation,
            "input_embedding": 2 if many else 1,
        }
        weights = self.embedding() | self.body() | (self.many() if many else self.single())
        if shape.moves_left:
            channels, hidden = shape.moves_left
            weights |= self.tokens("mov", channels, hidden, 1)
        return {
            "magic": MAGIC,
            "license": "random weights",
            "min_version": {"major": 0, "minor": 31, "patch": 0},
            "format": {"weights_encoding": 1, "network_format": form},
            "weights": weights,
        }

    def array(self, *shape: int, spread: float = 0.0, middle: float = 0.0) -> Message:
        """Normal numbers of a spread, by default that of a layer's weights [out, in]."""
        values = self.rng.standard_normal(shape, np.float32)
        values *= np.float32(spread or shape[-1] ** -0.5)
        return encode_layer(values + np.float32(middle), self.encoding)

    def bias(self, size: int) -> Message:
        return self.array(size, spread=0.1)

    def dense(self, stem: str, inputs: int, outputs: int) -> Message:
        return {f"{stem}_w": self.array(outputs, inputs), f"{stem}_b": self.bias(outputs)}

    def norm(self, stem: str, width: int) -> Message:
        gammas = {f"{stem}_gammas": self.array(width, spread=0.1, middle=1.0)}
        return gammas | ({f"{stem}_betas": self.bias(width)} if self.shape.biases else {})

    def feed_forward(self, width: int, hidden: int) -> Message:
        return self.dense("dense1", width, hidden) | self.dense("dense2", hidden, width)

    def embedding(self) -> Message:
        shape, width = self.shape, self.shape.width
        extra = shape.board or _SQUARES
        made = self.dense("ip_emb", PLANES + extra, width) | {
            "ip_mult_gate": self.array(width, _SQUARES, spread=0.1, middle=1.0),
            "ip_add_gate": self.array(width, _SQUARES, spread=0.1),
        }
        if shape.board:
            board = self.dense("ip_emb_preproc", _SQUARES * _PIECES, _SQUARES * shape.board)
            made |= board | self.norm("ip_emb_ln", width)
            made["ip_emb_ffn"] = self.feed_forward(width, shape.hidden)
            made |= self.norm("ip_emb_ffn_ln", width)
        return made

    def body(self) -> Message:
        shape = self.shape
        layers = [self.layer(shape.width, shape.heads, shape.hidden) for _ in range(shape.layers)]
        made: Message = {"encoder": layers, "headcount": shape.heads}
        if shape.smolgen:
            made["smolgen_w"] = self.array(_SQUARES**2, shape.smolgen[2])
        return made

    def layer(self, width: int, heads: int, hidden: int, plain: bool = False) -> Message:
        mha: Message = {}
        for name in ("q", "k", "v"):
            mha |= self.dense(name, width, width)
            if not self.shape.biases:
                del mha[f"{name}_b"]
        mha |= self.dense("dense", width, width)
        if self.shape.smolgen and not plain:
            mha["smolgen"] = self.generator(heads)
        if self.shape.relative and not plain:
            sizes = _OFFSETS, width
            mha |= {f"rpe_{name}": self.array(*sizes, spread=0.3) for name in "qkv"}
        layer = {"mha": mha, "ffn": self.feed_forward(width, hidden)}
        return layer | self.norm("ln1", width) | self.norm("ln2", width)

    def generator(self, heads: int) -> Message:
        compressed, hidden, generated = self.shape.smolgen
        return (
            {"compress": self.array(compressed, self.shape.width)}
            | self.dense("dense1", _SQUARES * compressed, hidden)
            | self.norm("ln1", hidden)
            | self.dense("dense2", hidden, heads * generated)
            | self.norm("ln2", heads * generated)
        )

    def policy_head(self) -> Message:
        width = self.shape.policy
        made = self.dense("ip2_pol", width, width) | self.dense("ip3_pol", width, width)
        made["ip4_pol_w"] = self.array(4, width)
        if self.shape.policy_layers:
            count = self.shape.policy_layers
            layers = [self.layer(width, 4, 2 * width, plain=True) for _ in range(count)]
            made |= {"pol_encoder": layers, "pol_headcount": 4}
        return made

    def tokens(self, stem: str, channels: int, hidden: int, outputs: int) -> Message:
        return (
            self.dense(f"ip_{stem}", self.shape.width, channels)
            | self.dense(f"ip1_{stem}", _SQUARES * channels, hidden)
            | self.dense(f"ip2_{stem}", hidden, outputs)
        )

    def value_head(self) -> Message:
        return self.tokens("val", *self.shape.value, 3 if self.shape.wdl else 1)

    def single(self) -> Message:
        embed = self.dense("ip_pol", self.shape.width, self.shape.policy)
        return embed | self.policy_head() | self.value_head()

    def many(self) -> Message:
        embed = self.dense("ip_pol", self.shape.width, self.shape.policy)
        policies = embed | _each(self.shape.policies, self.policy_head)
        return {
            "policy_heads": policies,
            "value_heads": _each(self.shape.values, self.value_head),
        }


def _each(names: tuple[str, ...], make: Callable[[], Message]) -> Message:
    return {name: make() for name in names}
