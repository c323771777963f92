"""What a network file says about its architecture, with the loader's legacy fix-ups.

Source: LC0 file format, `network_format`; the fix-ups are lc0's own for older files.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from queen.networks.lc0.errors import NetError
from queen.networks.lc0.proto import Message

CLASSICAL, SE_LEGACY, CLASSICAL_HEADS, SE_HEADS, ONNX = 1, 2, 3, 4, 5
ATTENTION_BODY, MULTIHEAD, MULTIHEAD_LEGACY = 6, 7, 134
POLICY_DENSE, POLICY_CONVOLUTION, POLICY_ATTENTION = 1, 2, 3
VALUE_SCALAR, VALUE_WDL = 1, 2
EMBEDDING_PE_MAP, EMBEDDING_PE_DENSE = 1, 2
SWISH, RELU_SQUARED = 7, 8

NETWORKS = {
    CLASSICAL: "NETWORK_CLASSICAL",
    SE_LEGACY: "NETWORK_SE",
    CLASSICAL_HEADS: "NETWORK_CLASSICAL_WITH_HEADFORMAT",
    SE_HEADS: "NETWORK_SE_WITH_HEADFORMAT",
    ONNX: "NETWORK_ONNX",
    ATTENTION_BODY: "NETWORK_ATTENTIONBODY_WITH_HEADFORMAT",
    MULTIHEAD: "NETWORK_ATTENTIONBODY_WITH_MULTIHEADFORMAT",
    MULTIHEAD_LEGACY: "NETWORK_AB_LEGACY_WITH_MULTIHEADFORMAT",
}
INPUTS = {
    1: "INPUT_CLASSICAL_112_PLANE",
    2: "INPUT_112_WITH_CASTLING_PLANE",
    3: "INPUT_112_WITH_CANONICALIZATION",
    4: "INPUT_112_WITH_CANONICALIZATION_HECTOPLIES",
    132: "INPUT_112_WITH_CANONICALIZATION_HECTOPLIES_ARMAGEDDON",
    5: "INPUT_112_WITH_CANONICALIZATION_V2",
    133: "INPUT_112_WITH_CANONICALIZATION_V2_ARMAGEDDON",
}
POLICIES = {POLICY_DENSE: "dense", POLICY_CONVOLUTION: "convolution", POLICY_ATTENTION: "attention"}
VALUES = {VALUE_SCALAR: "scalar", VALUE_WDL: "wdl"}
MOVES_LEFT = {0: "none", 1: "v1"}
ACTIVATIONS = {0: "relu", 1: "mish"}
FUNCTIONS = {
    0: "default",
    1: "mish",
    2: "relu",
    3: "none",
    4: "tanh",
    5: "sigmoid",
    6: "selu",
    SWISH: "swish",
    RELU_SQUARED: "relu_2",
}
EMBEDDINGS = {EMBEDDING_PE_MAP: "pe_map", EMBEDDING_PE_DENSE: "pe_dense"}
ATTENTION_BODIES = (ATTENTION_BODY, MULTIHEAD)


@dataclass(frozen=True)
class NetFormat:
    """The numbers of `network_format` after the fix-ups; 0 where the file says nothing.

    Attributes:
        input: how the 112 planes are drawn (`INPUTS`).
        output: 1 a scalar value, 2 win/draw/loss.
        network: the body's architecture (`NETWORKS`).
        policy: `POLICIES`; value: `VALUES`; moves_left: `MOVES_LEFT`.
        default_activation: `ACTIVATIONS`.
        smolgen_activation, ffn_activation: `FUNCTIONS`; input_embedding: `EMBEDDINGS`; of
            attention bodies only.
    """

    input: int = 1
    output: int = 0
    network: int = 0
    policy: int = 0
    value: int = 0
    moves_left: int = 0
    default_activation: int = 0
    smolgen_activation: int = 0
    ffn_activation: int = 0
    input_embedding: int = 0

    @classmethod
    def of(cls, net: Message) -> NetFormat:
        """The format of a decoded file, fixed up as lc0's loader does."""
        said = net.get("format", {}).get("network_format")
        if said is None:
            return cls(1, 1, CLASSICAL_HEADS, POLICY_DENSE, VALUE_SCALAR)
        known = {field.name for field in fields(cls)}
        raw = cls(**{name: value for name, value in said.items() if name in known})
        return _fixed_up(raw, net.get("weights", {}))

    @classmethod
    def from_dict(cls, values: dict[str, Any], where: str) -> NetFormat:
        """The inverse of `dataclasses.asdict`. Raises NetError on names it does not know."""
        try:
            return cls(**{name: int(value) for name, value in values.items()})
        except (TypeError, ValueError) as error:
            raise NetError(
                f"not a network format: {error}", where=where, remedy="save the encoder again"
            ) from error

    def names(self) -> dict[str, str]:
        """The format in words."""
        mine = asdict(self)
        return {name: table.get(mine[name], f"#{mine[name]}") for name, table in self.tables()}

    def tables(self) -> list[tuple[str, dict[int, str]]]:
        """The fields that matter to this network and the words of their values."""
        tables = {
            "input": INPUTS,
            "network": NETWORKS,
            "policy": POLICIES,
            "value": VALUES,
            "moves_left": MOVES_LEFT,
            "default_activation": ACTIVATIONS,
        }
        if self.network in ATTENTION_BODIES:
            tables |= {"smolgen_activation": FUNCTIONS, "ffn_activation": FUNCTIONS}
            tables |= {"input_embedding": EMBEDDINGS}
        return list(tables.items())


def _fixed_up(raw: NetFormat, weights: Message) -> NetFormat:
    if raw.network in (CLASSICAL, SE_LEGACY):
        modern = CLASSICAL_HEADS if raw.network == CLASSICAL else SE_HEADS
        return replace(raw, network=modern, policy=POLICY_DENSE, value=VALUE_SCALAR)
    if raw.network == MULTIHEAD_LEGACY:
        raw = replace(raw, network=MULTIHEAD)
    if raw.network == SE_HEADS and weights.get("encoder"):
        raw = replace(raw, network=ATTENTION_BODY)
        if "smolgen_w" in weights:
            raw = replace(raw, ffn_activation=RELU_SQUARED, smolgen_activation=SWISH)
    both = "policy_heads" in weights and "value_heads" in weights
    if raw.network == ATTENTION_BODY and both:
        return replace(raw, network=MULTIHEAD, input_embedding=EMBEDDING_PE_DENSE)
    if raw.network in ATTENTION_BODIES:
        return replace(raw, input_embedding=raw.input_embedding or EMBEDDING_PE_MAP)
    return raw
