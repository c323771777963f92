"""Gated cross-attention from a decoder's tokens to the 64 squares of an encoder state.

Source: Flamingo's gated block as METHOD section 1 uses it, with its two additions of ours: keys
tied to the embeddings of the square tokens, and an MLP on the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer

from queen.networks.errors import NetworkError
from queen.networks.packed import Packed, read_packed

SQUARES = 64


class Context(NamedTuple):
    """What a bridge reads of N positions: keys and values, each [N, heads, 64, head width]."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class BridgeShape:
    """Sizes and choices of one bridge.

    Attributes:
        hidden: width of the decoder.
        state: width of the encoder's states.
        width: inner width of the attention, a multiple of `heads`.
        heads: number of attention heads.
        ffn: inner width of the feed-forward half.
        tied_keys: tie keys to the square tokens' embeddings and give values a learned position.
        state_mlp: inner width of a residual MLP on the states; 0 for none.
        gate_init: what both gates start at, before the tanh.
        tied_values: tie values to the square tokens' embeddings as well, in place of a learned
            position: what is read of a square then says which square it is in the words of the
            output, the same for all 64.
        side_to_move: add a learned vector to the states, with the sign of the side to move.
    """

    hidden: int
    state: int
    width: int
    heads: int
    ffn: int
    tied_keys: bool
    state_mlp: int
    gate_init: float = 0.0
    tied_values: bool = False
    side_to_move: bool = False


class Routing(NamedTuple):
    """Which position each token of a packed batch reads, as two index maps.

    Attributes:
        gather: [N, L] flat token index for each position's tokens, 0 where there are fewer than L.
        scatter: [B * T] flat index into N * L for each token.
        silent: [B * T] True for tokens that read no position.
    """

    gather: Tensor
    scatter: Tensor
    silent: Tensor


def route(rows: Tensor, positions: int) -> Routing:
    """The routing of tokens to positions.

    Args:
        rows: [B, T] index of the position each token reads, -1 for none.
        positions: N, the number of positions in the context.
    """
    flat = rows.reshape(-1)
    silent = flat < 0
    owner = torch.where(silent, positions, flat)
    counts = torch.bincount(owner, minlength=positions + 1)
    order = torch.argsort(owner, stable=True)
    starts = counts.cumsum(0) - counts
    within = torch.empty_like(order)
    within[order] = torch.arange(len(flat), device=flat.device) - starts[owner[order]]
    longest = max(int(counts[:positions].max()), 1)
    scatter = torch.where(silent, 0, owner * longest + within)
    gather = torch.zeros(positions * longest, dtype=torch.long, device=flat.device)
    spoken = (~silent).nonzero().squeeze(1)
    gather[scatter[spoken]] = spoken
    return Routing(gather.view(positions, longest), scatter, silent)


class StateReader(nn.Module):
    """Turns one encoder state into keys and values."""

    def __init__(self, shape: BridgeShape) -> None:
        super().__init__()
        self.width = shape.state
        self.norm = nn.LayerNorm(shape.state, bias=False)
        self.side = nn.Parameter(torch.empty(shape.state)) if shape.side_to_move else None
        self.mlp = _state_mlp(shape) if shape.state_mlp else None
        self.keys = nn.Linear(shape.state, shape.width, bias=False)
        self.values = nn.Linear(shape.state, shape.width, bias=False)
        learned = shape.tied_keys and not shape.tied_values
        self.square_values = nn.Embedding(SQUARES, shape.width) if learned else None

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [N, 64, width] of states [N, 64, C + 1], the side to move last."""
        read = self.norm(states[..., : self.width])
        if self.side is not None:
            read = read + self._side_of(states) * self.side
        if self.mlp is not None:
            read = read + self.mlp(read)
        keys, values = self.keys(read), self.values(read)
        if self.square_values is not None:
            values = values + self.square_values(torch.arange(SQUARES, device=values.device))
        return keys, values

    def _side_of(self, states: Tensor) -> Tensor:
        if states.shape[-1] != self.width + 1:
            raise NetworkError(
                f"states of {states.shape[-1]} channels say not who is to move",
                where="Bridge.read",
                remedy=f"give {self.width + 1}, as Expert.states does, or set side_to_move=false",
            )
        return states[..., self.width :]


class Bridge(GradientCheckpointingLayer):  # type: ignore[misc]
    """One block: x + tanh(a) * attention(x, state), then x + tanh(b) * ffn(x).

    With both gates at 0 it passes its input on unchanged, bit for bit.
    """

    def __init__(self, shape: BridgeShape) -> None:
        super().__init__()
        self.heads, self.gate_init = shape.heads, shape.gate_init
        self.norm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.query = nn.Linear(shape.hidden, shape.width, bias=False)
        self.square_query = (
            nn.Linear(shape.hidden, shape.width, bias=False) if shape.tied_keys else None
        )
        self.square_value = (
            nn.Linear(shape.hidden, shape.width, bias=False) if shape.tied_values else None
        )
        self.reader = StateReader(shape)
        self.out = nn.Linear(shape.width, shape.hidden, bias=False)
        self.ffn_norm = nn.RMSNorm(shape.hidden, eps=1e-6)
        self.up = nn.Linear(shape.hidden, shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)
        self.attention_gate = nn.Parameter(torch.full((1,), shape.gate_init))
        self.ffn_gate = nn.Parameter(torch.full((1,), shape.gate_init))

    def read(self, states: Tensor, squares: Tensor) -> Context:
        """Keys and values of N positions, computed once however many tokens read them.

        Args:
            states: [N, 64, C + 1] in the order a1..h8, as `Expert.states` gives them.
            squares: [64, hidden] embeddings of the square tokens.
        """
        keys, values = self.reader(states)
        said = self.norm(squares)
        if self.square_query is not None:
            keys = keys + self.square_query(said)
        if self.square_value is not None:
            values = values + self.square_value(said)
        return Context(self._split(keys), self._split(values))

    def forward(
        self, hidden: Tensor, context: Context, routing: Routing | Packed | None = None
    ) -> Tensor:
        """Hidden states [B, T, hidden] after the block.

        Without a routing, row b of the batch reads position b of the context.
        """
        read = self.out(self._attend(self.query(self.norm(hidden)), context, routing))
        hidden = hidden + torch.tanh(self.attention_gate).to(hidden.dtype) * read
        change = self.down(F.gelu(self.up(self.ffn_norm(hidden))))
        changed: Tensor = hidden + torch.tanh(self.ffn_gate).to(hidden.dtype) * change
        return changed

    def _attend(self, query: Tensor, context: Context, routing: Routing | Packed | None) -> Tensor:
        keys, values = (part.to(query.dtype) for part in context)
        if isinstance(routing, Packed):
            split = query[0].view(query.shape[1], self.heads, -1)
            return read_packed(split, keys, values, routing).flatten(1)[None]
        flat = query.flatten(0, 1)
        grouped = query if routing is None else flat[routing.gather]
        read = F.scaled_dot_product_attention(self._split(grouped), keys, values)
        joined = read.transpose(1, 2).reshape(*grouped.shape)
        if routing is None:
            return joined
        back = joined.flatten(0, 1)[routing.scatter]
        return back.masked_fill(routing.silent[:, None], 0).reshape(query.shape)

    def _split(self, tensor: Tensor) -> Tensor:
        """[N, L, width] to [N, heads, L, head width]."""
        return tensor.view(*tensor.shape[:2], self.heads, -1).transpose(1, 2)


def _state_mlp(shape: BridgeShape) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(shape.state, shape.state_mlp),
        nn.GELU(),
        nn.Linear(shape.state_mlp, shape.state),
    )


@torch.no_grad()
def initialise(bridge: Bridge, generator: torch.Generator | None = None) -> None:
    """Start values of a bridge: every matrix scaled by its fan-in, gates at their start.

    The tied keys start with the query's own matrix, so that a square's token finds its square
    before anything is learnt.
    """
    for module in bridge.modules():
        if isinstance(module, nn.Linear):
            _normal(module.weight, module.in_features**-0.5, generator)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.Embedding):
            _normal(module.weight, 0.1, generator)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(module.weight)
    if bridge.reader.side is not None:
        _normal(bridge.reader.side, 0.5, generator)
    if bridge.square_query is not None:
        bridge.square_query.weight.copy_(bridge.query.weight)
    bridge.attention_gate.fill_(bridge.gate_init)
    bridge.ffn_gate.fill_(bridge.gate_init)


def _normal(tensor: Tensor, std: float, generator: torch.Generator | None) -> None:
    nn.init.normal_(tensor, std=std, generator=generator)
