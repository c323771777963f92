"""A trained decoder at a size for tests: random weights, byte-level tokens, a chat template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEXTS = ["The white knight on e4 and the black queen on d8.", "pawn bishop rook king to move"]
TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are of help.<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def tiny_tokenizer(template: str | None = TEMPLATE) -> Any:
    """Without chess tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in CONTROL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(TEXTS * 5, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=template,
        clean_up_tokenization_spaces=False,
    )


def tiny_llama(vocabulary: int, *, tied: bool = True, seed: int = 0) -> LlamaForCausalLM:
    """Two layers with grouped heads."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=256,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=tied,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    return LlamaForCausalLM(config).eval()


def write_folder(folder: Path, *, spare: int = 0, template: str | None = TEMPLATE) -> Path:
    """A Hugging Face folder; the embedding has `spare` rows more than the tokenizer tokens."""
    tokenizer = tiny_tokenizer(template)
    tiny_llama(len(tokenizer) + spare).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
