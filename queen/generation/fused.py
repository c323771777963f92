"""A decode step with few calls, for decoders of Llama's build (SmolLM3 among them).

It copies the weights once, with query, key and value, and gate and up projections joined and the
bridges' gates multiplied in, and keeps keys and values in buffers allocated beforehand. Tested
against the model's own forward. Which calls are used was measured on CPUs: for a single query,
batched matrix products beat scaled_dot_product_attention twice in fp32 and many times in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from queen.networks.bridge import Bridge, Context
from queen.networks.queen import QueenModel

FAMILIES = ("llama", "smollm3")


def supports(model: QueenModel) -> bool:
    """Whether a model's decoder is of a build that this module knows in every detail."""
    config = model.config.decoder()
    plain = not any(
        getattr(config, name, False)
        for name in ("attention_bias", "mlp_bias", "use_sliding_window")
    )
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    silu = getattr(config, "hidden_act", "") == "silu"
    return config.model_type in FAMILIES and plain and silu and rope == "default"


@dataclass
class _Bridge:
    """A bridge's weights, the attention's scale and both gates multiplied in."""

    norm: Tensor
    query: Tensor
    out: Tensor
    ffn_norm: Tensor
    up: Tensor
    down: Tensor
    heads: int


@dataclass
class _Layer:
    """A decoder layer's weights, and the bridge before it."""

    bridge: _Bridge | None
    norm: Tensor
    qkv: Tensor
    out: Tensor
    ffn_norm: Tensor
    gate_up: Tensor
    down: Tensor
    rope: bool


class FusedStepper:
    """See `Stepper`; buffers are [2, slots, key heads, length, head width] for each layer."""

    def __init__(self, model: QueenModel, dtype: torch.dtype, bridged: bool) -> None:
        config = model.config.decoder()
        body = model.decoder.model
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps: float = config.rms_norm_eps
        self.dtype, self.device = dtype, model.device
        bridges = dict(zip(model.config.bridge_layers, model.blocks, strict=True))
        self.layers = [
            self._layer(layer, bridges.get(index) if bridged else None)
            for index, layer in enumerate(body.layers)
        ]
        self.embedding = self._own(body.embed_tokens.weight)
        self.norm = self._own(body.norm.weight)
        tied = model.decoder.lm_head.weight is body.embed_tokens.weight
        self.lm_head = self.embedding if tied else self._own(model.decoder.lm_head.weight)
        self.rotary = body.rotary_emb
        turning = self.heads + self.kv_heads
        self.kinds = torch.tensor([0] * turning + [1] * self.kv_heads, device=self.device)
        self.cache: list[Tensor] = []
        self.crosses: list[tuple[Tensor, Tensor]] = []

    def open(self, slots: int, length: int, context: list[Context] | None) -> None:
        shape = (2, slots, self.kv_heads, length, self.head)
        self.cache = [self._zeros(*shape) for _ in self.layers]
        self.crosses = [
            (self._zeros(slots, *part.keys.shape[1:]), self._zeros(slots, *part.values.shape[1:]))
            for part in context or ()
        ]
        self.bias = torch.full((slots, length), -torch.inf, dtype=self.dtype, device=self.device)
        self.cos, self.sin = self._rotations(length)
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
        for (keys, values), part in zip(self.crosses, context or (), strict=True):
            keys[slots], values[slots] = part.keys.to(self.dtype), part.values.to(self.dtype)
        hidden, reads = self.embedding[ids], iter(context or ())
        for layer, buffer in zip(self.layers, self.cache, strict=True):
            if layer.bridge is not None:
                hidden = self._cross_prompt(layer.bridge, hidden, next(reads))
            hidden = self._layer_prompt(layer, buffer, slots, hidden)
        last = hidden[torch.arange(len(ids), device=self.device), lengths - 1]
        return self._logits(last)

    def step(self, tokens: Tensor, lengths: Tensor, longest: int) -> Tensor:
        count, seen = len(tokens), longest + 1
        self.bias.scatter_(1, lengths[:, None], 0)
        group = self.heads // self.kv_heads
        bias = self.bias[:, None, None, :seen].expand(count, self.kv_heads, group, seen)
        bias = bias.reshape(count * self.kv_heads, group, seen)
        cos, sin = self.cos[lengths][:, self.kinds], self.sin[lengths][:, self.kinds]
        rows = self.rows + lengths.repeat_interleave(2 * self.kv_heads)
        hidden, reads = self.embedding[tokens], iter(self.crosses)
        for layer, buffer in zip(self.layers, self.cache, strict=True):
            if layer.bridge is not None:
                hidden = self._cross_step(layer.bridge, hidden, *next(reads))
            qkv = F.linear(self._rms(hidden, layer.norm), layer.qkv).view(count, -1, self.head)
            if layer.rope:
                qkv = self._rotated(qkv, cos, sin)
            query = qkv[:, : self.heads].reshape(-1, group, self.head)
            fresh = qkv[:, self.heads :].reshape(-1, self.head)
            buffer.view(-1, self.head).index_copy_(0, rows, fresh)
            keys, values = buffer.flatten(1, 2)[:, :, :seen]
            read = _attend(query, keys, values, bias).view(count, -1)
            hidden = torch.addmm(hidden, read, layer.out)
            hidden = self._feed(layer, hidden)
        return self._logits(hidden)

    def _cross_step(self, bridge: _Bridge, hidden: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        query = F.linear(self._rms(hidden, bridge.norm, 1e-6), bridge.query)
        width = keys.shape[-1]
        scores = torch.bmm(query.view(-1, 1, width), keys.flatten(0, 1).transpose(1, 2))
        read = torch.bmm(torch.softmax(scores, -1), values.flatten(0, 1)).view(len(hidden), -1)
        hidden = torch.addmm(hidden, read, bridge.out)
        return self._cross_feed(bridge, hidden)

    def _cross_prompt(self, bridge: _Bridge, hidden: Tensor, context: Context) -> Tensor:
        keys, values = context.keys.to(self.dtype), context.values.to(self.dtype)
        query = F.linear(self._rms(hidden, bridge.norm, 1e-6), bridge.query)
        split = query.view(*hidden.shape[:2], bridge.heads, -1).transpose(1, 2)
        read = F.scaled_dot_product_attention(split, keys, values, scale=1.0)
        hidden = hidden + read.transpose(1, 2).flatten(2) @ bridge.out
        return self._cross_feed(bridge, hidden.flatten(0, 1)).view_as(hidden)

    def _layer_prompt(self, layer: _Layer, buffer: Tensor, slots: Tensor, hidden: Tensor) -> Tensor:
        count, length, _ = hidden.shape
        qkv = F.linear(self._rms(hidden, layer.norm), layer.qkv).view(count, length, -1, self.head)
        if layer.rope:
            cos, sin = self.cos[:length, self.kinds], self.sin[:length, self.kinds]
            qkv = self._rotated(qkv, cos, sin)
        parts = [self.heads, self.kv_heads, self.kv_heads]
        query, keys, values = torch.split(qkv.transpose(1, 2), parts, dim=1)
        buffer[0, slots, :, :length], buffer[1, slots, :, :length] = keys, values
        read = F.scaled_dot_product_attention(
            query, keys, values, is_causal=True, scale=1.0, enable_gqa=self.heads != self.kv_heads
        )
        hidden = hidden + read.transpose(1, 2).flatten(2) @ layer.out
        return self._feed(layer, hidden.flatten(0, 1)).view_as(hidden)

    def _feed(self, layer: _Layer, hidden: Tensor) -> Tensor:
        gate, up = F.linear(self._rms(hidden, layer.ffn_norm), layer.gate_up).chunk(2, -1)
        return torch.addmm(hidden, F.silu(gate) * up, layer.down)

    def _cross_feed(self, bridge: _Bridge, hidden: Tensor) -> Tensor:
        inner = F.gelu(F.linear(self._rms(hidden, bridge.ffn_norm, 1e-6), bridge.up))
        return torch.addmm(hidden, inner, bridge.down)

    def _logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self._rms(hidden, self.norm), self.lm_head).float()

    def _rms(self, hidden: Tensor, weight: Tensor, eps: float | None = None) -> Tensor:
        return F.rms_norm(hidden, weight.shape, weight, self.eps if eps is None else eps)

    def _rotated(self, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotary positions on queries and keys; the values' cosine is 1 and sine 0."""
        turned = heads.view(*heads.shape[:-1], 2, -1).flip(-2).view_as(heads)
        return torch.addcmul(heads * cos, turned, sin)

    def _index(self) -> None:
        """Where slot b's key head j, then its value head j, begins in a buffer's flat rows."""
        _, slots, heads, length, _ = self.cache[0].shape
        row = torch.arange(2 * slots * heads, device=self.device).view(2, slots, heads) * length
        self.rows = row.transpose(0, 1).reshape(-1)

    def _layer(self, layer: Any, bridge: Bridge | None) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        scaled = attention.q_proj.weight.float() * self.head**-0.5
        joined = torch.cat(
            [scaled, attention.k_proj.weight.float(), attention.v_proj.weight.float()]
        )
        return _Layer(
            bridge=None if bridge is None else self._bridge(bridge),
            norm=self._own(layer.input_layernorm.weight),
            qkv=self._own(joined),
            out=self._own(attention.o_proj.weight.T),
            ffn_norm=self._own(layer.post_attention_layernorm.weight),
            gate_up=self._own(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])),
            down=self._own(mlp.down_proj.weight.T),
            rope=bool(getattr(attention, "use_rope", True)),
        )

    def _bridge(self, bridge: Bridge) -> _Bridge:
        scale = (bridge.query.out_features // bridge.heads) ** -0.5
        gates = torch.tanh(bridge.attention_gate.float()), torch.tanh(bridge.ffn_gate.float())
        return _Bridge(
            norm=self._own(bridge.norm.weight),
            query=self._own(bridge.query.weight.float() * scale),
            out=self._own(gates[0] * bridge.out.weight.float().T),
            ffn_norm=self._own(bridge.ffn_norm.weight),
            up=self._own(bridge.up.weight),
            down=self._own(gates[1] * bridge.down.weight.float().T),
            heads=bridge.heads,
        )

    def _rotations(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosine and signed sine [length, 2, head width]: of what turns, and of what does not."""
        positions = torch.arange(length, device=self.device)[None]
        cos, sin = self.rotary(torch.zeros(1, device=self.device), positions)
        half = self.head // 2
        signed = torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)
        cosines = torch.stack([cos[0], torch.ones_like(cos[0])], 1)
        return self._own(cosines), self._own(torch.stack([signed, torch.zeros_like(signed)], 1))

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def _own(self, weight: Tensor) -> Tensor:
        """A contiguous copy in the stepper's type, apart from the model's."""
        return weight.detach().to(self.dtype, copy=True).contiguous()


def _attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """[N, group, head width] of one query a head, scaled already; bias [N, group, L]."""
    scores = torch.baddbmm(bias, query, keys.transpose(1, 2))
    return torch.bmm(torch.softmax(scores, -1), values)
