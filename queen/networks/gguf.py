"""Reading a llama.cpp file (GGUF) into a Hugging Face folder: config, weights, tokenizer, template.

Source: the GGUF format's public description. Only what is known in every detail is read: Llama's
build, a byte-level BPE tokenizer. Anything else is an error that names the field. Quantised
weights are kept as the float32 values they stand for.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from queen.networks.errors import NetworkError

ARCHITECTURE = "llama"
DIGITS_APART = {"smollm": True, "gpt-2": False, "default": False}
CONTROL = 3  # the kind of a token that is not text

_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def convert(file: Path, folder: Path) -> None:
    """Write what a GGUF file holds as a Hugging Face folder, whole or not at all.

    Raises:
        NetworkError: the file is none, is cut short, or holds a build that is not known here.
    """
    held = _Held(file)
    model = _model(held)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".convert-") as place:
        made = Path(place) / "made"
        model.save_pretrained(made)
        _tokenizer(held).save_pretrained(made)
        os.replace(made, folder)


class _Held:
    """The fields and tensors of a file."""

    def __init__(self, file: Path) -> None:
        from gguf import GGUFReader

        self.file = file
        try:
            reader = GGUFReader(file)
            self.fields = {name: field.contents() for name, field in reader.fields.items()}
        except (OSError, ValueError, IndexError, KeyError) as error:
            raise NetworkError(
                f"not a whole GGUF file: {error}", where=str(file), remedy="fetch or copy it again"
            ) from error
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}

    def field(self, name: str) -> Any:
        if name not in self.fields:
            raise self.unknown(name, "is missing")
        return self.fields[name]

    def expect(self, name: str, known: Any) -> Any:
        """A field's value, which must be one of those known."""
        value = self.field(name)
        if value not in known:
            raise self.unknown(name, f"is {value!r}, known here: {', '.join(known)}")
        return value

    def tensor(self, name: str) -> Tensor:
        """A tensor as float32."""
        from gguf.quants import dequantize

        if name not in self.tensors:
            raise self.unknown(name, "is missing")
        held = self.tensors[name]
        return torch.from_numpy(np.array(dequantize(held.data, held.tensor_type), np.float32))

    def unknown(self, name: str, what: str) -> NetworkError:
        return NetworkError(
            f"{name} {what}",
            where=str(self.file),
            remedy="give a Hugging Face folder of this model instead",
        )


def _model(held: _Held) -> Any:
    """The decoder, a LlamaForCausalLM."""
    from transformers import LlamaForCausalLM

    config = _config(held)
    _require_all_known(held, config.num_hidden_layers)
    weights = {name: held.tensor(own) for own, name in _OUTER.items() if own in held.tensors}
    for layer in range(config.num_hidden_layers):
        for own, name in _TENSORS.items():
            tensor = held.tensor(f"blk.{layer}.{own}.weight")
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
            if own in heads:
                tensor = _halves(tensor, heads[own])
            weights[f"model.layers.{layer}.{name}.weight"] = tensor
    return _filled(LlamaForCausalLM, config, weights, held)


def _filled(build: Any, config: Any, weights: Mapping[str, Tensor], held: _Held) -> Any:
    model = build(config)
    wanted = {name: each.shape for name, each in model.state_dict().items()}
    if config.tie_word_embeddings:
        wanted.pop("lm_head.weight")
    for name, shape in wanted.items():
        if name not in weights or weights[name].shape != shape:
            found = tuple(weights[name].shape) if name in weights else "missing"
            raise held.unknown(name, f"is {found}, not {tuple(shape)}")
    model.load_state_dict(dict(weights), strict=False)
    return model.eval()


def _require_all_known(held: _Held, layers: int) -> None:
    known = {f"blk.{i}.{own}.weight" for i in range(layers) for own in _TENSORS} | set(_OUTER)
    for name in held.tensors:
        if name not in known:
            raise held.unknown(name, "is not known here")


def _halves(weight: Tensor, heads: int) -> Tensor:
    """Rows of a query or key projection in Hugging Face's order: each head's first half, then its
    second, where llama.cpp has the two that turn together side by side.
    """
    pairs = weight.view(heads, -1, 2, weight.shape[1])
    return pairs.transpose(1, 2).reshape(weight.shape).contiguous()


def _config(held: _Held) -> Any:
    from transformers import LlamaConfig

    held.expect("general.architecture", [ARCHITECTURE])
    if any("rope.scaling" in name or "expert" in name for name in held.fields):
        raise held.unknown("rope scaling or experts", "are not known here")
    width = held.field("llama.embedding_length")
    heads = held.field("llama.attention.head_count")
    return LlamaConfig(
        vocab_size=len(held.field("tokenizer.ggml.tokens")),
        hidden_size=width,
        num_hidden_layers=held.field("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=held.field("llama.attention.head_count_kv"),
        intermediate_size=held.field("llama.feed_forward_length"),
        max_position_embeddings=held.field("llama.context_length"),
        rms_norm_eps=_short(held.field("llama.attention.layer_norm_rms_epsilon")),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": _short(held.fields.get("llama.rope.freq_base", 10_000.0)),
        },
        tie_word_embeddings="output.weight" not in held.tensors,
        bos_token_id=held.fields.get("tokenizer.ggml.bos_token_id"),
        eos_token_id=held.field("tokenizer.ggml.eos_token_id"),
        pad_token_id=held.fields.get("tokenizer.ggml.padding_token_id"),
    )


def _short(value: float) -> float:
    """A float32 as the decimal it was written from."""
    return float(f"{value:.6g}")


def _tokenizer(held: _Held) -> Any:
    """The byte-level BPE tokenizer with its chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    held.expect("tokenizer.ggml.model", ["gpt2"])
    apart = DIGITS_APART[held.expect("tokenizer.ggml.pre", DIGITS_APART)]
    names = held.field("tokenizer.ggml.tokens")
    merges = [tuple(line.split(" ")) for line in held.field("tokenizer.ggml.merges")]
    core = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    core.pre_tokenizer = (
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level])
        if apart
        else level
    )
    core.decoder = decoders.ByteLevel()
    kinds = held.field("tokenizer.ggml.token_type")
    control = [name for name, kind in zip(names, kinds, strict=True) if kind == CONTROL]
    core.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in control])
    roles = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    special = {
        f"{role}_token": names[held.fields[f"tokenizer.ggml.{own}_token_id"]]
        for own, role in roles.items()
        if f"tokenizer.ggml.{own}_token_id" in held.fields
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        chat_template=held.fields.get("tokenizer.chat_template"),
        model_max_length=held.field("llama.context_length"),
        clean_up_tokenization_spaces=False,
        **special,
    )
