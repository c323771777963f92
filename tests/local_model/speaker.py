"""The model that answers: tokenizer, weights, and one chat turn by transformers' `generate`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from local_model.forms import Form, HoldToForm, Vocabulary
from local_model.server import Said
from queen.language.tokenizer import FEWEST, train_tokenizer


class LocalSpeaker:
    """Answers chat requests, one at a time, greedily.

    Args:
        model, tokenizer: of transformers; the tokenizer has a chat template.
        letters: longest free string where the answer is held to a schema.
    """

    def __init__(self, model: Any, tokenizer: Any, letters: int = 120) -> None:
        self.model, self.tokenizer, self.letters = model.eval(), tokenizer, letters
        self.vocabulary = Vocabulary(tokenizer)
        self._turn = threading.Lock()

    def say(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
    ) -> Said:
        """The model's turn; with a schema its text is held to it."""
        with self._turn, torch.inference_mode():
            return self._say(messages, max_tokens, schema)

    def _say(
        self,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        schema: Mapping[str, Any] | None,
    ) -> Said:
        text = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        ids = self.tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        end, prompt = self.tokenizer.eos_token_id, ids.shape[1]
        held = []
        if schema is not None:
            held = [HoldToForm(self.vocabulary, Form.of(schema, self.letters), prompt, end)]
        output = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=end,
            logits_processor=held,
        )
        new = output[0, prompt:].tolist()
        finish = "stop" if new[-1:] == [end] else "length"
        answer = self.tokenizer.decode(new, skip_special_tokens=True)
        return Said(answer, finish, prompt, len(new))


def tiny_speaker(texts: Sequence[str], letters: int = 16) -> LocalSpeaker:
    """A very small Llama with random weights, and a byte-level tokenizer learnt from texts."""
    tokenizer = train_tokenizer(texts, FEWEST + 400)
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    return LocalSpeaker(LlamaForCausalLM(config), tokenizer, letters)


def gguf_speaker(path: Path, letters: int = 160) -> LocalSpeaker:
    """A model from a GGUF file, its weights put back to floats."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    return LocalSpeaker(model, tokenizer, letters)
