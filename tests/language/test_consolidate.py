"""Folding children into a parent: nothing added, nothing false kept, everything led back."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from functools import cache

import chess
import pytest
from derivation import derive
from hypothesis import given, settings
from hypothesis import strategies as st
from language_data import (
    explained,
    greedy_facts,
    greedy_node,
    legal_ucis,
    many_positions,
    positions,
)

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.language.claims import checkable
from queen.language.consolidate import Rules, consolidate
from queen.language.engine_facts import EngineFacts, Node
from queen.language.explanation import Candidate, Explanation, Sentence, parse, render
from queen.language.grammar import read
from queen.language.ground import Ground
from queen.language.proof import Violation, check
from queen.language.provenance import Child, Consolidated, Inputs, Origin
from queen.language.teacher_hce import TeacherInput, write
from queen.language.vocabulary import Claim

SPOILT = (
    "The <Q> on <e4> hangs.",
    "A free remark.",
    "After <N><g1><g3>, the <N> on <g3> is in place.",
)


def one_move(move: str, loss: float) -> Node:
    """What is known of a position of one half where only this move was judged."""
    return Node(0.5, move if loss <= 0 else "", (), {move: 0.5 - loss})


def child_text(position: Position, rng: random.Random, facts: EngineFacts) -> Explanation:
    """What a weak writer says: a truthful text about a random move, spoilt by three sentences."""
    ground = Ground(position)
    said = write(TeacherInput(position, facts), rng.randrange(999), 0)
    spoilt = tuple(Sentence(text, read(text, ground)) for text in SPOILT)
    prose = [*said.prose, *spoilt, said.prose[0]]
    rng.shuffle(prose)
    best = rng.choice([said.best, rng.choice(legal_ucis(ground.root))])
    if best == said.best:
        return replace(said, prose=tuple(prose))
    return Explanation(position.fen, best, (best,), (Candidate(best, 0.5),), tuple(prose))


def grown(position: Position, rng: random.Random, depth: int = 2) -> Inputs:
    """A tree: three candidates, children explained or not, the erring ones roots themselves."""
    legal = legal_ucis(position.board())
    moves = rng.sample(legal, min(3, len(legal)))
    node = greedy_node(position.board(), moves)
    return Inputs(position, node, tuple(_child(position.child(m), m, rng, depth) for m in moves))


def _child(position: Position, move: str, rng: random.Random, depth: int) -> Child:
    if position.board().is_game_over():
        return Child(move, reason="game_over")
    facts = greedy_facts(position, ())
    explanation = child_text(position, rng, facts) if rng.random() < 0.8 else None
    asked = [explanation.best] if explanation else []
    node = greedy_node(position.board(), asked)
    child = Child(move, explanation, "" if explanation else "no_best", EngineFacts({(): node}))
    if depth > 1 and child.errs is not False and rng.random() < 0.8:
        inputs = grown(position, rng, depth - 1)
        below = consolidate(inputs, 1, rng.randrange(999))
        merged = inputs.facts().merged([child.facts])
        values = {**inputs.node.values, **node.values}
        merged = EngineFacts({**merged.nodes, (): replace(node, values=values)}, merged.terms)
        child = replace(child, facts=merged, below=below)
    return child


@cache
def folded() -> tuple[tuple[Inputs, Consolidated], ...]:
    rng = random.Random(4)
    trees = [grown(position, rng) for position in many_positions(36, seed=8)]
    return tuple((inputs, consolidate(inputs, 3, i)) for i, inputs in enumerate(trees))


def test_nothing_is_said_that_cannot_be_led_back() -> None:
    for inputs, consolidated in folded():
        assert check(consolidated, inputs) == []


def test_the_text_is_an_explanation_of_the_root() -> None:
    for inputs, consolidated in folded():
        text = render(consolidated.explanation)
        assert parse(text, inputs.position) == consolidated.explanation
        assert 1 <= len(consolidated.explanation.prose) <= 6 or not consolidated.sentences


def test_best_and_scores_are_the_engines() -> None:
    for inputs, consolidated in folded():
        explanation, values = consolidated.explanation, inputs.node.values
        assert {c.move for c in explanation.candidates} == {c.move for c in inputs.children}
        assert values[explanation.best] == max(values[c.move] for c in inputs.children)
        for candidate in explanation.candidates:
            assert candidate.score == round(values[candidate.move], 2)


def test_lines_follow_the_child_unless_it_errs() -> None:
    origins = set()
    for inputs, consolidated in folded():
        children = {child.move: child for child in inputs.children}
        for candidate, source in zip(
            consolidated.explanation.candidates, consolidated.lines, strict=True
        ):
            child = children[candidate.move]
            origins.add(source.origin)
            if child.below is not None:
                assert candidate.line == child.below.explanation.line[:4]
            elif child.explanation is not None and child.errs is False:
                assert candidate.line == child.explanation.line[:4]
            elif child.node is not None:
                assert candidate.line == child.node.line[:4]
    assert {Origin.BELOW, Origin.CHILD, Origin.ENGINE} <= origins


def test_sentences_are_true_by_a_second_derivation() -> None:
    for inputs, consolidated in folded():
        for sentence in consolidated.explanation.prose:
            (claim,) = sentence.claims
            assert not checkable(claim) or derive(claim, inputs.position.board())


def test_what_models_wrote_is_kept_wherever_a_child_parses() -> None:
    for inputs, consolidated in folded():
        if any(child.errs is not None for child in inputs.children):
            assert consolidated.model_share > 0
    kept = sum(c.model_sentences for _, c in folded())
    assert kept > 0.4 * sum(len(c.sentences) for _, c in folded())
    below = [s for _, c in folded() for s in c.sentences if s.origin is Origin.BELOW]
    assert {source.model for source in below} == {True, False}


def test_engine_sentences_stay_few_and_nothing_is_said_twice() -> None:
    for _, consolidated in folded():
        claims = [s.claims[0] for s in consolidated.explanation.prose]
        assert sum(not checkable(claim) for claim in claims) <= 3
        assert len(set(claims)) == len(claims)
    claims = [s.claims[0] for _, c in folded() for s in c.explanation.prose]
    assert sum(map(checkable, claims)) >= 0.5 * len(claims)


def test_what_is_cut_is_counted_by_reason() -> None:
    reasons = {reason for _, consolidated in folded() for reason in consolidated.cut}
    assert {"false", "no_claim", "impossible", "duplicate", "not_selected"} <= reasons
    for inputs, consolidated in folded():
        texts = [child.explanation for child in inputs.children if child.explanation]
        texts += [child.below.explanation for child in inputs.children if child.below]
        offered = sum(len(text.prose) for text in texts)
        kept = sum(source.index >= 0 for source in consolidated.sentences)
        assert offered == kept + sum(consolidated.cut.values())


def test_records_come_back_whole_and_folding_repeats() -> None:
    for i, (inputs, consolidated) in enumerate(folded()):
        data = json.loads(json.dumps(consolidated.to_json()))
        assert Consolidated.from_json(data) == consolidated
        assert consolidate(inputs, 3, i) == consolidated


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_child_text_folds_soundly(data: st.DataObject) -> None:
    position = data.draw(positions())
    moves = data.draw(
        st.lists(st.sampled_from(legal_ucis(position.board())), min_size=1, max_size=3, unique=True)
    )
    node = Node(0.7, moves[0], (), {m: data.draw(st.floats(0, 0.7)) for m in moves})
    children = []
    for move in moves:
        other, other_position = data.draw(explained())
        after = position.child(move)
        fits = _rewritten(other, other_position, after)
        loss = data.draw(st.sampled_from([0.0, 0.05, 0.3]))
        known = {(): one_move(fits.best, loss)} if fits else {}
        children.append(Child(move, fits, "" if fits else "no_best", EngineFacts(known)))
    inputs = Inputs(position, node, tuple(children))
    consolidated = consolidate(inputs, 1, 1)
    assert check(consolidated, inputs) == []
    assert parse(render(consolidated.explanation), position) == consolidated.explanation
    if any(child.errs is not None for child in children):
        assert consolidated.model_share > 0


def _rewritten(said: Explanation, _: Position, after: Position) -> Explanation | None:
    """Another position's prose as a text about this one, read again."""
    legal = legal_ucis(after.board())
    if not legal:
        return None
    ground = Ground(after)
    prose = tuple(Sentence(s.text, read(s.text, ground)) for s in said.prose)
    return Explanation(after.fen, legal[0], (legal[0],), (Candidate(legal[0], 0.5),), prose)


START = Position.from_fen(chess.STARTING_FEN)
CHILD_TEXT = """best <p><d7><d5>
line <p><d7><d5> <P><e4><d5>
candidate <p><d7><d5> 0.90 line <P><e4><d5>
candidate <p><g7><g5> 0.10
Here <p><d7><d5> scores 0.90 for Black.
<p><g7><g5> falls 0.80 short of <p><d7><d5>.
<p><a7><a5> is 0.10 worse than <p><d7><d5>.
After <p><d7><d5>, the <p> on <d5> aims at the <P> on <e4>.
In this position the <P> on <e4> is in place."""


def small(text: str = CHILD_TEXT) -> Inputs:
    after = START.child("e2e4")
    verdict = Node(0.46, "d7d5", ("d7d5", "e4d5", "d8d5"), {"d7d5": 0.46, "g7g5": 0.31})
    said = parse(text, after)
    first = Child("e2e4", said, "", EngineFacts({(): verdict}))
    node = Node(0.54, "e2e4", ("e2e4", "e7e5"), {"e2e4": 0.54, "f2f3": 0.43})
    return Inputs(START, node, (Child("f2f3", None, "unfinished"), first))


def test_a_small_tree_in_full() -> None:
    consolidated = consolidate(small(), 1, 1, Rules(engine_least=6))
    texts = [s.text for s in consolidated.explanation.prose]
    assert consolidated.explanation.line == ("e2e4", "d7d5", "e4d5")
    assert [c.score for c in consolidated.explanation.candidates] == [0.54, 0.43]
    assert "After <P><e2><e4> <p><d7><d5>, the <p> on <d5> aims at the <P> on <e4>." in texts
    claims = [s.claims[0] for s in consolidated.explanation.prose]
    assert Claim("score", ("e2e4",), ("d7d5", "Black", "0.46")) in claims
    assert Claim("loss", ("e2e4",), ("g7g5", "d7d5", "0.15")) in claims
    assert consolidated.cut == {"unverifiable": 1}
    assert check(consolidated, small()) == []


def test_a_child_that_errs_leads_to_the_engines_line() -> None:
    text = CHILD_TEXT.replace("best <p><d7><d5>", "best <p><g7><g5>").replace(
        "line <p><d7><d5> <P><e4><d5>\ncand", "line <p><g7><g5>\ncand"
    )
    consolidated = consolidate(small(text), 1, 1)
    assert consolidated.explanation.line == ("e2e4", "d7d5", "e4d5", "d8d5")
    assert consolidated.lines[0].origin is Origin.ENGINE


def test_without_any_child_the_engine_alone_is_heard() -> None:
    node = Node(0.54, "e2e4", ("e2e4", "e7e5"), {"e2e4": 0.54, "f2f3": 0.43})
    inputs = Inputs(START, node, (Child("f2f3", None, "empty"), Child("e2e4", None, "empty")))
    consolidated = consolidate(inputs, 1, 1)
    assert consolidated.explanation.line == ("e2e4", "e7e5")
    assert [s.claims[0].kind for s in consolidated.explanation.prose] == ["loss"]
    assert consolidated.model_share == 0
    assert check(consolidated, inputs) == []


def test_a_mate_needs_no_child() -> None:
    position = Position.from_fen("6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1")
    node = Node(1.0, "d1d8", ("d1d8",), {"d1d8": 1.0, "g1f1": 0.8})
    inputs = Inputs(
        position, node, (Child("d1d8", None, "game_over"), Child("g1f1", None, "empty"))
    )
    consolidated = consolidate(inputs, 1, 1)
    assert consolidated.explanation.prose[0].claims == (Claim("mates", (), ("d1d8",)),)
    assert check(consolidated, inputs) == []


def test_candidates_without_a_value_are_refused() -> None:
    inputs = Inputs(START, Node(0.5, "", (), {}), (Child("e2e4"),))
    with pytest.raises(QueenError, match="no candidate has a value"):
        consolidate(inputs, 1, 1)


def spoil(consolidated: Consolidated, how: str) -> Consolidated:
    """The same with one thing changed that no input bears out."""
    said, sources = consolidated.explanation, consolidated.sentences
    if how == "unsaid":
        text = "After <P><e2><e4>, the <Q> on <d1> is in place."
        claim = Claim("piece", ("e2e4",), ("Qd1",))
        return replace(consolidated, explanation=_with_first(said, text, claim))
    if how == "false":
        text = "After <P><e2><e4> <p><d7><d5>, the <p> on <d5> hangs."
        return replace(
            consolidated,
            explanation=_with_first(said, text, Claim("hanging", ("e2e4", "d7d5"), ("pd5",))),
        )
    if how == "free":
        free = (Sentence("White is simply better."), *said.prose[1:])
        return replace(consolidated, explanation=replace(said, prose=free))
    if how == "score":
        first = replace(said.candidates[0], score=0.99)
        changed = replace(said, candidates=(first, *said.candidates[1:]))
        return replace(consolidated, explanation=changed)
    if how == "best":
        changed = replace(said, best="f2f3", line=("f2f3",))
        return replace(consolidated, explanation=changed)
    if how == "line":
        first = replace(said.candidates[0], line=("c7c5",))
        changed = replace(said, line=("e2e4", "c7c5"), candidates=(first, *said.candidates[1:]))
        return replace(consolidated, explanation=changed)
    if how == "author":
        first_source = replace(sources[0], model=not sources[0].model)
        return replace(consolidated, sentences=(first_source, *sources[1:]))
    if how == "place":
        return replace(consolidated, sentences=(replace(sources[0], index=99), *sources[1:]))
    assert how == "missing"
    return replace(consolidated, sentences=sources[1:])


def _with_first(said: Explanation, text: str, claim: Claim) -> Explanation:
    assert read(text, Ground(START)) == (claim,)
    return replace(said, prose=(Sentence(text, (claim,)), *said.prose[1:]))


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("unsaid", "not_said_by_child"),
        ("false", "not_said_by_child"),
        ("free", "no_claim"),
        ("score", "score_not_engine"),
        ("best", "not_highest"),
        ("line", "line_not_sourced"),
        ("author", "wrong_author"),
        ("place", "not_said_by_child"),
        ("missing", "unsourced"),
    ],
)
def test_the_proof_finds_what_was_slipped_in(how: str, reason: str) -> None:
    consolidated = consolidate(small(), 1, 1)
    assert consolidated.sentences[0].origin is Origin.CHILD
    found = check(spoil(consolidated, how), small())
    assert reason in {violation.reason for violation in found}
    assert all(isinstance(violation, Violation) and violation.detail for violation in found)


def test_the_proof_finds_a_childs_own_falsehood() -> None:
    inputs = small(CHILD_TEXT + "\nThe <p> on <a7> hangs.")
    consolidated = consolidate(inputs, 1, 1)
    assert consolidated.cut["false"] == 1
    text = "After <P><e2><e4>, the <p> on <a7> hangs."
    claim = Claim("hanging", ("e2e4",), ("pa7",))
    source = replace(consolidated.sentences[0], index=5)
    changed = replace(
        consolidated,
        explanation=_with_first(consolidated.explanation, text, claim),
        sentences=(source, *consolidated.sentences[1:]),
    )
    assert [v.reason for v in check(changed, inputs)] == ["false"]
