"""True of its own position, and put to another: by hand, and on sentences of every kind."""

from __future__ import annotations

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.evaluation.truth import ProseCount, count_prose, partners, truth_of
from queen.games.chess.position import Position
from queen.generation.explainer import salvage
from queen.language.claims import checkable, holds
from queen.language.explanation import parse
from queen.language.ground import Ground

START = Position(chess.STARTING_FEN)
SICILIAN = Position(chess.STARTING_FEN, ("e2e4", "c7c5", "g1f3", "d7d6"))
HEAD = """best <P><e2><e4>
line <P><e2><e4>
candidate <P><e2><e4> 0.55
"""
SENTENCES = {
    # sentence: (a claim for the board, playable and true at the start, the same in the Sicilian)
    "The <N> on <g1> is in place.": (True, (True, True), (True, False)),
    "Material is level.": (True, (True, True), (True, True)),
    "After <P><e2><e4>, the <P> on <e4> controls <d5>.": (True, (True, True), (False, False)),
    "After <P><e2><e4>, the <P> on <e4> controls <f6>.": (True, (True, False), (False, False)),
    "After <P><e2><e5>, the <P> on <e5> hangs.": (True, (False, False), (False, False)),
    "<P><d2><d4> is a sound move.": (False, (False, False), (False, False)),
    "<P><d2><d5> is a sound move.": (False, (False, False), (False, False)),
    "White is better, says the book.": (False, (False, False), (False, False)),
}


def counted(text: str, here: Position, elsewhere: Position, finished: bool = True) -> ProseCount:
    return count_prose(text, Ground(here), Ground(elsewhere), finished=finished)


@pytest.mark.parametrize(("sentence", "told"), SENTENCES.items())
def test_a_sentence_is_checked_here_and_elsewhere(
    sentence: str, told: tuple[bool, tuple[bool, bool], tuple[bool, bool]]
) -> None:
    claim, here, elsewhere = told
    found = counted(HEAD + sentence, START, SICILIAN)
    assert (found.sentences, found.claims) == (1, claim)
    assert (found.playable, found.true) == here
    assert (found.playable_elsewhere, found.true_elsewhere) == elsewhere
    assert found.readable == (sentence != "White is better, says the book.")


def test_what_only_an_engine_decides_is_no_claim_where_its_moves_are_illegal_either() -> None:
    """Else the shuffled prose would make more claims than the prose itself, all of them false."""
    found = counted(HEAD + "<P><d2><d4> is a sound move.", START, SICILIAN)
    assert found.claims == 0


def test_prose_counts_where_the_rest_of_the_text_cannot_be_read() -> None:
    prose = "\n".join(SENTENCES)
    whole = counted(HEAD + prose, START, SICILIAN)
    assert (whole.sentences, whole.claims, whole.true, whole.true_elsewhere) == (8, 5, 3, 1)
    assert counted("best <P><e2><e5>\n" + prose, START, SICILIAN) == whole
    assert counted(HEAD + prose + "\nMaterial is lev", START, SICILIAN, finished=False) == whole
    assert counted("", START, SICILIAN) == ProseCount()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(sorted(SENTENCES)), max_size=6), st.integers(0, 3))
def test_the_prose_is_that_of_explanations_and_of_what_is_salvaged(
    said: list[str], fault: int
) -> None:
    rows = (HEAD + "\n".join(said)).rstrip().split("\n")
    if fault:
        rows[2] += " line <p><e7><e4>"
    text = "\n".join(rows)
    prose = salvage(text, START).prose if fault else parse(text, START).prose
    claims = [claim for sentence in prose for claim in sentence.claims if checkable(claim)]
    ours = counted(text, START, SICILIAN)
    assert ours.sentences == len(prose)
    assert ours.true == sum(holds(claim, START) for claim in claims)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), max_size=20), st.integers(0, 99))
def test_partners_are_a_permutation_without_fixed_points(turns: list[bool], seed: int) -> None:
    found = partners(turns, seed)
    assert sorted(found) == list(range(len(turns)))
    if len(turns) > 1:
        assert all(other != n for n, other in enumerate(found))
    if 1 not in (turns.count(True), turns.count(False)):
        assert [turns[other] for other in found] == turns
    assert found == partners(turns, seed)


def test_another_seed_gives_other_partners() -> None:
    assert partners([True] * 40, 1) != partners([True] * 40, 2)


def test_shares_are_over_all_claims_and_intervals_over_games() -> None:
    counts = [
        ProseCount(sentences=4, readable=4, claims=3, playable=3, true=3, playable_elsewhere=2),
        ProseCount(4, 3, 1, 1, 1, 1, 1),
        ProseCount(2, 0, 0),
        ProseCount(2, 2, 2, 1, 0, 0, 0),
    ]
    found = truth_of(counts, ["a", "b", "b", "c"], seed=1, samples=400)
    assert found.checkable is not None
    assert found.checkable.estimate == pytest.approx(6 / 12)
    assert found.truth is not None
    assert (found.truth.estimate, found.truth.low, found.truth.high) == (
        pytest.approx(4 / 6),
        0.0,
        1.0,
    )
    assert found.truth_shuffled is not None
    assert found.truth_shuffled.estimate == pytest.approx(1 / 6)
    assert found.truth_gain is not None
    assert found.truth_gain.estimate == pytest.approx(3 / 6)
    assert found.truth_playable is not None
    assert found.truth_playable.estimate == pytest.approx(4 / 5)
    assert found.truth_shuffled_playable is not None
    assert found.truth_shuffled_playable.estimate == pytest.approx(1 / 3)


def test_shares_of_nothing_are_none() -> None:
    found = truth_of([ProseCount(sentences=2)], ["a"], seed=1)
    assert found.truth is None
    assert found.truth_gain is None
    assert found.checkable is not None
    assert found.checkable.estimate == 0.0
    assert truth_of([], [], seed=1).checkable is None
