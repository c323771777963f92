"""How many parameters a QUEEN has, part by part, without a single weight: on the meta device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import chess
import torch
from torch import nn

from queen.networks.build import EncoderInfo, Vocabulary, queen_config
from queen.networks.freezing import freeze
from queen.networks.queen import QueenModel, decoder_layers
from queen.networks.settings import BridgeSettings

CHESS_TOKENS = len(chess.SQUARES) + 12


@dataclass(frozen=True)
class Counts:
    """Parameters, tied ones once.

    Attributes:
        decoder: of the language model, its grown vocabulary included.
        table: of them the embedding's.
        tied: whether the output head is the table itself.
        bridge: of the plain bridges: norms, query, key, value and output projections, feed-forward
            and gates.
        tied_keys, tied_values, state_mlp, side_to_move: of the additions of ours; 0 where they are
            off. With tied keys go the values' learned positions, unless those are tied too.
        readers: of bridge and additions, what works on the 64 squares of each position and not on
            every token. What is tied does neither: it is made once for a whole batch.
        trained: of what trains in each stage, by the stage's name.
        width, layers, bridges: of the decoder, and how many bridges.
        heads_width, kv_width, ffn, bridge_width, bridge_ffn: inner widths.
        vocabulary: rows of the embedding.
    """

    decoder: int
    table: int
    tied: bool
    bridge: int
    tied_keys: int
    tied_values: int
    state_mlp: int
    side_to_move: int
    readers: int
    trained: dict[str, int]
    width: int
    layers: int
    bridges: int
    heads_width: int
    kv_width: int
    ffn: int
    bridge_width: int
    bridge_ffn: int
    vocabulary: int

    @property
    def total(self) -> int:
        """All but the encoder."""
        return self.decoder + self.bridge + self.additions

    @property
    def additions(self) -> int:
        """Of the bridge, what is ours."""
        return self.tied_keys + self.tied_values + self.state_mlp + self.side_to_move

    @property
    def each_token(self) -> int:
        """Of the matrices that every token goes through; an embedding is only looked up."""
        looked_up = 0 if self.tied else self.table
        return self.total - self.readers - self.tied_keys - self.tied_values - looked_up


def grown_vocabulary(size: int) -> Vocabulary:
    """A vocabulary whose last tokens are the chess tokens, for counting."""
    first = size - CHESS_TOKENS
    squares = list(range(first, first + 64))
    return Vocabulary(size, 0, 0, squares, list(range(first + 64, size)))


def count(
    decoder: Any,
    vocabulary: int,
    bridge: BridgeSettings,
    encoder: EncoderInfo,
    frozen: dict[str, Sequence[str]],
) -> Counts:
    """Count a model that nobody has to build.

    Args:
        decoder: its Hugging Face config.
        vocabulary: tokens in all, the chess tokens included.
        encoder: how many states the encoder has, and how wide.
        frozen: by stage, the parts that do not train.
    """
    decoder.vocab_size = vocabulary
    config = queen_config(decoder, bridge, grown_vocabulary(vocabulary), encoder)
    with torch.device("meta"):
        model = QueenModel(config)
    heads = int(decoder.num_attention_heads)
    head = getattr(decoder, "head_dim", None) or decoder.hidden_size // heads
    added = _additions(model)
    return Counts(
        decoder=_size(model.decoder.parameters()),
        table=_size(model.get_input_embeddings().parameters()),
        tied=model.get_output_embeddings().weight is model.get_input_embeddings().weight,
        bridge=_size(model.bridges.parameters()) - sum(added.values()),
        **added,
        readers=sum(_of(each.reader) - _of(each.reader.square_values) for each in model.blocks),
        trained={stage: _trained(model, parts) for stage, parts in frozen.items()},
        width=int(decoder.hidden_size),
        layers=len(decoder_layers(model.decoder)),
        bridges=len(model.blocks),
        heads_width=heads * head,
        kv_width=int(getattr(decoder, "num_key_value_heads", None) or heads) * head,
        ffn=int(getattr(decoder, "intermediate_size", None) or 4 * decoder.hidden_size),
        bridge_width=config.bridge_width,
        bridge_ffn=config.bridge_ffn,
        vocabulary=vocabulary,
    )


def _additions(model: QueenModel) -> dict[str, int]:
    """Parameters of what is ours, by name."""
    blocks = model.blocks
    return {
        "tied_keys": sum(
            _of(each.square_query) + _of(each.reader.square_values) for each in blocks
        ),
        "tied_values": sum(_of(each.square_value) for each in blocks),
        "state_mlp": sum(_of(each.reader.mlp) for each in blocks),
        "side_to_move": sum(
            each.reader.side.numel() for each in blocks if each.reader.side is not None
        ),
    }


def _trained(model: QueenModel, frozen: Sequence[str]) -> int:
    freeze(model, frozen)
    return _size(each for each in model.parameters() if each.requires_grad)


def _of(part: nn.Module | nn.Parameter | None) -> int:
    if isinstance(part, nn.Module):
        return _size(part.parameters())
    return 0 if part is None else part.numel()


def _size(parameters: Iterable[nn.Parameter]) -> int:
    return sum(parameter.numel() for parameter in parameters)
