"""Building a QUEEN: a small decoder from scratch, or bridges onto one that is trained already.

Source: METHOD section 1; sizes of the small model are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import chess
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, SmolLM3Config

from queen.networks.bridge import initialise
from queen.networks.errors import NetworkError
from queen.networks.queen import QueenConfig, QueenModel, decoder_layers
from queen.networks.settings import BridgeSettings, DecoderSettings

__all__ = [
    "NO_ENCODER",
    "BridgeSettings",
    "DecoderSettings",
    "EncoderInfo",
    "Vocabulary",
    "bridge_pretrained",
    "build_queen",
    "queen_config",
    "scratch_config",
]


@dataclass(frozen=True)
class EncoderInfo:
    """What a bridge must know of its frozen encoder: how many states, and how wide."""

    name: str
    digest: str
    states: int
    width: int


NO_ENCODER = EncoderInfo("", "", 0, 0)


@dataclass(frozen=True)
class Vocabulary:
    """The token ids a model must know."""

    size: int
    pad: int
    end: int
    squares: list[int] = field(repr=False)
    pieces: list[int] = field(repr=False)

    @classmethod
    def of(cls, tokenizer: Any) -> Vocabulary:
        """Of a Hugging Face tokenizer; raises NetworkError if it lacks a chess token."""
        names = [f"<{square}>" for square in chess.SQUARE_NAMES] + [
            f"<{p}>" for p in "PNBRQKpnbrqk"
        ]
        known = tokenizer.get_vocab()
        missing = [name for name in names if name not in known]
        if missing:
            raise NetworkError(
                f"the tokenizer lacks {len(missing)} chess tokens, {missing[0]} first",
                remedy="train it with train_tokenizer, or extend it with add_chess_tokens",
            )
        ids = [known[name] for name in names]
        end = known.get("<end>", tokenizer.eos_token_id)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
        return cls(len(tokenizer), pad, end, ids[:64], ids[64:])


def build_queen(
    decoder: DecoderSettings,
    bridge: BridgeSettings,
    tokenizer: Any,
    encoder: EncoderInfo,
    seed: int,
) -> QueenModel:
    """A QUEEN with a new decoder; equal arguments give equal weights, bit for bit.

    Matrices start at 1/sqrt(fan-in), the two that write to the residual stream smaller by
    sqrt(2 * layers), embeddings at `embedding_std`.
    """
    vocabulary = Vocabulary.of(tokenizer)
    model = _assemble(scratch_config(decoder, vocabulary), bridge, vocabulary, encoder)
    generator = torch.Generator().manual_seed(seed)
    _initialise_decoder(model.decoder, decoder.embedding_std, generator)
    if decoder.square_geometry:
        embedding = model.decoder.get_input_embeddings().weight
        _lay_out_squares(embedding, vocabulary.squares, decoder.embedding_std, generator)
    _initialise_bridges(model, generator)
    return model


def bridge_pretrained(
    decoder: PreTrainedModel,
    bridge: BridgeSettings,
    tokenizer: Any,
    encoder: EncoderInfo,
    seed: int,
    known: int | None = None,
) -> QueenModel:
    """A QUEEN around a trained decoder, which becomes part of it and whose vocabulary grows.

    A new token starts as the mean of the old tokens that describe it, moved a little at random so
    that no two are alike. Logits of the old vocabulary are unchanged.

    Args:
        decoder: in the number type that it is to keep.
        tokenizer: the decoder's own with the chess tokens added.
        known: tokens the decoder's own tokenizer has; by default as many as its embedding has
            rows. Some embeddings have rows to spare, which hold nothing yet.
    """
    vocabulary = Vocabulary.of(tokenizer)
    rows = decoder.get_input_embeddings().weight.shape[0]
    old = min(rows, rows if known is None else known)
    generator = torch.Generator().manual_seed(seed)
    if vocabulary.size > rows:
        decoder.resize_token_embeddings(vocabulary.size, mean_resizing=False)
    for table in _tables(decoder):
        _spell_new_rows(table, tokenizer, old, vocabulary.size, generator)
    model = _assemble(decoder.config, bridge, vocabulary, encoder, decoder)
    _initialise_bridges(model, generator)
    model.bridges.to(decoder.dtype)
    return model


def scratch_config(settings: DecoderSettings, vocabulary: Vocabulary) -> SmolLM3Config:
    """The config of a decoder that is to be trained from scratch."""
    return SmolLM3Config(
        vocab_size=vocabulary.size,
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.kv_heads,
        intermediate_size=settings.ffn,
        max_position_embeddings=settings.max_length,
        rope_parameters={"rope_type": "default", "rope_theta": settings.rope_theta},
        pad_token_id=vocabulary.pad,
        bos_token_id=None,
        eos_token_id=vocabulary.end,
        tie_word_embeddings=True,
    )


def _assemble(
    config: Any,
    bridge: BridgeSettings,
    vocabulary: Vocabulary,
    encoder: EncoderInfo,
    decoder: PreTrainedModel | None = None,
) -> QueenModel:
    return QueenModel(queen_config(config, bridge, vocabulary, encoder), decoder)


def queen_config(
    decoder: Any, bridge: BridgeSettings, vocabulary: Vocabulary, encoder: EncoderInfo
) -> QueenConfig:
    """The config of a QUEEN on a decoder of this Hugging Face config."""
    width = decoder.hidden_size
    return QueenConfig(
        decoder_config=_plain(decoder),
        bridge_layers=list(bridge.layers),
        bridge_states=list(bridge.states),
        bridge_width=bridge.width or width,
        bridge_heads=bridge.heads,
        bridge_ffn=bridge.ffn_factor * width,
        tied_keys=bridge.tied_keys,
        state_mlp=bridge.state_mlp,
        gate_init=bridge.gate_init,
        tied_values=bridge.tied_values,
        side_to_move=bridge.side_to_move,
        encoder_name=encoder.name,
        encoder_digest=encoder.digest,
        encoder_states=encoder.states,
        state_width=encoder.width,
        square_ids=vocabulary.squares,
        piece_ids=vocabulary.pieces,
        end_id=vocabulary.end,
        pad_id=vocabulary.pad,
    )


def _plain(decoder: Any) -> dict[str, Any]:
    """The decoder's config without what belongs to the whole model or to a release."""
    record: dict[str, Any] = decoder.to_dict()
    for key in ("dtype", "transformers_version", "_name_or_path", "architectures"):
        record.pop(key, None)
    return record


@torch.no_grad()
def _initialise_decoder(
    decoder: PreTrainedModel, embedding_std: float, generator: torch.Generator
) -> None:
    residual = (2 * len(decoder_layers(decoder))) ** -0.5
    embedding = decoder.get_input_embeddings().weight
    nn.init.normal_(embedding, std=embedding_std, generator=generator)
    for layer in decoder_layers(decoder):
        for name, module in layer.named_modules():
            if not isinstance(module, nn.Linear):
                continue
            scale = residual if name.endswith(("o_proj", "down_proj")) else 1.0
            std = scale * module.in_features**-0.5
            nn.init.normal_(module.weight, std=std, generator=generator)


@torch.no_grad()
def _lay_out_squares(
    embedding: Tensor, squares: Sequence[int], std: float, generator: torch.Generator
) -> None:
    """Add its file and its rank to each square's row; the spread stays `std`."""
    files, ranks = torch.randn(2, 8, embedding.shape[1], generator=generator) * std
    for square, row in enumerate(squares):
        embedding[row] = (embedding[row] + files[square % 8] + ranks[square // 8]) / 3**0.5


def _initialise_bridges(model: QueenModel, generator: torch.Generator) -> None:
    for bridge in model.blocks:
        initialise(bridge, generator)


def _tables(decoder: PreTrainedModel) -> list[Tensor]:
    tables = [decoder.get_input_embeddings().weight]
    head = decoder.get_output_embeddings()
    if head is not None and head.weight is not tables[0]:
        tables.append(head.weight)
    return tables


@torch.no_grad()
def _spell_new_rows(
    table: Tensor, tokenizer: Any, old: int, size: int, generator: torch.Generator
) -> None:
    spread = table[:old].float().std(0)
    for row in range(old, size):
        text = _described(tokenizer.convert_ids_to_tokens(row))
        spelt = [i for i in tokenizer(text, add_special_tokens=False)["input_ids"] if i < old]
        mean = table[spelt].float().mean(0) if spelt else table[:old].float().mean(0)
        noise = torch.randn(spread.shape, generator=generator).to(spread) * spread * 0.1
        table[row] = (mean + noise).to(table.dtype)


def _described(token: str) -> str:
    """A new token in words the old vocabulary has: `<n>` is a black knight, `<e4>` is e4."""
    name = token.strip("<>")
    if len(name) == 1 and name.lower() in chess.PIECE_SYMBOLS:
        piece = chess.Piece.from_symbol(name)
        return f" {chess.COLOR_NAMES[piece.color]} {chess.piece_name(piece.piece_type)}"
    return f" {name}"
