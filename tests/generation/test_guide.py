"""Guided text: every move of the structured lines is legal, whatever the model would say."""

from __future__ import annotations

import random

import chess
import pytest

from queen.games.chess.notation import move_text
from queen.games.chess.position import Position
from queen.generation.guide import LegalMoves
from queen.language.explanation import ExplanationError, parse
from queen.language.tokenizer import CHESS_TOKENS, train_tokenizer

POSITIONS = [
    chess.STARTING_FEN,
    "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1",
    "8/P6k/8/8/8/8/7p/K7 w - - 0 1",
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
    "4k3/8/8/8/8/8/4r3/4K2R w K - 0 1",
]
TOKENIZER = train_tokenizer(["best line candidate 0.5 After , the"] * 3, 340)
VOCABULARY = TOKENIZER.get_vocab()


def text_of(token: int) -> str:
    return str(TOKENIZER.decode([token]))


def babble(fen: str, rng: random.Random, prefix: str = "") -> str:
    """A wild speaker: structured lines whose moves are any tokens that the guide lets through."""
    guide = LegalMoves(chess.Board(fen), VOCABULARY, text_of, prefix)
    written = prefix
    chess_ids = [VOCABULARY[token] for token in CHESS_TOKENS]

    def put(token: int) -> None:
        nonlocal written
        guide.advance(token)
        written += text_of(token)

    def say(text: str) -> None:
        for token in TOKENIZER(text, add_special_tokens=False)["input_ids"]:
            assert guide.allowed() is None, "plain text is offered where a move must go on"
            put(token)

    def move() -> bool:
        """One move by chance; False where the guide lets none begin."""
        if not (first := [t for t in chess_ids[64:] if t not in set(guide.banned())]):
            return False
        put(rng.choice(first))
        while (allowed := guide.allowed()) is not None:
            put(rng.choice(list(allowed)))
        return True

    if not prefix:
        say("best ")
        assert move()
    say("\nline ")
    move()
    for _ in range(rng.randrange(4)):
        say(" ")
        if not move():
            break
    for _ in range(rng.randrange(1, 4)):
        say("\ncandidate ")
        if not move():
            break
        say(" 0.5 line ")
        assert move() or guide.here.is_game_over(), "the candidate's line may not begin"
    return written


@pytest.mark.parametrize("fen", POSITIONS)
def test_a_guided_babbler_writes_only_legal_moves(fen: str) -> None:
    position = Position.from_fen(fen)
    reasons = set()
    for seed in range(40):
        text = babble(fen, random.Random(seed)).replace(" line\n", "\n").rstrip()
        try:
            parse(text, position)
        except ExplanationError as error:
            reasons.add(str(error.reason))
    assert not {r for r in reasons if "illegal" in r or "wrong_piece" in r or "malformed" in r}
    assert not reasons & {"line_not_best", "best_not_candidate", "duplicate_candidate"}


def test_it_goes_on_from_a_prefix() -> None:
    board = chess.Board()
    prefix = "best " + move_text(board, "g1f3")
    for seed in range(20):
        text = babble(board.fen(), random.Random(seed), prefix)
        assert text.startswith(prefix + "\nline <N><g1><f3>")


def test_prose_is_free_and_ends_the_guide() -> None:
    guide = LegalMoves(chess.Board(), VOCABULARY, text_of, "best <N><g1><f3>\nline <N><g1><f3>\n")
    tokens = TOKENIZER("After <q><d8><h4>", add_special_tokens=False)["input_ids"]
    going_on = [guide.advance(token) for token in tokens]
    assert False in going_on


def test_a_finished_game_lets_no_move_begin() -> None:
    mated = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
    guide = LegalMoves(chess.Board(mated), VOCABULARY, text_of, "best ")
    assert set(guide.banned()) == {VOCABULARY[t] for t in CHESS_TOKENS[64:]}


FOOLS = "rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2"
(NEWLINE,) = TOKENIZER("\n", add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    ("written", "ends"),
    [
        ("best <q><d8><h4>\nline <q><d8><h4>", True),
        ("best <q><d8><h4>\nline <q><d8><h4>\ncandidate <q><d8><h4> 1.00", True),
        ("best <q><d8><h4>\nline <q><d8><h4>\ncandidate <q><d8><h4> 1.0", False),
        ("best <q><d8><h4>\nline <q><d8><h4>\ncandidate <q><d8><h4>", False),
        ("best <p><d7><d6>\nline <p><d7><d6>", False),
        ("best <p><d7><d6>\nline <p><d7><d6> <P><h2><h3> <q><d8><h4>", True),
    ],
)
def test_where_a_move_leaves_none_the_row_ends(written: str, ends: bool) -> None:
    guide = LegalMoves(chess.Board(FOOLS), VOCABULARY, text_of, written, newline=NEWLINE)
    assert guide.allowed() == ([NEWLINE] if ends else None)
    if ends:
        assert guide.advance(NEWLINE)
        assert guide.allowed() is None
    without = LegalMoves(chess.Board(FOOLS), VOCABULARY, text_of, written)
    assert without.allowed() is None
