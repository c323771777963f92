"""What a QUEEN is built from, as plain values; importing this loads no network library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from queen.networks.errors import NetworkError


@dataclass(frozen=True)
class DecoderSettings:
    """A decoder of SmolLM3's architecture to be trained from scratch.

    Attributes:
        width, layers, heads, kv_heads, ffn: its shape.
        max_length: longest sequence in tokens.
        rope_theta: base of the rotary positions.
        embedding_std: spread of the token embeddings at the start.
        square_geometry: start each square's embedding as the sum of its file's, its rank's and its
            own, in equal parts, so that squares of a file or a rank are alike.
    """

    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 4
    ffn: int = 320
    max_length: int = 1024
    rope_theta: float = 10_000.0
    embedding_std: float = 0.02
    square_geometry: bool = False


@dataclass(frozen=True)
class BridgeSettings:
    """Where the bridges stand and how they are made.

    With no state and no layer there is no bridge: the decoder reads the FEN as text in its prompts
    (METHOD section 1, ablations).

    Attributes:
        states: the encoder state each reads.
        layers: the decoder layer each stands before.
        width: inner attention width; 0 for the decoder's.
        heads: attention heads.
        ffn_factor: feed-forward width over the decoder's.
        tied_keys, state_mlp, gate_init, tied_values, side_to_move: see `BridgeShape`.
    """

    states: Sequence[int] = (1, 2, 4, 6)
    layers: Sequence[int] = (0, 1, 2, 3)
    width: int = 0
    heads: int = 4
    ffn_factor: int = 2
    tied_keys: bool = True
    state_mlp: int = 256
    gate_init: float = 0.0
    tied_values: bool = False
    side_to_move: bool = False


@dataclass(frozen=True)
class PretrainedSettings:
    """A decoder that is trained already and is taken over.

    Attributes:
        source: a name `queen fetch` knows, a GGUF file, a Hugging Face folder, or a hub id.
        licence: of its weights, for the model cards.
        shape: values its Hugging Face config must have; what `queen plan` counts with.
    """

    source: str
    licence: str = ""
    shape: Mapping[str, Any] = field(default_factory=dict)


AnyDecoder = DecoderSettings | PretrainedSettings


def reads_fen(folder: Path) -> bool:
    """Whether a saved QUEEN has no bridge, so that prompts give it the FEN; see `QueenConfig`.

    Raises NetworkError where there is no model.
    """
    path = folder / "config.json"
    try:
        return not json.loads(path.read_text())["bridge_layers"]
    except (OSError, ValueError, KeyError) as error:
        raise NetworkError(
            f"not the config of a QUEEN: {error!r}",
            where=str(path),
            remedy="name the folder of a trained model; `queen run` makes one",
        ) from error
