from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.language.tokenizer import (
    CHESS_TOKENS,
    CONTROL_TOKENS,
    PIECE_TOKENS,
    SQUARE_TOKENS,
    TokenizerError,
    add_chess_tokens,
    decode,
    encode,
    load_tokenizer,
    piece_ids,
    save_tokenizer,
    square_ids,
    train_tokenizer,
)

TEXTS = [
    "<user>White to move. Explain.<assistant>best <N><g1><f3>\nline <N><g1><f3> <p><d7><d5>\n"
    "candidate <N><g1><f3> 0.56 line <p><d7><d5>\ncandidate <P><h2><h4> 0.41\n"
    "After <N><g1><f3>, the <N> on <f3> controls <e5>.<end>",
    "<user>Black to move. What stands on <e4>?<assistant>a knight<end>",
    "After <p><d7><d5>, Black's pawn on <d5> is pinned; White wins it.",
] * 4
TOKENIZER = train_tokenizer(TEXTS, 400)
WORDS = [
    *CHESS_TOKENS,
    *CONTROL_TOKENS,
    "best ",
    "\nline ",
    " 0.56",
    "candidate",
    " the",
    "'s",
    "\n",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=8)), max_size=20))
def test_decoding_gives_the_very_text_back(parts: list[str]) -> None:
    text = "".join(parts).encode("utf-8", "ignore").decode()
    assert decode(TOKENIZER, encode(TOKENIZER, text)) == text


def test_chess_tokens_are_single_and_in_order() -> None:
    for names, ids in ((SQUARE_TOKENS, square_ids), (PIECE_TOKENS, piece_ids)):
        assert TOKENIZER.convert_ids_to_tokens(ids(TOKENIZER)) == names
    assert (SQUARE_TOKENS[0], SQUARE_TOKENS[7], SQUARE_TOKENS[63]) == ("<a1>", "<h1>", "<h8>")
    assert encode(TOKENIZER, "<N><g1><f3>") == [
        piece_ids(TOKENIZER)[1],
        square_ids(TOKENIZER)[6],
        square_ids(TOKENIZER)[21],
    ]


def test_control_tokens_are_special_and_chess_tokens_survive_without_them() -> None:
    ids = encode(TOKENIZER, "<user>on <e4><end>")
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == "on <e4>"
    assert (TOKENIZER.pad_token, TOKENIZER.eos_token) == ("<pad>", "<end>")


def test_digits_stand_alone_and_words_are_learnt() -> None:
    assert TOKENIZER.tokenize("0.56") == ["0", ".", "5", "6"]
    assert len(encode(TOKENIZER, "candidate")) == 1
    assert len(TOKENIZER) <= 400


def test_a_prefix_that_ends_before_a_chess_token_is_tokenised_as_in_the_whole() -> None:
    text = TEXTS[0]
    for cut in (index for index, letter in enumerate(text) if letter == "<"):
        whole = encode(TOKENIZER, text)
        assert whole[: len(encode(TOKENIZER, text[:cut]))] == encode(TOKENIZER, text[:cut])


def test_a_chat_is_written_as_the_prompts_are() -> None:
    chat = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "<e4>"}]
    written = TOKENIZER.apply_chat_template(chat, tokenize=False)
    assert written == "<user>Why?<assistant><e4><end>"
    asked = TOKENIZER.apply_chat_template(chat[:1], tokenize=False, add_generation_prompt=True)
    assert asked == "<user>Why?<assistant>"


def test_a_saved_tokenizer_comes_back_the_same(tmp_path: Path) -> None:
    save_tokenizer(TOKENIZER, tmp_path)
    again = load_tokenizer(tmp_path)
    for text in TEXTS:
        assert encode(again, text) == encode(TOKENIZER, text)
    assert again.chat_template == TOKENIZER.chat_template
    assert square_ids(again) == square_ids(TOKENIZER)


def test_training_depends_on_the_texts_alone(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from test_tokenizer import TEXTS, save_tokenizer, train_tokenizer\n"
        "save_tokenizer(train_tokenizer(TEXTS, 420), Path(sys.argv[2]))"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path / "other")],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "1"},
    )
    save_tokenizer(train_tokenizer(TEXTS, 420), tmp_path / "own")
    files = {path.name: path.read_bytes() for path in (tmp_path / "own").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}


def test_another_models_tokenizer_grows_once(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate("abcdefgh12345678.")}, []))
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(False), decoders.ByteLevel()
    other = PreTrainedTokenizerFast(tokenizer_object=core)
    with pytest.raises(TokenizerError, match="64 chess tokens"):
        square_ids(other)
    assert add_chess_tokens(other) == 76 + 3
    assert add_chess_tokens(other) == 0
    assert other.pad_token == "<end>"
    assert decode(other, encode(other, "a<e4><N>b<end>")) == "a<e4><N>b<end>"
    assert encode(other, "abc") == [0, 1, 2]


def test_what_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="at least 336"):
        train_tokenizer(TEXTS, 300)
    with pytest.raises(TokenizerError, match=r"no tokenizer\.json"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match="not a tokenizer"):
        load_tokenizer(tmp_path)
