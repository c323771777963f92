"""SmolLM2-135M-Instruct with bridges, for the benchmarks that measure it. Fetched once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from queen.language.tokenizer import add_chess_tokens, load_foreign
from queen.networks.build import EncoderInfo, bridge_pretrained
from queen.networks.pretrained import load_decoder, locate_decoder
from queen.networks.queen import QueenModel
from queen.networks.settings import BridgeSettings

NAME = "smollm2-135m"
STATES = (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 6)  # what the bridges of `small` read


def bridged(
    states: tuple[int, ...], gate_init: float, info: EncoderInfo, cache: Path
) -> tuple[QueenModel, Any]:
    """The model and its tokenizer: a bridge of nine heads before every second layer.

    Args:
        states: the encoder's state that each of the 15 bridges reads.
    """
    folder = locate_decoder(NAME, cache, cache)
    tokenizer = load_foreign(folder)
    add_chess_tokens(tokenizer)
    bridge = BridgeSettings(states=states, layers=range(0, 30, 2), heads=9, gate_init=gate_init)
    return bridge_pretrained(load_decoder(folder, {}), bridge, tokenizer, info, 0), tokenizer
