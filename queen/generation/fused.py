"""A decode step of few calls, for decoders of Llama's build (SmolLM3 among them).

It copies the weights once, with the projections that share an input joined and norms, scales and
gates multiplied into them, and keeps keys and values in buffers allocated beforehand. Tested
against the model's own forward. Each call was chosen by measuring on CPUs: for a single query,
batched matrix products in float32 beat scaled_dot_product_attention twofold, and every bfloat16
attention by more; so on CPUs `dtype` is that of the weights and logits alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from queen.networks.bridge import Bridge, Context
from queen.networks.queen import QueenModel


@dataclass
class _Bridge:
    """A bridge's weights; norms and the attention's scale stand in `query` and `up`, gates in
    `out` and `down`. `eps` is what the norm adds, as `_unit` takes it.
    """

    query: Tensor
    out: Tensor
    up: Tensor
    down: Tensor
    heads: int
    eps: Tensor


@dataclass
class _Layer:
    """A decoder layer's weights, folded likewise, and the bridge before it."""

    bridge: _Bridge | None
    qkv: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor
    rope: bool


class FusedStepper:
    """See `Stepper`; buffers are [2, slots, key heads, length, head width] for each layer.

    Args:
        model: its weights are copied.
        dtype: of the weights and logits.
        bridged: whether there is anything to read for the bridges.
        inner: of what flows between the products and of the caches: float32 on CPUs, `dtype`
            elsewhere, unless said.
    """

    def __init__(
        self,
        model: QueenModel,
        dtype: torch.dtype,
        bridged: bool,
        inner: torch.dtype | None = None,
    ) -> None:
        config = model.config.decoder()
        body = model.decoder.model
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.dtype, self.device = dtype, model.device
        self.inner = inner or (torch.float32 if self.device.type == "cpu" else dtype)
        self.norm_eps: float = config.rms_norm_eps
        self.eps = self._eps(config.hidden_size, config.rms_norm_eps)
        bridges = dict(zip(model.config.bridge_layers or (), model.blocks, strict=True))
        self.layers = [
            self._layer(layer, bridges.get(index) if bridged else None)
            for index, layer in enumerate(body.layers)
        ]
        self.embedding = self._own(body.embed_tokens.weight)
        tied = model.decoder.lm_head.weight is body.embed_tokens.weight
        self.lm_head = self.embedding if tied else self._own(model.decoder.lm_head.weight)
        self.norm = body.norm.weight.detach().to(self.inner, copy=True)
        self.rotary = body.rotary_emb
        turning = self.heads + self.kv_heads
        self.kinds = torch.tensor([0] * turning + [1] * self.kv_heads, device=self.device)
        self.cache: list[Tensor] = []
        self.crosses: list[tuple[Tensor, Tensor]] = []

    def open(self, slots: int, length: int, context: list[Context] | None) -> None:
        shape = (2, slots, self.kv_heads, length, self.head)
        self.cache = [self._zeros(*shape) for _ in self.layers]
        self.crosses = [
            (self._zeros(slots, *_turned(keys).shape[1:]), self._zeros(slots, *values.shape[1:]))
            for keys, values in context or ()
        ]
        self.bias = torch.full((slots, length), -torch.inf, dtype=self.inner, device=self.device)
        self.turns = self._turns(length)
        self._index()

    def keep(self, slots: Tensor) -> None:
        self.cache = [buffer.index_select(1, slots) for buffer in self.cache]
        self.crosses = [(keys[slots], values[slots]) for keys, values in self.crosses]
        self.bias = self.bias[slots]
        self._index()

    def prefill(
        self, slots: Tensor, ids: Tensor, lengths: Tensor, context: list[Context] | None
    ) -> Tensor:
        columns = torch.arange(self.bias.shape[1], device=self.device)
        self.bias[slots] = self.bias.new_zeros(()).where(columns < lengths[:, None], -torch.inf)
        read = [(keys.to(self.inner), values.to(self.inner)) for keys, values in context or ()]
        for (keys, values), (new_keys, new_values) in zip(self.crosses, read, strict=True):
            keys[slots], values[slots] = _turned(new_keys), new_values
        hidden, reads = self.embedding[ids].to(self.inner), iter(read)
        for layer, buffer in zip(self.layers, self.cache, strict=True):
            if layer.bridge is not None:
                hidden = self._cross_prompt(layer.bridge, hidden, *next(reads))
            hidden = self._layer_prompt(layer, buffer, slots, hidden)
        return self._logits(hidden[torch.arange(len(ids), device=self.device), lengths - 1])

    def step(self, tokens: Tensor, lengths: Tensor, longest: int) -> Tensor:
        count, seen = len(tokens), longest + 1
        self.bias.scatter_(1, lengths[:, None], 0)
        group = self.heads // self.kv_heads
        bias = self.bias[:, None, None, :seen].expand(count, self.kv_heads, group, seen)
        bias = bias.reshape(count * self.kv_heads, group, seen)
        turns = self.turns[lengths][:, self.kinds]
        rows = self.rows + lengths.repeat_interleave(2 * self.kv_heads)
        hidden, reads = self.embedding[tokens].to(self.inner), iter(self.crosses)
        for layer, buffer in zip(self.layers, self.cache, strict=True):
            if layer.bridge is not None:
                hidden = self._cross_step(layer.bridge, hidden, *next(reads))
            qkv = self._project(hidden, self.eps, layer.qkv).view(count, -1, self.head)
            qkv = _rotated(qkv, turns) if layer.rope else qkv
            query = qkv[:, : self.heads].reshape(-1, group, self.head)
            fresh = qkv[:, self.heads :].reshape(-1, self.head)
            buffer.view(-1, self.head).index_copy_(0, rows, fresh)
            keys, values = buffer.flatten(1, 2)[:, :, :seen]
            scores = torch.baddbmm(bias, query, keys.transpose(1, 2))
            read = torch.bmm(torch.softmax(scores, -1), values)
            hidden = self._added(hidden, read.view(count, -1), layer.out)
            hidden = self._feed(layer, hidden)
        return self._logits(hidden)

    def _cross_step(self, bridge: _Bridge, hidden: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query = self._project(hidden, bridge.eps, bridge.query).view(-1, 1, values.shape[-1])
        scores = torch.bmm(query, keys.flatten(0, 1))
        read = torch.bmm(torch.softmax(scores, -1), values.flatten(0, 1))
        hidden = self._added(hidden, read.view(len(hidden), -1), bridge.out)
        return self._cross_feed(bridge, hidden)

    def _cross_prompt(
        self, bridge: _Bridge, hidden: Tensor, keys: Tensor, values: Tensor
    ) -> Tensor:
        query = self._project(hidden, bridge.eps, bridge.query)
        split = query.view(*hidden.shape[:2], bridge.heads, -1).transpose(1, 2)
        read = F.scaled_dot_product_attention(split, keys, values, scale=1.0)
        joined, flat = read.transpose(1, 2).flatten(2).flatten(0, 1), hidden.flatten(0, 1)
        return self._cross_feed(bridge, self._added(flat, joined, bridge.out)).view_as(hidden)

    def _layer_prompt(self, layer: _Layer, buffer: Tensor, slots: Tensor, hidden: Tensor) -> Tensor:
        count, length, _ = hidden.shape
        qkv = self._project(hidden, self.eps, layer.qkv).view(count, length, -1, self.head)
        qkv = _rotated(qkv, self.turns[:length, self.kinds]) if layer.rope else qkv
        parts = [self.heads, self.kv_heads, self.kv_heads]
        query, keys, values = torch.split(qkv.transpose(1, 2), parts, dim=1)
        buffer[0, slots, :, :length], buffer[1, slots, :, :length] = keys, values
        read = F.scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=1.0, enable_gqa=self.heads != self.kv_heads
        )
        joined, flat = read.transpose(1, 2).flatten(2).flatten(0, 1), hidden.flatten(0, 1)
        return self._feed(layer, self._added(flat, joined, layer.out)).view_as(hidden)

    def _feed(self, layer: _Layer, hidden: Tensor) -> Tensor:
        gate, up = self._project(hidden, self.eps, layer.gate_up).chunk(2, -1)
        return self._added(hidden, F.silu(gate) * up, layer.down)

    def _cross_feed(self, bridge: _Bridge, hidden: Tensor) -> Tensor:
        inner = F.gelu(self._project(hidden, bridge.eps, bridge.up))
        return self._added(hidden, inner, bridge.down)

    def _logits(self, hidden: Tensor) -> Tensor:
        normed = F.rms_norm(hidden, self.norm.shape, self.norm, self.norm_eps)
        return F.linear(normed.to(self.dtype), self.lm_head).float()

    def _project(self, hidden: Tensor, eps: Tensor, weight: Tensor) -> Tensor:
        """RMS norm, then a weight that holds the norm's own and the root of the width."""
        unit = hidden / torch.hypot(torch.linalg.vector_norm(hidden, dim=-1, keepdim=True), eps)
        return F.linear(unit.to(self.dtype), weight).to(self.inner)

    def _added(self, hidden: Tensor, change: Tensor, weight: Tensor) -> Tensor:
        """hidden [N, d] + change @ weight."""
        if self.dtype == self.inner:
            return torch.addmm(hidden, change, weight)
        return hidden + torch.mm(change.to(self.dtype), weight)

    def _eps(self, width: int, eps: float) -> Tensor:
        """sqrt(width * eps): with it, hypot(norm, .) is sqrt(width) times the RMS norm's root."""
        return torch.tensor((width * eps) ** 0.5, dtype=self.inner, device=self.device)

    def _index(self) -> None:
        """Where slot b's key head j, then its value head j, begins in a buffer's flat rows."""
        _, slots, heads, length, _ = self.cache[0].shape
        row = torch.arange(2 * slots * heads, device=self.device).view(2, slots, heads) * length
        self.rows = row.transpose(0, 1).reshape(-1)

    def _layer(self, layer: Any, bridge: Bridge | None) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        query = self._paired(attention.q_proj.weight) * self.head**-0.5
        key, value = self._paired(attention.k_proj.weight), attention.v_proj.weight.float()
        return _Layer(
            bridge=None if bridge is None else self._bridge(bridge),
            qkv=self._normed(torch.cat([query, key, value]), layer.input_layernorm),
            out=self._own(attention.o_proj.weight.T),
            gate_up=self._normed(
                torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
                layer.post_attention_layernorm,
            ),
            down=self._own(mlp.down_proj.weight.T),
            rope=bool(getattr(attention, "use_rope", True)),
        )

    def _bridge(self, bridge: Bridge) -> _Bridge:
        scale = (bridge.query.out_features // bridge.heads) ** -0.5
        gates = torch.tanh(bridge.attention_gate.float()), torch.tanh(bridge.ffn_gate.float())
        return _Bridge(
            query=self._normed(bridge.query.weight.float() * scale, bridge.norm),
            out=self._own(gates[0] * bridge.out.weight.float().T),
            up=self._normed(bridge.up.weight, bridge.ffn_norm),
            down=self._own(gates[1] * bridge.down.weight.float().T),
            heads=bridge.heads,
            eps=self._eps(bridge.query.in_features, bridge.norm.eps or 0.0),
        )

    def _normed(self, weight: Tensor, norm: Any) -> Tensor:
        """A weight behind a norm, with the norm's weight and the root of the width in it."""
        return self._own(weight.float() * norm.weight.float() * weight.shape[1] ** 0.5)

    def _paired(self, weight: Tensor) -> Tensor:
        """A query or key projection, each head's rows i and i + half side by side: see `_turns`."""
        heads = weight.float().view(-1, 2, self.head // 2, weight.shape[1])
        return heads.transpose(1, 2).reshape(weight.shape)

    def _turns(self, length: int) -> Tensor:
        """Rotary positions as complex numbers [length, 2, half a head]: of queries and keys, and
        of values, which do not turn.
        """
        positions = torch.arange(length, device=self.device)[None]
        cos, sin = self.rotary(torch.zeros(1, device=self.device), positions)
        turns = torch.complex(cos[0].float(), sin[0].float())[:, : self.head // 2]
        return torch.stack([turns, torch.ones_like(turns)], 1)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.inner, device=self.device)

    def _own(self, weight: Tensor) -> Tensor:
        """A contiguous copy in the stepper's type, apart from the model's."""
        return weight.detach().to(self.dtype, copy=True).contiguous()


def _rotated(heads: Tensor, turns: Tensor) -> Tensor:
    """Heads [..., width] turned by complex [..., width / 2]."""
    pairs = torch.view_as_complex(heads.float().view(*heads.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2).to(heads.dtype)


def _turned(keys: Tensor) -> Tensor:
    """[N, heads, 64, width] to [N, heads, width, 64], contiguous."""
    return keys.transpose(2, 3).contiguous()
