"""The architectures there are, by the file's network format.

An architecture is three things: its sizes (a frozen dataclass), how a file is read into sizes and
weights, and how a module is built from sizes. A new one is a new entry of `BODIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from queen.networks.lc0.attention_body import AttentionShape, build_attention, read_attention
from queen.networks.lc0.config import Lc0Config, Shape
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.errors import UnsupportedNet
from queen.networks.lc0.format import (
    ATTENTION_BODY,
    CLASSICAL_HEADS,
    MULTIHEAD,
    NETWORKS,
    SE_HEADS,
    NetFormat,
)
from queen.networks.lc0.layers import State
from queen.networks.lc0.resnet import ResNetShape, build_resnet, read_resnet
from queen.networks.lc0.weights import Weights


@dataclass(frozen=True)
class Body:
    """An architecture.

    Attributes:
        shape: the dataclass of its sizes.
        read: the weights of a file to sizes and arrays named as the module's parameters.
        build: a module of the configured sizes.
    """

    shape: Callable[..., Shape]
    read: Callable[[Weights, NetFormat], tuple[Shape, State]]
    build: Callable[[Lc0Config], Lc0Encoder]


_RESNET = Body(ResNetShape, read_resnet, build_resnet)
_ATTENTION = Body(AttentionShape.of, read_attention, build_attention)
BODIES: Mapping[int, Body] = {
    CLASSICAL_HEADS: _RESNET,
    SE_HEADS: _RESNET,
    ATTENTION_BODY: _ATTENTION,
    MULTIHEAD: _ATTENTION,
}


def body_for(form: NetFormat, where: str) -> Body:
    """The architecture of a format. Raises UnsupportedNet naming what is not supported."""
    body = BODIES.get(form.network)
    if body is None:
        name = NETWORKS.get(form.network, "an unknown network format")
        raise UnsupportedNet(
            f"{name} ({form.network}) is not supported",
            where=where,
            remedy=f"use a network of one of: {', '.join(NETWORKS[n] for n in sorted(BODIES))}",
        )
    for name, table in form.tables():
        number = getattr(form, name)
        if number not in table:
            known = ", ".join(f"{word} ({n})" for n, word in table.items())
            raise UnsupportedNet(
                f"{name} format {number} is not supported",
                where=f"{where}, field format.network_format.{name}",
                remedy=f"use a network with one of: {known}",
            )
    return body
