"""Several heads of a kind under their names, and the dense heads of attention bodies.

Source: LC0 file format, "Policy", "Value and moves left".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.lc0.encoder_layer import SQUARES
from queen.networks.lc0.errors import NetError
from queen.networks.lc0.layers import Activation, State, prefixed, read_dense
from queen.networks.lc0.weights import Weights


@dataclass(frozen=True)
class TokenShape:
    """The sizes of a `TokenHead`.

    Attributes:
        embedded: channels of its embedding.
        hidden: width of its first dense layer.
        outputs: of its second.
    """

    embedded: int
    hidden: int
    outputs: int


class TokenHead(nn.Module):
    """An embedding of each square and two dense layers: value (1 or 3 raw outputs) or moves left.

    Args:
        width: channels of the tokens.
        shape: its sizes.
        act: activation of the embedding and of the first dense layer.
        positive: whether the outputs are cut off below zero (moves left).
    """

    def __init__(self, width: int, shape: TokenShape, act: Activation, positive: bool) -> None:
        super().__init__()
        self.embed = nn.Linear(width, shape.embedded)
        self.hidden = nn.Linear(SQUARES * shape.embedded, shape.hidden)
        self.out = nn.Linear(shape.hidden, shape.outputs)
        self.act, self.positive = act, positive

    def forward(self, tokens: Tensor) -> Tensor:
        flat = self.act(self.embed(tokens)).flatten(1)
        raw: Tensor = self.out(self.act(self.hidden(flat)))
        return F.relu(raw) if self.positive else raw

    @staticmethod
    def read(weights: Weights, stem: str, width: int, outputs: int) -> tuple[TokenShape, State]:
        """From the dense layers `ip_stem`, `ip1_stem` and `ip2_stem`."""
        embed = read_dense(weights, f"ip_{stem}", width)
        hidden = read_dense(weights, f"ip1_{stem}", SQUARES * len(embed["bias"]))
        out = read_dense(weights, f"ip2_{stem}", len(hidden["bias"]), outputs)
        shape = TokenShape(len(embed["bias"]), len(hidden["bias"]), len(out["bias"]))
        return shape, prefixed("embed", embed) | prefixed("hidden", hidden) | prefixed("out", out)


class NamedHeads(nn.Module):
    """Heads of one kind, one of which answers; the first unless another is named.

    Args:
        heads: by name, the usual one first.
        shared: an embedding that all of them read, if there is one.
        act: its activation.
    """

    def __init__(
        self, heads: Mapping[str, nn.Module], shared: nn.Linear | None, act: Activation
    ) -> None:
        super().__init__()
        self.heads = nn.ModuleDict(heads)
        self.shared, self.act = shared, act

    @property
    def names(self) -> tuple[str, ...]:
        """The heads, the usual one first."""
        return tuple(self.heads)

    def forward(self, tokens: Tensor, name: str = "") -> Tensor:
        """Raises NetError on a head that the network does not have."""
        name = name or self.names[0]
        if name not in self.heads:
            raise no_such_head(name, self.names)
        head = self.heads[name]
        if self.shared is not None and head.embed is None:
            tokens = self.act(self.shared(tokens))
        found: Tensor = head(tokens)
        return found


def no_such_head(name: str, names: Sequence[str]) -> NetError:
    """The error of a head that is asked for by a name the network does not know."""
    known = f"one of {', '.join(names)}" if names else "none: this network has one head of a kind"
    return NetError(f"the network has no head {name!r}", where="heads", remedy=f"name {known}")


def named_parts(weights: Weights, names: Sequence[str], extra: str) -> dict[str, Weights]:
    """The heads of a message that hold anything: known fields, then a map's entries by key."""
    found = {name: weights.part(name) for name in names if weights.has(name)}
    for entry in weights.parts(extra):
        name = entry.text("key")
        if entry.has("value") and name not in found:
            if not name.isidentifier() or hasattr(nn.ModuleDict, name):
                raise NetError(
                    f"{name!r} cannot be a head's name",
                    where=entry.where("key"),
                    remedy="the file is damaged: get it again",
                )
            found[name] = entry.part("value")
    if not found:
        raise NetError(
            "holds no head",
            where=weights.where(extra),
            remedy="the file is incomplete or of another architecture than it says: get it again",
        )
    return found
