"""An answer's form and its moves are two things."""

from __future__ import annotations

import random

import chess
import pytest

from queen.games.chess.notation import move_text
from queen.games.chess.position import Position
from queen.language.explanation import Candidate, Explanation, Sentence, parse, render
from queen.language.form import NO_MOVE, line_of, prose_of

START = Position(chess.STARTING_FEN)
GOOD = """best <P><e2><e4>
line <P><e2><e4> <p><e7><e5> <N><g1><f3>
candidate <P><e2><e4> 0.55 line <p><e7><e5>
candidate <P><h2><h4> 0.41
After <P><e2><e4>, the <P> on <e4> controls <d5>."""


def test_a_sound_text_gives_its_line() -> None:
    assert line_of(GOOD, START) == ("e2e4", "e7e5", "g1f3")


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("line <P><e2><e4> <p><e7><e5>", "line <P><e2><e4> <p><e7><e4>", ("e2e4", NO_MOVE)),
        ("line <P><e2><e4> <p><e7><e5>", "line <P><e2><e4> <n><e7><e5>", ("e2e4", NO_MOVE)),
        ("<P><e2><e4>", "<P><e2><e5>", (NO_MOVE,)),
        ("0.55 line <p><e7><e5>", "0.55 line <p><e7><e3>", ("e2e4", "e7e5", "g1f3")),
        ("candidate <P><h2><h4>", "candidate <P><h2><h5>", ("e2e4", "e7e5", "g1f3")),
        ("candidate <P><h2><h4>", "candidate <P><e2><e4>", ("e2e4", "e7e5", "g1f3")),
    ],
)
def test_an_illegal_move_fails_where_it_stands(old: str, new: str, line: tuple[str, ...]) -> None:
    assert line_of(GOOD.replace(old, new), START) == line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("best ", "the best "),
        ("best <P><e2><e4>", "best <P><d2><d4>"),
        ("0.55", "0.5"),
        ("candidate <P><h2><h4> 0.41", "\n".join(["candidate <P><h2><h4> 0.41"] * 8)),
        ("<N><g1><f3>", "<N><g1>"),
        ("After", "line"),
        ("candidate <P><e2><e4> 0.55 line <p><e7><e5>\n", ""),
        ("\nAfter", "\n\nAfter"),
        ("line <P><e2><e4>", "line <P><e2><e4>" + " <p><e7><e5>" * 12),
        ("candidate <P><h2><h4> 0.41", "candidate <P><h2><h4> 0.41 line" + " <p><e7><e5>" * 13),
    ],
)
def test_what_has_not_the_form_is_no_answer(old: str, new: str) -> None:
    assert old in GOOD
    assert line_of(GOOD.replace(old, new), START) is None


def test_a_text_cut_off_is_no_answer() -> None:
    assert line_of(GOOD, START, finished=False) is None
    assert line_of("", START) is None


@pytest.mark.parametrize("seed", range(30))
def test_what_parse_takes_is_taken_with_the_same_line(seed: int) -> None:
    rng = random.Random(seed)
    board = chess.Board()
    for _ in range(rng.randrange(40)):
        board.push(rng.choice(list(board.legal_moves)))
        if board.is_game_over():
            return
    position = Position(board.fen(en_passant="legal"))
    moves = rng.sample(list(board.legal_moves), min(3, board.legal_moves.count()))
    best = moves[0]
    board.push(best)
    line = [best.uci(), *[m.uci() for m in list(board.legal_moves)[:1]]]
    candidates = tuple(Candidate(m.uci(), rng.random()) for m in moves)
    sentences = tuple(Sentence(text) for text in ("Black is better.", "a lone row")[: seed % 3])
    text = render(Explanation(position.fen, best.uci(), tuple(line), candidates, sentences))
    assert line_of(text, position) == parse(text, position).line
    assert move_text(position.board(), best.uci()) in text


PROSE = GOOD.split("\n")[-1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("best <P><e2><e4>", "best <P><e2><e5>"),
        ("best <P><e2><e4>\n", ""),
        ("0.41", "1.41"),
        ("candidate <P><h2><h4>", "candidate"),
        ("line <P><e2><e4> <p><e7><e5>", "line"),
    ],
)
def test_prose_is_found_whatever_is_wrong_above_it(old: str, new: str) -> None:
    assert old in GOOD
    assert prose_of(GOOD.replace(old, new, 1) + "\nWords.") == (PROSE, "Words.")


def test_rows_that_are_no_sentences_are_no_prose() -> None:
    assert prose_of(f"{GOOD}\nbest again\n\n padded\nlinear.") == (PROSE, "linear.")
    assert prose_of(f"{GOOD}\nThe last row is n", finished=False) == (PROSE,)
    assert prose_of("") == prose_of("cut", finished=False) == ()
