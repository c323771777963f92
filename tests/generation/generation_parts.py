"""A small model, its tokenizer and an expert of random states, for tests of decoding."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import chess
import torch
import xxhash
from torch import Tensor
from transformers import GPT2Config, LlamaConfig

from queen.games.chess.position import Position
from queen.generation.decode import Generator, Request
from queen.language.prompts import explain_prompt
from queen.language.tokenizer import train_tokenizer
from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.queen import QueenConfig, QueenModel

torch.set_num_threads(1)  # the models are so small that a second thread only waits

STATE, LONGEST = 8, 80
TEXTS = ["<user>White to move. Explain.<assistant>best \nline \ncandidate  0.56", "Black to move."]
BRIDGES = BridgeSettings(states=(1, 2), layers=(0, 2), heads=2, state_mlp=16, gate_init=0.8)


class RandomExpert:
    """States that depend on the position alone; those of `broken` FENs are not numbers."""

    digest = "digest"

    def __init__(self, shift: str = "", shifted: str = "", broken: str = "") -> None:
        self.shift, self.shifted, self.broken = shift, shifted, broken

    def states(self, positions: Sequence[Position]) -> list[Tensor]:
        return [torch.stack([self._one(p.fen, layer) for p in positions]) for layer in range(2)]

    def _one(self, fen: str, layer: int) -> Tensor:
        if fen == self.broken:
            return torch.full((64, STATE), torch.nan)
        key = fen + (self.shift if fen == self.shifted else "")
        seed = xxhash.xxh32_intdigest(f"{key}{layer}".encode())
        return torch.randn(64, STATE, generator=torch.Generator().manual_seed(seed))


@cache
def tokenizer() -> Any:
    return train_tokenizer(TEXTS * 3, 360)


@cache
def model(name: str = "smollm3", seed: int = 0) -> QueenModel:
    """A QUEEN with open gates on a decoder of the family; its texts vary and sometimes end.

    The one model is shared by all tests: copy it before changing it.
    """
    made = _smollm3(seed) if name == "smollm3" else _other(name, seed)
    with torch.no_grad():
        table = made.get_input_embeddings().weight
        table.mul_(4 if name == "smollm3" else 8)
        made.get_output_embeddings().weight[made.config.end_id].mul_(1.6)
    return made.eval()


def _smollm3(seed: int) -> QueenModel:
    decoder = DecoderSettings(width=32, layers=4, heads=4, kv_heads=2, ffn=48, max_length=LONGEST)
    encoder = EncoderInfo("random", RandomExpert.digest, 4, STATE)
    return build_queen(decoder, BRIDGES, tokenizer(), encoder, seed)


def _other(name: str, seed: int) -> QueenModel:
    torch.manual_seed(seed)
    base = _smollm3(seed).config
    common = {"vocab_size": len(tokenizer()), "eos_token_id": base.end_id, "pad_token_id": 0}
    if name == "llama":
        decoder = LlamaConfig(
            **common, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=1, intermediate_size=48, max_position_embeddings=LONGEST,
            initializer_range=0.1, tie_word_embeddings=False,
        )  # fmt: skip
    else:
        decoder = GPT2Config(
            **common, n_embd=32, n_layer=3, n_head=4, n_positions=LONGEST, initializer_range=0.1
        )
    return QueenModel(QueenConfig(**{**base.to_dict(), "decoder_config": decoder.to_dict()}))


def generator(
    size: int = 8, name: str = "smollm3", expert: Any = None, **settings: Any
) -> Generator:
    """Of a small model, in float32 unless said."""
    settings = {"dtype": torch.float32, **settings}
    return Generator(model(name), tokenizer(), expert or RandomExpert(), size, **settings)


@cache
def positions(count: int, seed: int = 0) -> tuple[Position, ...]:
    """Positions of random games, none of them over."""
    numbers, found = random.Random(seed), list[Position]()
    while len(found) < count:
        board = chess.Board()
        for _ in range(numbers.randrange(80)):
            if board.is_game_over():
                break
            board.push(numbers.choice(list(board.legal_moves)))
        if any(board.legal_moves):
            moves = tuple(move.uci() for move in board.move_stack)
            found.append(Position(chess.STARTING_FEN, moves))
    return tuple(found)


def requests(count: int, *, legal: bool = False, seed: int = 0) -> list[Request]:
    """Of differing lengths: every third has a longer prefix."""
    made = []
    for index, position in enumerate(positions(count, seed)):
        prefix = "best " if index % 3 else "best \nline \ncandidate  0.56 line "
        made.append(
            Request(str(index), position, explain_prompt(position), prefix, 1000 + index, legal)
        )
    return made
