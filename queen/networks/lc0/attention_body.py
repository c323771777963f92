"""Attention bodies (T82, BT1 ... BT5 and their like) as encoders.

The states are the embedding's output and each encoder layer's: e_0 ... e_15 for BT4. Source: LC0
file format, "Embedding" to "Value and moves left".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from queen.networks.lc0.attention_policy import AttentionPolicy, PolicyShape
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.embedding import DenseEmbedding, EmbeddingShape, MapEmbedding
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.encoder_layer import (
    SQUARES,
    EncoderLayer,
    LayerRules,
    LayerShape,
    read_layers,
)
from queen.networks.lc0.errors import NetError, UnsupportedNet
from queen.networks.lc0.format import (
    EMBEDDING_PE_DENSE,
    MULTIHEAD,
    POLICIES,
    POLICY_ATTENTION,
    VALUE_WDL,
    NetFormat,
)
from queen.networks.lc0.layers import State, activation, prefixed, read_dense
from queen.networks.lc0.multihead import NamedHeads, TokenHead, TokenShape, named_parts
from queen.networks.lc0.weights import Weights

POLICY_HEADS = ("vanilla", "optimistic_st", "soft", "opponent")
VALUE_HEADS = ("winner", "q", "st")
MAP_EPS, DENSE_EPS = 1e-6, 1e-3


@dataclass(frozen=True)
class AttentionShape:
    """The sizes of an attention body and its heads.

    Attributes:
        embedding, layer: of the embedding and of each encoder layer.
        layers: number of encoder layers.
        policy, value: of each policy and value head, by name, the usual one first.
        shared_policy: width of an embedding shared by the policy heads, 0 if there is none.
        moves_left: of the moves-left head, None if there is none.
    """

    embedding: EmbeddingShape
    layer: LayerShape
    layers: int
    policy: Mapping[str, PolicyShape]
    value: Mapping[str, TokenShape]
    shared_policy: int
    moves_left: TokenShape | None

    @classmethod
    def of(cls, **sizes: Any) -> AttentionShape:
        """From JSON."""
        kinds: dict[str, Any] = {"embedding": EmbeddingShape, "layer": LayerShape}
        made = {name: kind(**sizes.pop(name)) for name, kind in kinds.items()}
        left = sizes.pop("moves_left")
        return cls(
            **made,
            policy={name: PolicyShape(**each) for name, each in sizes.pop("policy").items()},
            value={name: TokenShape(**each) for name, each in sizes.pop("value").items()},
            moves_left=None if left is None else TokenShape(**left),
            **sizes,
        )

    @property
    def width(self) -> int:
        """Channels of a state's tokens."""
        return self.embedding.width

    @property
    def n_states(self) -> int:
        """The embedding's and one for each encoder layer."""
        return self.layers + 1


class AttentionBody(nn.Module):
    """Planes [B, 112, 8, 8] to the states, each [B, 64, width]."""

    def __init__(self, shape: AttentionShape, form: NetFormat) -> None:
        super().__init__()
        act = activation(form.default_activation)
        ffn_act = activation(form.default_activation, form.ffn_activation)
        smolgen_act = activation(form.default_activation, form.smolgen_activation)
        dense = form.input_embedding == EMBEDDING_PE_DENSE
        self.embedding: nn.Module = (
            DenseEmbedding(shape.embedding, act, ffn_act)
            if dense
            else MapEmbedding(shape.embedding, act)
        )
        rules = LayerRules(ffn_act, smolgen_act, DENSE_EPS if dense else MAP_EPS)
        self.layers = nn.ModuleList(EncoderLayer(shape.layer, rules) for _ in range(shape.layers))
        generated = shape.layer.generated
        self.smolgen = nn.Linear(generated, SQUARES**2, bias=False) if generated else None

    def forward(self, planes: Tensor) -> list[Tensor]:
        shared = None if self.smolgen is None else self.smolgen.weight
        states = [self.embedding(planes)]
        for layer in self.layers:
            states.append(layer(states[-1], shared))
        return states


def read_attention(weights: Weights, form: NetFormat) -> tuple[AttentionShape, State]:
    """The sizes and weights of a file. Raises NetError naming a field at fault."""
    _check(weights, form)
    count = len(weights.parts("encoder"))
    alpha = (2.0 * count) ** -0.25
    if form.input_embedding == EMBEDDING_PE_DENSE:
        embedding, first = DenseEmbedding.read(weights, alpha)
    else:
        embedding, first = MapEmbedding.read(weights)
    layer, layers = read_layers(weights, "encoder", "headcount", embedding.width, alpha)
    assert layer is not None
    state = prefixed("body.embedding", first) | prefixed("body", layers)
    if layer.generated:
        state["body.smolgen.weight"] = weights.array("smolgen_w", SQUARES**2, layer.generated)
    policy, shared, heads = _read_policy(weights, form, embedding.width)
    value, values = _read_value(weights, form, embedding.width)
    state |= prefixed("policy", heads) | prefixed("value", values)
    left = None
    if form.moves_left:
        left, head = TokenHead.read(weights, "mov", embedding.width, 1)
        state |= prefixed("moves_left", head)
    return AttentionShape(embedding, layer, count, policy, value, shared, left), state


def build_attention(config: Lc0Config) -> Lc0Encoder:
    """An encoder of the configured sizes, weights not yet loaded."""
    shape, form = config.shape, config.format
    assert isinstance(shape, AttentionShape)
    act = activation(form.default_activation)
    ffn_act = activation(form.default_activation, form.ffn_activation)
    policies = {
        name: AttentionPolicy(shape.width, each, act, ffn_act)
        for name, each in shape.policy.items()
    }
    shared = nn.Linear(shape.width, shape.shared_policy) if shape.shared_policy else None
    values = {name: TokenHead(shape.width, each, act, False) for name, each in shape.value.items()}
    left = None
    if shape.moves_left is not None:
        left = TokenHead(shape.width, shape.moves_left, act, True)
    policy, value = NamedHeads(policies, shared, act), NamedHeads(values, None, act)
    return Lc0Encoder(config, AttentionBody(shape, form), policy, value, left)


def _read_policy(
    weights: Weights, form: NetFormat, width: int
) -> tuple[dict[str, PolicyShape], int, State]:
    """Sizes by name, width of the shared embedding (or 0), and weights."""
    if form.network != MULTIHEAD:
        shape, head = AttentionPolicy.read(weights, width)
        return {POLICY_HEADS[0]: shape}, 0, prefixed(f"heads.{POLICY_HEADS[0]}", head)
    within, shared, state = weights.part("policy_heads"), 0, State()
    if within.has("ip_pol_w"):
        embed = read_dense(within, "ip_pol", width)
        shared, state = len(embed["bias"]), prefixed("shared", embed)
    shapes = {}
    for name, part in named_parts(within, POLICY_HEADS, "policy_head_map").items():
        shapes[name], head = AttentionPolicy.read(part, width, shared)
        state |= prefixed(f"heads.{name}", head)
    return shapes, shared, state


def _read_value(
    weights: Weights, form: NetFormat, width: int
) -> tuple[dict[str, TokenShape], State]:
    """Sizes by name, and weights."""
    outputs = 3 if form.value == VALUE_WDL else 1
    parts = {VALUE_HEADS[0]: weights}
    if form.network == MULTIHEAD:
        parts = named_parts(weights.part("value_heads"), VALUE_HEADS, "value_head_map")
    shapes, state = {}, State()
    for name, part in parts.items():
        shapes[name], head = TokenHead.read(part, "val", width, outputs)
        state |= prefixed(f"heads.{name}", head)
    return shapes, state


def _check(weights: Weights, form: NetFormat) -> None:
    """Raises on what an attention body cannot have."""
    if form.policy != POLICY_ATTENTION:
        raise UnsupportedNet(
            f"an attention body with a {POLICIES[form.policy]} policy is not supported",
            where=weights.where("policy"),
            remedy="use a network whose policy is attention",
        )
    if weights.parts("residual"):
        raise UnsupportedNet(
            "an attention body on top of residual blocks is not supported",
            where=weights.where("residual"),
            remedy="use a network whose body is all attention or all convolution",
        )
    if not weights.parts("encoder"):
        raise NetError(
            "missing",
            where=weights.where("encoder"),
            remedy="the file is incomplete or of another architecture than it says: get it again",
        )
