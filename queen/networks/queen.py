"""QUEEN: any Hugging Face decoder-only language model that reads a chess network's states.

Source: METHOD section 1, Architecture. The encoder is no part of the checkpoint: its digest is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from queen.networks.bridge import SQUARES, Bridge, BridgeShape, Context, Routing, initialise, route
from queen.networks.errors import NetworkError
from queen.networks.freezing import (
    HEAD_ROWS,
    PARTS,
    ROWS,
    freeze,
    parameter_groups,
    take_in_rows,
    thaw,
)
from queen.networks.packed import Packed, packed_attention

__all__ = [
    "PARTS",
    "QueenConfig",
    "QueenModel",
    "decoder_layers",
    "freeze",
    "parameter_groups",
    "thaw",
]


class QueenConfig(PretrainedConfig):  # type: ignore[misc]
    """Everything needed to rebuild a model but its weights.

    Attributes:
        decoder_config: the decoder's own Hugging Face config, `model_type` included.
        bridge_layers: the decoder layer each bridge stands before, ascending.
        bridge_states: the encoder state e_i each bridge reads.
        encoder_name, encoder_digest: the frozen encoder the bridges were trained on.
        encoder_states: how many states the encoder has.
        state_width: width C of a state.
        square_ids, piece_ids: token ids of a1..h8 and of P N B R Q K p n b r q k.
        end_id, pad_id: tokens that end an answer and fill a batch.

    The remaining attributes are those of `BridgeShape`. A model without bridges reads no encoder:
    whoever makes a prompt for it writes the FEN there (METHOD section 1, ablations).
    """

    model_type = "queen"

    decoder_config: dict[str, Any] | None = None
    bridge_layers: list[int] | None = None
    bridge_states: list[int] | None = None
    bridge_width: int = 128
    bridge_heads: int = 4
    bridge_ffn: int = 256
    tied_keys: bool = True
    state_mlp: int = 256
    gate_init: float = 0.0
    tied_values: bool = False
    side_to_move: bool = False
    encoder_name: str = ""
    encoder_digest: str = ""
    encoder_states: int = 0
    state_width: int = 64
    square_ids: list[int] | None = None
    piece_ids: list[int] | None = None
    end_id: int = 0
    pad_id: int = 0

    @property
    def reads_fen(self) -> bool:
        """Whether prompts must give the position as text, for there is no bridge."""
        return not self.bridge_layers

    def decoder(self) -> PretrainedConfig:
        """The decoder's config as an object."""
        return AutoConfig.for_model(**(self.decoder_config or {}))

    def shape(self) -> BridgeShape:
        """The shape every bridge shares."""
        return BridgeShape(
            hidden=self.decoder().hidden_size,
            state=self.state_width,
            width=self.bridge_width,
            heads=self.bridge_heads,
            ffn=self.bridge_ffn,
            tied_keys=self.tied_keys,
            state_mlp=self.state_mlp,
            gate_init=self.gate_init,
            tied_values=self.tied_values,
            side_to_move=self.side_to_move,
        )


class _Port:
    """Hands the context of the running forward to one bridge, ahead of its decoder layer.

    A forward pre-hook and not a wrapper, so that the decoder keeps its own parameter names.
    """

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.context: Context | None = None
        self.routing: Routing | Packed | None = None

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if self.context is None:
            return None
        if args:
            return (self.bridge(args[0], self.context, self.routing), *args[1:]), kwargs
        kwargs["hidden_states"] = self.bridge(kwargs["hidden_states"], self.context, self.routing)
        return args, kwargs


class QueenModel(PreTrainedModel):  # type: ignore[misc]
    """A decoder with bridges before some of its layers.

    Before training, with gates at 0, its logits are the decoder's own, bit for bit.

    Args:
        config: what is built.
        decoder: a decoder that is there already, taken over as it is; by default a new one.
    """

    config_class = QueenConfig
    base_model_prefix = "decoder"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _no_split_modules = ["Bridge"]  # noqa: RUF012
    _keys_to_ignore_on_load_unexpected = [ROWS, HEAD_ROWS]  # noqa: RUF012

    def __init__(self, config: QueenConfig, decoder: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        _check(config)
        self.frozen_parts: tuple[str, ...] = ()
        self.decoder = decoder or AutoModelForCausalLM.from_config(config.decoder())
        shape = config.shape()
        self.bridges = nn.ModuleList(Bridge(shape) for _ in config.bridge_layers or ())
        self._ports = [_Port(bridge) for bridge in self.blocks]
        layers = decoder_layers(self.decoder)
        for index, port in zip(config.bridge_layers or (), self._ports, strict=True):
            layers[index].register_forward_pre_hook(port, with_kwargs=True)
        self.post_init()

    @classmethod
    def from_pretrained(cls, source: Any, *args: Any, **kwargs: Any) -> Any:
        """As Hugging Face's; a model saved while rows of it trained on their own is whole again."""
        loaded = super().from_pretrained(source, *args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        if Path(source).is_dir():
            take_in_rows(model, Path(source))
        return loaded

    @property
    def blocks(self) -> list[Bridge]:
        """The bridges, in the order of their layers."""
        return [cast(Bridge, bridge) for bridge in self.bridges]

    def forward(
        self,
        input_ids: Tensor,
        states: Sequence[Tensor] | None = None,
        *,
        context: Sequence[Context] | None = None,
        rows: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: Any = None,
        logits_to_keep: int | Tensor = 0,
    ) -> Tensor:
        """Logits [B, T, vocabulary].

        Args:
            input_ids: [B, T].
            states: one [N, 64, C + 1] for each bridge, as `Expert.states` gives them. None, and no
                context: the decoder alone.
            context: what `context(states)` gave, in place of states.
            rows: [B, T] the position (0..N-1) that each token reads, -1 for none; by default row b
                of the batch reads position b.
            attention_mask: [B, S], or [B, 1, T, S] as the decoder's attention takes it (additive,
                or boolean under sdpa).
            position_ids: [B, T].
            cache: a Hugging Face cache for self-attention, extended in place.
            logits_to_keep: as in Hugging Face: the last n, or these indices, of T.
        """
        if states is not None:
            context = self.context(states)
        routing = route(rows, len(context[0].keys)) if context and rows is not None else None
        with _Reading(self._ports, context, routing):
            output = self.decoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                position_ids=position_ids,
                cache=cache,
                use_cache=cache is not None,
                logits_to_keep=logits_to_keep,
            )
        logits: Tensor = output.logits
        return logits

    def packed(
        self, input_ids: Tensor, packed: Packed, states: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Logits [1, T, vocabulary] of sequences end to end, none of which sees another.

        Args:
            input_ids: [1, T].
            states: one [N, 64, C] for each bridge, N being the positions that `packed` names;
                None for the decoder alone.
        """
        context = None if states is None else self.context(states)
        with packed_attention(self.decoder), _Reading(self._ports, context, packed):
            output = self.decoder(
                input_ids=input_ids,
                position_ids=packed.places(input_ids.device),
                packed=packed,
                use_cache=False,
            )
        logits: Tensor = output.logits
        return logits

    def context(self, states: Sequence[Tensor]) -> list[Context]:
        """Keys and values of each bridge for N positions; states as in `forward`."""
        if len(states) != len(self.bridges):
            raise NetworkError(
                f"{len(states)} states given to {len(self.bridges)} bridges",
                remedy="give one state for each bridge, as config.bridge_states names them",
            )
        squares = self.square_embeddings()
        return [
            bridge.read(state.to(squares.dtype), squares)
            for bridge, state in zip(self.blocks, states, strict=True)
        ]

    def square_embeddings(self) -> Tensor:
        """[64, hidden] embeddings of the square tokens."""
        embedding = self.decoder.get_input_embeddings()
        ids = torch.tensor(self.config.square_ids, device=_weight(embedding).device)
        squares: Tensor = embedding(ids)
        return squares

    def bridge_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of the bridges, gates included."""
        return iter(self.bridges.parameters())

    def gate_values(self) -> dict[str, float]:
        """tanh of every gate, by "attention.<bridge>" and "ffn.<bridge>"."""
        values = {}
        for index, bridge in enumerate(self.blocks):
            values[f"attention.{index}"] = float(torch.tanh(bridge.attention_gate.detach()))
            values[f"ffn.{index}"] = float(torch.tanh(bridge.ffn_gate.detach()))
        return values

    def get_input_embeddings(self) -> nn.Module:
        embedding: nn.Module = self.decoder.get_input_embeddings()
        return embedding

    def get_output_embeddings(self) -> nn.Module:
        head: nn.Module = self.decoder.get_output_embeddings()
        return head

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, Bridge) and not module.query.weight.is_meta:
            initialise(module)


class _Reading:
    """Opens every port for the length of one forward."""

    def __init__(
        self,
        ports: list[_Port],
        context: Sequence[Context] | None,
        routing: Routing | Packed | None,
    ) -> None:
        self.ports, self.context, self.routing = ports, context, routing

    def __enter__(self) -> None:
        for port, context in zip(self.ports, self.context or (), strict=bool(self.context)):
            port.context, port.routing = context, self.routing

    def __exit__(self, *_: object) -> None:
        for port in self.ports:
            port.context = port.routing = None


def decoder_layers(decoder: nn.Module) -> nn.ModuleList:
    """The list of a decoder-only model's layers, wherever its family keeps it."""
    body = getattr(decoder, getattr(decoder, "base_model_prefix", "") or "model", decoder)
    for name in ("layers", "h", "blocks"):
        found = getattr(body, name, None)
        if isinstance(found, nn.ModuleList):
            return found
    raise NetworkError(
        "no list of layers found in this decoder",
        where=type(decoder).__name__,
        remedy="use a decoder-only model that keeps its layers in model.layers or transformer.h",
    )


def _weight(module: nn.Module) -> nn.Parameter:
    return cast(nn.Parameter, module.weight)


def _check(config: QueenConfig) -> None:
    layers, states = config.bridge_layers or [], config.bridge_states or []
    depth = config.decoder().num_hidden_layers
    faults = {
        "bridge_states": len(states) != len(layers),
        "bridge_layers": sorted(set(layers)) != layers or any(not 0 <= i < depth for i in layers),
        "bridge_width": config.bridge_width % config.bridge_heads != 0,
        "square_ids": len(config.square_ids or ()) != SQUARES,
    }
    if config.encoder_states:
        faults["bridge_states"] |= any(not 0 <= state < config.encoder_states for state in states)
    for field, wrong in faults.items():
        if wrong:
            raise NetworkError(
                f"{field} = {getattr(config, field)!r} does not fit",
                where="QueenConfig",
                remedy=f"the decoder has {depth} layers, the encoder {config.encoder_states} states"
                "; name layers ascending, one state for each, a width that the heads divide",
            )
