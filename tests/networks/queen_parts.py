"""Small models for tests: a tokenizer's worth of vocabulary, decoders of three families, states."""

from __future__ import annotations

import chess
import torch
from torch import Tensor
from transformers import GPT2Config, LlamaConfig, PretrainedConfig, SmolLM3Config

from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.queen import QueenConfig, QueenModel

NAMES = [
    *("<pad>", "<end>", "<user>", "<assistant>"),
    *(f"<{name}>" for name in chess.SQUARE_NAMES),
    *(f"<{letter}>" for letter in "PNBRQKpnbrqk"),
    *"abcdefgh12345678 .\n",
]
SIZE, WIDTH, LAYERS, STATE = len(NAMES), 32, 3, 16
ENCODER = EncoderInfo("random", "digest", states=7, width=STATE)
BRIDGES = BridgeSettings(states=(1, 3), layers=(0, 2), heads=4, state_mlp=24)
DECODER = DecoderSettings(width=WIDTH, layers=LAYERS, heads=4, kv_heads=2, ffn=48, max_length=96)


class Names:
    """What `Vocabulary.of` needs of a tokenizer, one token a name."""

    eos_token_id, pad_token_id = 1, 0

    def get_vocab(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(NAMES)}

    def __len__(self) -> int:
        return SIZE

    def convert_ids_to_tokens(self, index: int) -> str:
        return NAMES[index]

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [NAMES.index(letter) for letter in text if letter in NAMES]}


def queen(seed: int = 0, gate: float = 0.0, **bridge: object) -> QueenModel:
    """A small QUEEN of SmolLM3's build."""
    settings = BridgeSettings(**{**vars(BRIDGES), "gate_init": gate, **bridge})
    return build_queen(DECODER, settings, Names(), ENCODER, seed).eval()


def family(name: str) -> PretrainedConfig:
    """A decoder's config of one of three families."""
    common = {"vocab_size": SIZE, "pad_token_id": 0, "bos_token_id": None, "eos_token_id": 1}
    llama = {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 96,
    }
    if name == "smollm3":
        return SmolLM3Config(**common, **llama, no_rope_layer_interval=2)
    if name == "llama":
        return LlamaConfig(**common, **llama, tie_word_embeddings=False)
    return GPT2Config(**common, n_embd=WIDTH, n_layer=LAYERS, n_head=4, n_positions=96)


def queen_of(name: str, seed: int = 0, **settings: object) -> QueenModel:
    """A QUEEN with random weights on a decoder of the family, gates at 0 unless said."""
    torch.manual_seed(seed)
    config = QueenConfig(
        decoder_config=family(name).to_dict(),
        bridge_layers=[0, 2],
        bridge_states=[1, 3],
        bridge_width=WIDTH,
        bridge_heads=4,
        bridge_ffn=2 * WIDTH,
        state_mlp=24,
        encoder_states=7,
        state_width=STATE,
        square_ids=list(range(4, 68)),
        piece_ids=list(range(68, 80)),
        end_id=1,
        **settings,
    )
    return QueenModel(config).eval()


def states(count: int, seed: int = 0) -> list[Tensor]:
    """Random states of `count` positions for two bridges."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(count, 64, STATE, generator=generator) for _ in range(2)]


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    """Random token ids, none of them padding."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(1, SIZE, (rows, length), generator=generator)
