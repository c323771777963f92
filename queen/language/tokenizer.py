"""The tokenizer: byte-level pieces learnt from the project's own text, and the chess tokens.

Source: METHOD section 1: 64 squares and 12 pieces are tokens of their own. That decoding gives the
very text back, that digits stand alone and that the vocabulary is small are ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import chess
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from queen.errors import QueenError
from queen.language.chat import Turns
from queen.language.prompts import ASSISTANT, END, USER

PAD = "<pad>"
CONTROL_TOKENS = [PAD, END, USER, ASSISTANT]
SQUARE_TOKENS = [f"<{name}>" for name in chess.SQUARE_NAMES]
PIECE_TOKENS = [f"<{letter}>" for letter in "PNBRQKpnbrqk"]
CHESS_TOKENS = SQUARE_TOKENS + PIECE_TOKENS
FEWEST = len(CONTROL_TOKENS) + len(CHESS_TOKENS) + 256

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<' + message['role'] + '>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<end>' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


class TokenizerError(QueenError):
    """A tokenizer that cannot be trained, read, or that lacks the chess tokens."""


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A tokenizer whose pieces are learnt from texts; equal texts give an equal tokenizer.

    Every byte has a token, so that any text can be encoded and comes back unchanged. Text that
    spells a control token (`<end>`, ...) becomes that token: it must not come from outside.

    Args:
        texts: what to learn pieces from; the chess tokens in it are left whole.
        vocab_size: tokens in all, those of control, chess and bytes (336) included.
    """
    if vocab_size < FEWEST:
        raise TokenizerError(
            f"vocab_size {vocab_size} leaves no room",
            where="tokenizer",
            remedy=f"give at least {FEWEST}",
        )
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), _byte_level()]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(CHESS_TOKENS),
        special_tokens=_whole(CONTROL_TOKENS, special=True),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_between_tokens(texts), trainer)
    core.add_tokens(_whole(CHESS_TOKENS, special=False))
    return _wrap(core)


def add_chess_tokens(tokenizer: Any) -> int:
    """Add the 76 chess tokens to another model's tokenizer; its chat template is kept.

    Where it has no template, it gets the project's own, and the control tokens of that.

    Returns how many tokens were new.
    """
    known = tokenizer.get_vocab()
    own = not tokenizer.chat_template
    control = [name for name in (USER, ASSISTANT, END) if own and name not in known]
    chess_names = [name for name in CHESS_TOKENS if name not in known]
    added = tokenizer.add_tokens(_whole(control, special=True), special_tokens=True)
    added += tokenizer.add_tokens(_whole(chess_names, special=False))
    if own:
        tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.eos_token = Turns.of(tokenizer).end
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return int(added)


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a Hugging Face tokenizer folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))


def load_tokenizer(folder: Path) -> Any:
    """Read a tokenizer folder; raises TokenizerError if it is none or lacks the chess tokens."""
    tokenizer = load_foreign(folder)
    square_ids(tokenizer), piece_ids(tokenizer)
    return tokenizer


def load_foreign(folder: Path) -> Any:
    """Read any model's tokenizer; raises TokenizerError if there is none."""
    if not (folder / "tokenizer.json").is_file():
        raise TokenizerError(
            "no tokenizer.json here", where=str(folder), remedy="name a folder with a tokenizer"
        )
    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise TokenizerError(
            f"not a tokenizer: {error}", where=str(folder), remedy="train or copy it again"
        ) from error


def square_ids(tokenizer: Any) -> list[int]:
    """Token ids of a1, b1, ... h8."""
    return _ids(tokenizer, SQUARE_TOKENS)


def piece_ids(tokenizer: Any) -> list[int]:
    """Token ids of P N B R Q K p n b r q k."""
    return _ids(tokenizer, PIECE_TOKENS)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, nothing added."""
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def decode(tokenizer: Any, ids: Iterable[int]) -> str:
    """The very text of the ids, control tokens included."""
    text: str = tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return text


def _ids(tokenizer: Any, names: list[str]) -> list[int]:
    known = tokenizer.get_vocab()
    missing = [name for name in names if name not in known]
    if missing:
        raise TokenizerError(
            f"{len(missing)} chess tokens are missing, {missing[0]} first",
            where=str(getattr(tokenizer, "name_or_path", "")) or "tokenizer",
            remedy="train it with train_tokenizer, or extend it with add_chess_tokens",
        )
    return [known[name] for name in names]


def _byte_level() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _whole(names: list[str], *, special: bool) -> list[AddedToken]:
    return [AddedToken(name, special=special, normalized=False) for name in names]


def _between_tokens(texts: Iterable[str]) -> Iterable[str]:
    """The stretches of text between added tokens, so that no piece is learnt across one."""
    names = re.compile("|".join(map(re.escape, CONTROL_TOKENS + CHESS_TOKENS)))
    for text in texts:
        yield from filter(None, names.split(text))


def _wrap(core: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
