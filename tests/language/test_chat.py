"""Turns in the form that a model was tuned on."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from queen.language.chat import ChatError, Turns
from queen.language.prompts import answer, user_turn
from queen.language.tokenizer import CHAT_TEMPLATE, add_chess_tokens, encode, train_tokenizer

CHATML = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
    "{{ '<|s|>system\nBe of help.<|e|>\n' }}{% endif %}"
    "{{ '<|s|>' + m.role + '\n' + m.content + '<|e|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|s|>assistant\n' }}{% endif %}"
)
DATED = (
    "{{ '<|s|>system\nToday is ' + strftime_now('%d %B %Y') + '.<|e|>\n' }}"
    "{% for m in messages %}{{ '<|s|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' and not enable_thinking %}{{ '<think></think>' }}{% endif %}"
    "{{ m.content + '<|e|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|s|>assistant\n' }}"
    "{% if not enable_thinking %}{{ '<think></think>' }}{% endif %}{% endif %}"
)
INSTRUCTIONS = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ '[Q] ' + m.content + ' [/Q]' }}"
    "{% else %}{{ ' ' + m.content + '<|e|>' }}{% endif %}{% endfor %}"
)


def spoken_to(template: str | None) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, chat_template=template)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|s|>", "<|e|>"]})
    return tokenizer


@pytest.mark.parametrize("template", [CHATML, INSTRUCTIONS])
def test_a_conversation_is_what_the_template_writes(template: str) -> None:
    tokenizer = spoken_to(template)
    turns = Turns.of(tokenizer)
    first, later = user_turn("White to move. on <e4> ?"), user_turn("Explain.")
    written = turns.prompt(first) + turns.answer(answer("none")) + turns.prompt(later, first=False)
    chat = [
        {"role": "user", "content": "White to move. on <e4> ?"},
        {"role": "assistant", "content": "none"},
        {"role": "user", "content": "Explain."},
    ]
    wanted = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    spaces = str.maketrans("", "", " ")  # [Q] puts one before an answer and none after a request
    assert written.translate(spaces) == wanted.translate(spaces)
    assert turns.end == "<|e|>"


def test_a_template_that_tells_the_day_and_thinks_aloud_is_held_still() -> None:
    turns = Turns.of(spoken_to(DATED))
    assert turns.first == "<|s|>system\nToday is 01 July 2025.<|e|>\n<|s|>user\n"
    assert turns.prompt(user_turn("Why?")).endswith("Why?<|e|>\n<|s|>assistant\n<think></think>")
    assert turns.prompt(user_turn("Why?"), first=False).startswith("\n<|s|>user\n")


def test_the_projects_own_tokenizer_is_spoken_to_in_its_own_tokens() -> None:
    turns = Turns.of(train_tokenizer(["on <e4> ?"], 340))
    assert turns == Turns()
    text = user_turn("on <e4> ?")
    assert (turns.prompt(text), turns.answer(answer("none"))) == (text, "none<end>")


def test_a_model_keeps_its_template_and_grows_by_the_chess_tokens_alone() -> None:
    tokenizer = spoken_to(CHATML)
    before = len(tokenizer)
    assert add_chess_tokens(tokenizer) == 76
    assert len(tokenizer) == before + 76
    assert tokenizer.chat_template == CHATML
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|e|>", "<|e|>")
    end = encode(tokenizer, Turns.of(tokenizer).answer(answer("<e4>")))[-1]
    assert end == tokenizer.eos_token_id


def test_a_model_without_a_template_gets_the_projects_own() -> None:
    tokenizer = spoken_to(None)
    assert add_chess_tokens(tokenizer) == 76 + 3
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert Turns.of(tokenizer) == Turns()
    assert tokenizer.eos_token == "<end>"


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}",
        "{{ messages[-1].content }}",
    ],
)
def test_a_template_from_which_no_turns_can_be_read_is_named(template: str) -> None:
    with pytest.raises(ChatError, match="does not write two requests"):
        Turns.of(spoken_to(template))
