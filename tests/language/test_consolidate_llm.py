"""The language model as consolidator: nothing of its own gets in."""

from __future__ import annotations

import json
import random
import re
from functools import cache

import pytest
from language_data import many_positions
from test_consolidate import grown

from queen.language.api.forms import Unusable
from queen.language.api.messages import Answer, Failure, Question
from queen.language.consolidate import Material, Rules, consolidate, material
from queen.language.consolidate_llm import folded, prompts_digest, question
from queen.language.explanation import parse, render
from queen.language.ground import Ground
from queen.language.people import sentence_for_people
from queen.language.proof import EVALUATIONS, check
from queen.language.provenance import Consolidated, Inputs

RULES = Rules(sentences=5)
Case = tuple[Inputs, Material, list[str], Question]


@cache
def cases() -> tuple[Case, ...]:
    """Trees, what may be said of their roots, and those statements in words."""
    rng = random.Random(11)
    found = []
    for position in many_positions(14, seed=17):
        inputs = grown(position, rng)
        known = material(inputs, 1, 2, RULES)
        ground = Ground(position)
        words = [sentence_for_people(sentence, ground) for sentence in known.said]
        found.append((inputs, known, words, question("x", inputs, known, RULES, closed=True)))
    return tuple(found)


def fold(case: Case, sentences: list[str]) -> Consolidated | Unusable:
    inputs, known, _, _ = case
    asked = question("x", inputs, known, RULES, closed=False)
    text = json.dumps({"sentences": sentences})
    return folded(Answer(text, "stop", 1, 1), asked, inputs, known, RULES)


def test_all_that_may_be_said_is_shown_and_can_be_said() -> None:
    for case in cases():
        _, known, words, asked = case
        assert all(f"- {text}" in asked.user for text in words)
        assert set(asked.schema["properties"]["sentences"]["items"]["enum"]) == set(words)
        for text, sentence, source in zip(words, known.said, known.sources, strict=True):
            made = fold(case, [text])
            assert isinstance(made, Consolidated)
            assert made.explanation.prose == (sentence,)
            assert made.sentences == (source,)


def test_a_choice_in_any_order_is_kept_in_that_order_and_proved() -> None:
    rng = random.Random(3)
    for case in cases():
        inputs, known, words, _ = case
        order = rng.sample(range(len(words)), min(4, len(words)))
        made = fold(case, [words[i] for i in order])
        assert isinstance(made, Consolidated)
        assert made.explanation.prose == tuple(known.said[i] for i in order)
        assert check(made, inputs) == []
        assert parse(render(made.explanation), inputs.position) == made.explanation


def test_candidates_and_lines_are_those_of_the_rules() -> None:
    for case in cases():
        inputs, _, words, _ = case
        made, rules = fold(case, words[:1]), consolidate(inputs, 1, 2, RULES)
        assert isinstance(made, Consolidated)
        assert made.explanation.candidates == rules.explanation.candidates
        assert made.explanation.line == rules.explanation.line
        assert made.lines == rules.lines


def test_what_nobody_said_is_cut_and_counted() -> None:
    for case in cases():
        inputs, known, words, _ = case
        other = next(w for c in cases() for w in c[2] if _foreign(w, case))
        made = fold(case, [other, "The position is beautiful.", words[0], words[0], "<end>"])
        assert isinstance(made, Consolidated)
        assert made.explanation.prose == (known.said[0],)
        assert made.cut["llm_repeated"] == 1
        assert made.cut["llm_malformed"] == 1
        assert made.cut["llm_no_claim"] + made.cut.get("llm_untraceable", 0) == 2
        assert check(made, inputs) == []
    assert any("llm_untraceable" in _cut(case) for case in cases())


def _foreign(words: str, case: Case) -> bool:
    return words not in case[2]


def _cut(case: Case) -> dict[str, int]:
    """What is cut when every statement is moved to another case."""
    others = [words for c in cases() if c is not case for words in c[2]]
    made = fold(case, [*others, case[2][0]])
    assert isinstance(made, Consolidated)
    return dict(made.cut)


def test_an_evaluation_gets_the_engines_number() -> None:
    changed = 0
    for case in cases():
        _, known, words, _ = case
        for text, sentence in zip(words, known.said, strict=True):
            if sentence.claims[0].kind in EVALUATIONS:
                spoilt = re.sub(r"\d\.\d\d", "0.99", text)
                made = fold(case, [spoilt])
                assert isinstance(made, Consolidated)
                assert made.explanation.prose == (sentence,)
                changed += spoilt != text
    assert changed > 5


def test_no_more_is_kept_than_the_rules_allow() -> None:
    case = max(cases(), key=lambda case: len(case[2]))
    made = fold(case, case[2])
    assert isinstance(made, Consolidated)
    assert len(made.explanation.prose) == RULES.sentences
    assert made.cut["llm_too_many"] == len({s.claims[0] for s in case[1].said}) - RULES.sentences


def test_what_is_left_of_the_children_is_counted_like_the_rules_do() -> None:
    for case in cases():
        inputs, _, words, _ = case
        made = fold(case, words[:2])
        assert isinstance(made, Consolidated)
        texts = [child.explanation for child in inputs.children if child.explanation]
        texts += [child.below.explanation for child in inputs.children if child.below]
        offered = sum(len(text.prose) for text in texts)
        kept = sum(source.index >= 0 for source in made.sentences)
        theirs = {k: n for k, n in made.cut.items() if not k.startswith("llm_")}
        assert offered == kept + sum(theirs.values())


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Failure("timeout"), "api.timeout"),
        (Answer("Nothing to add.", "stop", 1, 1), "answer.not_json"),
        (Answer('{"sentences": []}', "stop", 1, 1), "answer.wrong_form"),
        (Answer('{"sentences": ["It is good."]}', "stop", 1, 1), "answer.nothing_kept"),
    ],
)
def test_an_answer_that_cannot_be_used_has_its_reason(reply: Answer | Failure, reason: str) -> None:
    inputs, known, _, _ = cases()[0]
    asked = question("x", inputs, known, RULES, closed=False)
    made = folded(reply, asked, inputs, known, RULES)
    assert isinstance(made, Unusable)
    assert made.reason == reason


def test_the_prompts_have_a_digest() -> None:
    assert len(prompts_digest()) == 64
