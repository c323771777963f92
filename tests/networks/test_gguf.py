"""Files written in llama.cpp's format by its own library, read back as Hugging Face folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tiny_decoder import TEMPLATE, TEXTS, tiny_llama, tiny_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from queen.networks.errors import NetworkError
from queen.networks.gguf import convert

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def turned(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp has them: i and i + half a head side by side."""
    half = weight.shape[0] // heads // 2
    order = [
        h * 2 * half + i + part for h in range(heads) for i in range(half) for part in (0, half)
    ]
    return weight[order]


def named(model: Any) -> dict[str, np.ndarray]:
    tensors = {}
    for name, tensor in model.state_dict().items():
        stem, values = name.removesuffix(".weight"), tensor.numpy()
        if stem == "lm_head" and model.config.tie_word_embeddings:
            continue
        if stem in OUTER:
            tensors[f"{OUTER[stem]}.weight"] = values
            continue
        _, _, layer, inner = stem.split(".", 3)
        if inner.endswith(("q_proj", "k_proj")):
            values = turned(values, 4 if inner.endswith("q_proj") else 2)
        tensors[f"blk.{layer}.{LAYER[inner]}.weight"] = values
    return tensors


def write(
    path: Path,
    model: Any,
    *,
    quantised: bool = False,
    pre: str = "smollm",
    extra: dict[str, np.ndarray] | None = None,
    **more: float,
) -> Path:
    tokenizer = tiny_tokenizer()
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    core = tokenizer.backend_tokenizer
    names = [core.id_to_token(i) for i in range(core.get_vocab_size())]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(names)
    writer.add_token_types([3 if name.startswith("<|") else 1 for name in names])
    merges = json.loads(core.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)
    for name, value in more.items():
        writer.add_float32(f"llama.{name}", value)
    for name, values in {**named(model), **(extra or {})}.items():
        if quantised and values.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def vocabulary() -> int:
    return len(tiny_tokenizer())


@pytest.mark.parametrize("tied", [True, False])
def test_a_file_gives_the_models_own_logits(tmp_path: Path, vocabulary: int, tied: bool) -> None:
    model = tiny_llama(vocabulary, tied=tied)
    convert(write(tmp_path / "net.gguf", model), tmp_path / "net")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "net").eval()
    assert again.config.tie_word_embeddings is tied
    assert again.config.rms_norm_eps == 1e-5
    ids = torch.arange(24).view(2, 12)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)


def test_quantised_weights_stay_near(tmp_path: Path, vocabulary: int) -> None:
    model = tiny_llama(vocabulary)
    convert(write(tmp_path / "net.gguf", model, quantised=True), tmp_path / "net")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "net")
    assert again.dtype == torch.float32
    for own, other in zip(model.parameters(), again.parameters(), strict=True):
        assert (own - other).abs().max() <= own.abs().max() / 127
    assert any(
        not torch.equal(*pair) for pair in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_the_tokenizer_and_its_template_come_along(tmp_path: Path, vocabulary: int) -> None:
    convert(write(tmp_path / "net.gguf", tiny_llama(vocabulary)), tmp_path / "net")
    own, again = tiny_tokenizer(), AutoTokenizer.from_pretrained(tmp_path / "net")
    for text in [*TEXTS, "1234 queens<|im_end|>\n  naïve ♞", "<|im_start|>user\nWhy e4?"]:
        assert again(text)["input_ids"] == own(text)["input_ids"]
        assert again.decode(again(text)["input_ids"]) == text
    assert again.chat_template == TEMPLATE
    assert (again.eos_token, again.pad_token, again.bos_token) == (
        "<|im_end|>",
        "<|im_end|>",
        "<|im_start|>",
    )


def test_digits_stay_together_where_the_file_says_so(tmp_path: Path, vocabulary: int) -> None:
    from queen.networks import gguf as ours

    assert ours.DIGITS_APART == {"smollm": True, "gpt-2": False, "default": False}
    convert(write(tmp_path / "a.gguf", tiny_llama(vocabulary), pre="gpt-2"), tmp_path / "a")
    pieces = AutoTokenizer.from_pretrained(tmp_path / "a").backend_tokenizer.pre_tokenizer
    assert [piece for piece, _ in pieces.pre_tokenize_str("e4 1234")] == ["e", "4", "Ġ1234"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"pre": "qwen2"}, "tokenizer.ggml.pre is 'qwen2'"),
        ({"rope.scaling.factor": 2.0}, "rope scaling"),
    ],
)
def test_what_is_not_known_is_named(
    tmp_path: Path, vocabulary: int, change: dict[str, Any], said: str
) -> None:
    path = write(tmp_path / "net.gguf", tiny_llama(vocabulary), **change)
    with pytest.raises(NetworkError, match=said) as fault:
        convert(path, tmp_path / "net")
    assert fault.value.where == str(path)
    assert [each.name for each in tmp_path.iterdir()] == ["net.gguf"]


def test_a_file_that_is_cut_or_none_is_named(tmp_path: Path, vocabulary: int) -> None:
    whole = write(tmp_path / "net.gguf", tiny_llama(vocabulary)).read_bytes()
    for content in (whole[: len(whole) // 2], b"GGUF", b"not a model at all, but text"):
        (tmp_path / "cut.gguf").write_bytes(content)
        with pytest.raises(NetworkError, match="not a whole GGUF file"):
            convert(tmp_path / "cut.gguf", tmp_path / "net")
    assert not (tmp_path / "net").exists()


def test_tensors_of_another_build_are_named(tmp_path: Path, vocabulary: int) -> None:
    path = write(tmp_path / "net.gguf", tiny_llama(vocabulary + 1))
    with pytest.raises(NetworkError, match=r"embed_tokens.weight is \(301, 32\), not \(300, 32\)"):
        convert(path, tmp_path / "net")
    extra = {"blk.1.attn_q.bias": np.zeros(32, np.float32)}
    path = write(tmp_path / "biased.gguf", tiny_llama(vocabulary), extra=extra)
    with pytest.raises(NetworkError, match=r"blk.1.attn_q.bias is not known here"):
        convert(path, tmp_path / "net")
