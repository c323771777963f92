"""Held-out accuracy: equal to greedy decoding, and counted as said."""

from __future__ import annotations

import chess
import pytest
import torch

from queen.games.chess.position import Position
from queen.language.questions.bank import Question
from queen.training.curriculum import majority_answers, question_examples, question_turn
from queen.training.examples import Example, encode_examples
from queen.training.heldout import HeldOut, accuracy, exact_matches
from queen.training.loop import TrainSettings, deterministic
from queen.training.sft import Part, fine_tune
from queen.training.states import PositionStates


@pytest.fixture(scope="module")
def trained(new_model, questions, tokenizer, expert, tmp_path_factory):
    """A model that knows some of the answers."""
    model = new_model()
    encoded = encode_examples(question_examples(questions, 1, 0), tokenizer, 256)
    settings = TrainSettings(
        steps=120, batch_size=12, lr=6e-3, warmup_steps=5, precision="fp32", threads=1,
        checkpoint_every_s=0,
    )  # fmt: skip
    work = tmp_path_factory.mktemp("trained")
    fine_tune(model, expert, [Part("all", encoded, 1.0)], settings, work=work)
    return model.eval()


@torch.no_grad()
def decodes_it(model, tokenizer, expert, question: Question) -> bool:
    """Whether decoding one token at a time writes the answer."""
    turn, states = question_turn(question), expert.states([question.position])
    prompt, wanted = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (turn.prompt, turn.answer)
    )
    ids = list(prompt)
    while len(ids) < len(prompt) + len(wanted) and ids[-1] != tokenizer.eos_token_id:
        ids.append(int(model(torch.tensor([ids]), states=states)[0, -1].argmax()))
    return ids[len(prompt) :] == wanted


def test_teacher_forced_matches_are_those_of_greedy_decoding(trained, questions, tokenizer, expert):
    some = questions[:18]
    encoded = encode_examples(
        [Example(question.position, (question_turn(question),)) for question in some],
        tokenizer,
        256,
    )
    states = PositionStates(expert, encoded.positions, 1000, 64)
    matches = exact_matches(trained, encoded, states, batch_size=7)
    with deterministic(1):
        decoded = [decodes_it(trained, tokenizer, expert, question) for question in some]
    assert matches.tolist() == decoded
    assert 3 < sum(decoded) < 18


def test_accuracy_is_counted_by_type_subset_and_stage(trained, questions, tokenizer, expert):
    majority = majority_answers(questions)
    report = accuracy(trained, tokenizer, expert, questions, majority, threads=1)
    types = report.types["static-current"] | report.types["dynamic-current"]
    assert set(types) == {question.type for question in questions}
    assert sum(tally.asked for tally in types.values()) == len(questions)
    for kind, tally in types.items():
        answers = [question.answer for question in questions if question.type == kind]
        assert tally.majority_right == max(map(answers.count, answers))
    on = report.subsets["static-current"]["piece_on"]
    assert {"occupied", "empty"} <= set(on)
    assert sum(tally.asked for tally in on.values()) == types["piece_on"].asked
    assert sum(tally.right for tally in on.values()) == types["piece_on"].right
    here = report.types["static-current"].values()
    mean = sum(tally.right / tally.asked for tally in here) / len(here)
    assert report.macro("static-current")[0] == pytest.approx(mean)
    assert report.macro("no such stage") == (0.0, 0.0)
    plain = report.to_json()
    assert plain["macro"]["static-current"]["accuracy"] == pytest.approx(mean)
    assert plain["types"]["static-current"]["piece_on"]["asked"] == types["piece_on"].asked


def test_what_cannot_be_asked_is_said(trained, questions, tokenizer, expert):
    report = accuracy(trained, tokenizer, expert, questions, {}, max_length=14, threads=1)
    asked = sum(t.asked for types in report.types.values() for t in types.values())
    assert report.left_out["too long"] == len(questions) - asked > 0
    assert asked > 0


def test_the_majority_is_the_most_frequent_answer_and_the_first_of_equals(positions):
    def one(kind, answer):
        return Question("static-current", kind, positions[0], (), "?", answer, "")

    asked = [one("a", "x"), one("a", "y"), one("a", "y"), one("b", "q"), one("b", "p")]
    assert majority_answers(asked) == {"a": "y", "b": "p"}


def test_an_empty_report_is_plain_data():
    assert HeldOut().to_json() == {"macro": {}, "types": {}, "subsets": {}, "left_out": {}}


def test_the_experts_move_is_told_apart_from_the_mean() -> None:
    report, start = HeldOut(), Position(chess.STARTING_FEN)
    for kind, right in (("in_check", True), ("moves", False), ("expert_move", False)):
        report.add(Question("dynamic-current", kind, start, (), "?", "!", "all"), right, right)
    assert report.macro("dynamic-current") == (0.5, 0.5)
    assert report.to_json()["types"]["dynamic-current"]["expert_move"]["asked"] == 1
