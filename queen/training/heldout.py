"""How many held-out questions a model answers exactly, type by type.

An answer counts if greedy decoding would write it, token for token, its end included. That is
asked without decoding: give the model the right answer and see whether each of its tokens is the
most likely one after those before it. Where all are, greedy decoding takes each of them in turn
and writes just this answer; where the first that is not stands at j, it writes something else at
j. So the two agree on every question (but for ties and the last bits of another batch shape), and
one forward pass stands for as many as the answer has tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from queen.language.questions.bank import EXPERT_MOVE, Question
from queen.networks.expert import Expert
from queen.networks.queen import QueenModel
from queen.training.curriculum import question_turn
from queen.training.examples import EncodedSet, Example, Tokenizer, encode_examples
from queen.training.loop import deterministic
from queen.training.sft import make_batch, target_logits
from queen.training.states import PositionStates
from queen.training.world import own_device


@dataclass
class Tally:
    """Questions asked, answered exactly, and right by always giving the majority answer."""

    asked: int = 0
    right: int = 0
    majority_right: int = 0

    @property
    def accuracy(self) -> float:
        return self.right / self.asked if self.asked else 0.0

    @property
    def majority(self) -> float:
        return self.majority_right / self.asked if self.asked else 0.0

    def add(self, right: bool, by_majority: bool) -> None:
        self.asked += 1
        self.right += right
        self.majority_right += by_majority

    def to_json(self) -> dict[str, float]:
        """Counts and shares as plain data."""
        return {**vars(self), "accuracy": self.accuracy, "majority": self.majority}


@dataclass
class HeldOut:
    """Accuracy on held-out questions.

    Attributes:
        types: stage -> question type -> tally.
        subsets: stage -> question type -> subset (occupied, empty ...) -> tally.
        left_out: questions that could not be asked, by reason.
    """

    types: dict[str, dict[str, Tally]] = field(default_factory=dict)
    subsets: dict[str, dict[str, dict[str, Tally]]] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)

    def macro(self, stage: str) -> tuple[float, float]:
        """(accuracy, majority's accuracy) of a stage: the mean over its question types.

        Those of the published recipe: the expert's move is reported by itself.
        """
        types = self.types.get(stage, {})
        tallies = [tally for name, tally in types.items() if name != EXPERT_MOVE]
        if not tallies:
            return 0.0, 0.0
        return (
            sum(each.accuracy for each in tallies) / len(tallies),
            sum(each.majority for each in tallies) / len(tallies),
        )

    def add(self, question: Question, right: bool, by_majority: bool) -> None:
        """Count one question."""
        types = self.types.setdefault(question.stage, {})
        types.setdefault(question.type, Tally()).add(right, by_majority)
        if question.subset:
            kinds = self.subsets.setdefault(question.stage, {}).setdefault(question.type, {})
            kinds.setdefault(question.subset, Tally()).add(right, by_majority)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data, names in order."""
        return {
            "macro": {
                stage: dict(zip(("accuracy", "majority"), self.macro(stage), strict=True))
                for stage in sorted(self.types)
            },
            "types": _plain(self.types),
            "subsets": _plain(self.subsets),
            "left_out": dict(sorted(self.left_out.items())),
        }


def accuracy(
    model: QueenModel,
    tokenizer: Tokenizer,
    expert: Expert | None,
    questions: Sequence[Question],
    majority: Mapping[str, str],
    *,
    max_length: int = 1024,
    batch_size: int = 256,
    threads: int = 1,
    fen_text: bool = False,
    table_mb: int = 256,
) -> HeldOut:
    """Exact-match accuracy per stage, type and subset, each question asked alone.

    Args:
        expert: None for a model without encoder.
        questions: on games that were not trained on.
        majority: most frequent answer of each type in the training set (`majority_answers`).
        batch_size: questions of one forward pass.
    """
    turns = [question_turn(question, fen_text=fen_text) for question in questions]
    asked = [
        Example(question.position, (turn,)) for question, turn in zip(questions, turns, strict=True)
    ]
    encoded = encode_examples(asked, tokenizer, max_length)
    report = HeldOut(left_out=encoded.reject_counts)
    model.to(own_device())
    with deterministic(threads):
        states = None
        if expert:
            states = PositionStates(
                expert.on(model.device), encoded.positions, len(encoded), table_mb
            )
        right = exact_matches(model, encoded, states, batch_size)
    rejected = {item.index for item in encoded.rejected}
    kept = [each for index, each in enumerate(questions) if index not in rejected]
    for question, hit in zip(kept, right.tolist(), strict=True):
        report.add(question, hit, majority.get(question.type) == question.answer)
    return report


@torch.no_grad()
def exact_matches(
    model: QueenModel, examples: EncodedSet, states: PositionStates | None, batch_size: int = 256
) -> NDArray[np.bool_]:
    """[n] whether greedy decoding after each prompt writes the example's answer (see above)."""
    right = np.ones(len(examples), np.bool_)
    model.eval()
    for indices in _by_length(examples, batch_size):
        batch = make_batch(examples, indices, model.config.pad_id)
        read = states.of(batch.positions.numpy(), model.device) if states else None
        logits, wanted = target_logits(model, batch, read)
        wrong = (logits.argmax(-1) != wanted).cpu().numpy()
        rows = batch.targets.nonzero()[:, 0].numpy()
        right[indices[rows[wrong]]] = False
    return right


def _by_length(examples: EncodedSet, batch_size: int) -> Iterator[NDArray[np.int64]]:
    order = np.argsort(examples.lengths, kind="stable")
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def _plain(tallies: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: each.to_json() if isinstance(each, Tally) else _plain(each)
        for name, each in sorted(tallies.items())
    }
