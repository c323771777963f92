"""A packed row through a decoder of Llama's build (SmolLM3 among them) in few calls, to train it.

The same function as the model's own forward, up to rounding, with what costs most on a CPU left
out: norms' weights and gates are multiplied into the matrices beside them, what several products
share is cast once, and the last norm sees only tokens whose logits are asked for
(benchmarks/train_packing.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from queen.networks.bridge import Bridge, Context
from queen.networks.packed import Packed, attend_packed, read_packed
from queen.networks.queen import QueenModel

FAMILIES = ("llama", "smollm3")


def supports(model: QueenModel) -> bool:
    """Whether a model's decoder is of a build that is known here in every detail."""
    config = model.decoder.config
    plain = not any(
        getattr(config, name, False)
        for name in ("attention_bias", "mlp_bias", "use_sliding_window")
    )
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    silu = getattr(config, "hidden_act", "") == "silu"
    return config.model_type in FAMILIES and plain and silu and rope == "default"


def trains_packed(model: QueenModel) -> bool:
    """Whether `PackedForward` is to train a model: on a CPU, its float32 weights undivided."""
    dropout = getattr(model.decoder.config, "attention_dropout", 0.0)
    divided = any(hasattr(each, "ds_id") for each in model.parameters())  # ZeRO 3
    here = model.device.type == "cpu" and model.dtype == torch.float32
    return here and not divided and not dropout and supports(model)


class PackedForward:
    """One packed row through a model's layers.

    Args:
        context: what the bridges read; None for the decoder alone.
    """

    def __init__(
        self, model: QueenModel, packed: Packed, context: Sequence[Context] | None
    ) -> None:
        self.model, self.packed, self.body = model, packed, model.decoder.model
        self.type = _computed_in(model)
        self.bridges = dict(zip(model.config.bridge_layers or (), model.blocks, strict=True))
        self.context = dict(zip(self.bridges, context or (), strict=context is not None))

    def logits(self, ids: Tensor, places: Tensor) -> Tensor:
        """Logits [K, vocabulary] at K places of the row [T] of ids."""
        hidden = self.body.embed_tokens(ids)
        self.turns = self._turns(hidden)
        for index, layer in enumerate(self.body.layers):
            step = partial(self._layer, layer, self.bridges.get(index), self.context.get(index))
            recompute = layer.gradient_checkpointing
            hidden = checkpoint(step, hidden, use_reentrant=False) if recompute else step(hidden)
        asked = self.body.norm(hidden.index_select(0, places))
        logits: Tensor = self.model.decoder.lm_head(asked)
        return logits

    def _layer(
        self, layer: Any, bridge: Bridge | None, context: Context | None, hidden: Tensor
    ) -> Tensor:
        # All number types are said here; a function mode would cost at each of the many calls.
        with torch.autocast("cpu", enabled=False), torch._C.DisableTorchFunction():
            if bridge is not None and context is not None:
                hidden = self._bridge(bridge, context, hidden)
            hidden = hidden + self._attention(layer.self_attn, layer.input_layernorm, hidden)
            return hidden + self._feed(layer.mlp, layer.post_attention_layernorm, hidden)

    def _bridge(self, bridge: Bridge, context: Context, hidden: Tensor) -> Tensor:
        unit = self._unit(hidden, bridge.norm.eps)
        query = self._linear(unit, bridge.query.weight * bridge.norm.weight).float()
        split = query.view(len(query), bridge.heads, -1)
        read = read_packed(split, context.keys.float(), context.values.float(), self.packed)
        gate = torch.tanh(bridge.attention_gate)
        hidden = hidden + self._linear(read.flatten(1), gate * bridge.out.weight)
        unit = self._unit(hidden, bridge.ffn_norm.eps)
        inner = F.gelu(self._linear(unit, bridge.up.weight * bridge.ffn_norm.weight))
        return hidden + self._linear(inner, torch.tanh(bridge.ffn_gate) * bridge.down.weight)

    def _attention(self, attention: Any, norm: Any, hidden: Tensor) -> Tensor:
        unit = self._unit(hidden, norm.variance_epsilon)
        query, keys, values = (
            self._linear(unit, each.weight * norm.weight).view(len(unit), -1, attention.head_dim)
            for each in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        if getattr(attention, "use_rope", True):
            query, keys = self._turned(query), self._turned(keys)
        read = attend_packed(query.float(), keys.float(), values.float(), self.packed)
        return self._linear(read.flatten(1), attention.o_proj.weight)

    def _feed(self, mlp: Any, norm: Any, hidden: Tensor) -> Tensor:
        unit = self._unit(hidden, norm.variance_epsilon)
        gate = F.silu(self._linear(unit, mlp.gate_proj.weight * norm.weight))
        up = self._linear(unit, mlp.up_proj.weight * norm.weight)
        return self._linear(gate * up, mlp.down_proj.weight)

    def _unit(self, hidden: Tensor, eps: float | None) -> Tensor:
        unit: Tensor = _Unit.apply(hidden, eps, self.type)  # type: ignore[no-untyped-call]
        return unit

    def _turned(self, heads: Tensor) -> Tensor:
        turned: Tensor = _Turned.apply(heads, *self.turns)  # type: ignore[no-untyped-call]
        return turned

    def _linear(self, inputs: Tensor, weight: Tensor) -> Tensor:
        return F.linear(inputs.to(self.type), weight.to(self.type))

    def _turns(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine [T, 1, half a head] of each token's rotation."""
        places = self.packed.places(hidden.device)
        both = self.body.rotary_emb(hidden.float()[None], places)
        cos, sin = (each[0, :, None, : each.shape[-1] // 2] for each in both)
        return cos, sin


class _Unit(torch.autograd.Function):
    """Rows of root mean square 1, in another number type."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, eps: float, kind: torch.dtype) -> Tensor:
        norm: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
        scale = norm.square_().div_(rows.shape[-1]).add_(eps).rsqrt_()
        unit: Tensor = (rows * scale).to(kind)
        ctx.save_for_backward(unit, scale)
        return unit

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        unit, scale = ctx.saved_tensors
        gradient, unit = gradients[0].float(), unit.float()
        mean = (gradient * unit).mean(-1, keepdim=True)
        return torch.addcmul(gradient, unit, mean, value=-1).mul_(scale), None, None


class _Turned(torch.autograd.Function):
    """Heads [T, heads, width] turned by rotary positions, in float32."""

    @staticmethod
    def forward(ctx: Any, heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.kind = heads.dtype
        return _turned(heads.float(), cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(gradients[0], cos, sin, -1).to(ctx.kind), None, None


def _turned(heads: Tensor, cos: Tensor, sin: Tensor, way: int) -> Tensor:
    """Each pair (i, i + half) of a head turned forth (1) or back (-1)."""
    turned = torch.empty_like(heads)
    (first, second), (to_first, to_second) = heads.chunk(2, -1), turned.chunk(2, -1)
    torch.mul(first, cos, out=to_first).addcmul_(second, sin, value=-way)
    torch.mul(second, cos, out=to_second).addcmul_(first, sin, value=way)
    return turned


def _computed_in(model: QueenModel) -> torch.dtype:
    """What products are computed in: autocast's type where it is on, else the weights'."""
    if torch.is_autocast_enabled("cpu"):
        kind: torch.dtype = torch.get_autocast_dtype("cpu")
        return kind
    return cast(torch.dtype, model.dtype)
