"""Sentences lead to their claims and back, one to one."""

from __future__ import annotations

import re

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language_data import claims, positions, sentences

from queen.language import grammar
from queen.language.grammar import (
    SKELETONS,
    Skeleton,
    forms,
    frames,
    read,
    recognise,
    stated,
    write,
)
from queen.language.ground import Ground
from queen.language.people import IN_WORDS
from queen.language.vocabulary import IMPOSSIBLE, KINDS, Claim

START = Ground(chess.Board())


def test_every_kind_has_skeletons_that_use_all_its_arguments() -> None:
    assert set(SKELETONS) == set(KINDS)
    for kind, skeletons in SKELETONS.items():
        wanted = {str(i) for i in range(len(KINDS[kind]))}
        for skeleton in skeletons:
            fields = [m[1] for m in re.finditer(r"\{(\w+)\}", skeleton.body)]
            assert sorted(fields) == sorted(wanted), skeleton


def test_each_shape_belongs_to_one_skeleton_and_frame() -> None:
    pairs = {(form.frame, form.skeleton.name) for form in forms().values()}
    skeletons = sum(len(group) for group in SKELETONS.values())
    assert len(pairs) == skeletons * len(grammar.HERE_FRAMES + grammar.AFTER_FRAMES)


@pytest.mark.parametrize(
    "twin",
    [
        Skeleton("controls", 99, "{1} is controlled by {0}"),
        Skeleton("hanging", 99, "{0} is isolated"),
        Skeleton("reach", 99, "{0} has {1} legal {1:moves|move}"),
    ],
)
def test_a_skeleton_that_reads_like_another_is_refused(twin: Skeleton) -> None:
    known = dict(forms())
    with pytest.raises(ValueError, match="reads like"):
        grammar._register(known, "{body}.", twin)


def test_a_skeleton_whose_words_read_like_a_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="like slots"):
        grammar._register({}, "{body}.", Skeleton("hanging", 99, "{0} helps White"))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_written_claims_are_read_back(data: st.DataObject) -> None:
    ground = Ground(data.draw(positions()))
    claim = data.draw(claims(ground))
    skeleton = data.draw(st.sampled_from(SKELETONS[claim.kind]))
    frame = data.draw(st.sampled_from(frames(claim.at)))
    text = write(claim, ground, skeleton, frame)
    assert read(text, ground) == (claim,)
    assert stated(text) == claim
    found = recognise(text)
    assert found is not None
    assert (found[0].skeleton, found[0].frame) == (skeleton, frame)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_sentence_says_the_same_anywhere_or_speaks_of_moves_nobody_can_play(
    data: st.DataObject,
) -> None:
    sentence = data.draw(sentences(Ground(data.draw(positions()))))
    claim = stated(sentence.text)
    assert claim is not None
    (found,) = read(sentence.text, Ground(data.draw(positions())))
    assert found in (claim, Claim(IMPOSSIBLE, (), found.args))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_sentences_are_plain_correct_english(data: st.DataObject) -> None:
    ground = Ground(data.draw(positions()))
    sentence = data.draw(sentences(ground))
    found = recognise(sentence.text)
    assert found is not None
    form, claim, _ = found
    for text in (sentence.text, write(claim, ground, form.skeleton, form.frame, IN_WORDS)):
        assert re.match(r"[A-Z<\d]", text)
        assert text.endswith(".")
        assert "  " not in text
        assert not re.search(r"\b1 (pawns|pieces|moves|squares)\b", text)
        assert not re.search(r"\b(0|[2-9]|\d\d+) (pawn|piece|move|square|minor piece)\b", text)
        assert not re.search(r"(?i)\ba [aeiou]", text)
        assert not re.search(r"\b([a-z]{2,}) \1\b", text)
    assert "<" not in text


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="<>NPe4f3 the on.,W", max_size=60))
def test_other_text_makes_no_claim(text: str) -> None:
    assert read(text, START) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "White is better.",
        "The <N> on <g1> is in place",
        "the <N> on <g1> is in place.",
        "The <N> on <g1> is  in place.",
        "The <N> on <g1> has 1 legal moves.",
        "Once <P><e2><e4> are played, the <P> on <e4> hangs.",
        "After <P><e2><e4>, the <P> on <e4> hangs, surely.",
        "<N><g1><f3> <p><e7><e5> is a sound move.",
        "The <P> on <e2> forks the <p> on <e7>.",
    ],
)
def test_near_misses_make_no_claim(text: str) -> None:
    assert read(text, START) == ()
    assert stated(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "After <P><e2><e5>, the <P> on <e5> hangs.",
        "After <N><e2><e4>, the <P> on <e4> hangs.",
        "<p><e2><e4> is a sound move.",
        "After <P><e2><e4>, <P><d2><d4> is a sound move.",
        "After <P><e2><e4><Q>, <p><d7><d5> is a sound move.",
    ],
)
def test_moves_nobody_can_play_make_an_impossible_claim(text: str) -> None:
    assert [claim.kind for claim in read(text, START)] == [IMPOSSIBLE]
    assert stated(text) is not None
