"""How long a round trains: by epochs of its own examples, or by tokens."""

from __future__ import annotations

from collections.abc import Sequence

import chess
import numpy as np
import pytest

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.language.tokenizer import train_tokenizer
from queen.training.examples import EncodedSet, Example, Turn
from queen.training.sampling import BatchPlan, Share
from queen.training.sft import Part
from stages.training import TrainParams, parts
from stages.tuning import _steps, _steps_of


def part(name: str, lengths: Sequence[int], share: float) -> Part:
    count, total = len(lengths), sum(lengths)
    encoded = EncodedSet(
        tokens=np.zeros(total, np.int32),
        answers=np.ones(total, np.bool_),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        weights=np.ones(count, np.float32),
        position_of=np.zeros(count, np.int32),
        positions=(Position(chess.STARTING_FEN),),
    )
    return Part(name, encoded, share)


def test_a_budget_of_tokens_is_met_by_the_batches_really_drawn() -> None:
    rng = np.random.default_rng(5)
    mixture = [
        part("seeds", rng.integers(100, 180, 400).tolist(), 0.3),
        part("curriculum", rng.integers(20, 60, 900).tolist(), 0.1),
    ]
    settings = TrainParams(batch_size=16)
    steps = _steps_of(60_000, mixture, settings)
    lengths = np.concatenate([each.examples.lengths for each in mixture])
    shares = [Share(each.name, each.examples.lengths, each.share) for each in mixture]
    plan = BatchPlan(shares, 16, steps, 3)
    met = sum(int(lengths[plan.batch_indices(step)].sum()) for step in range(steps))
    assert abs(met - 60_000) < 0.03 * 60_000


def test_without_a_budget_epochs_decide() -> None:
    mixture = [part("new", [50] * 320, 0.5), part("seeds", [50] * 10, 0.5)]
    settings = TrainParams(batch_size=16)
    assert _steps_of(0, mixture, settings) == 0
    assert _steps(mixture, "new", 2.0, settings) == 80


def test_a_round_without_examples_is_told_and_not_trained_for_one_step() -> None:
    mixture = [part("seeds", [50] * 10, 0.5)]
    with pytest.raises(QueenError, match="no example of 'new'") as caught:
        _steps(mixture, "new", 2.0, TrainParams())
    assert caught.value.where == "seeds"


def test_a_part_of_which_nothing_fits_is_named_with_the_room_it_had() -> None:
    start = Position(chess.STARTING_FEN)
    tokenizer = train_tokenizer(["on <e4> ?", "nothing there"], 340)
    example = Example(start, (Turn("on <e4> ?", "nothing there"),), source="q1")
    assert [p.name for p in parts(tokenizer, 64, {"q": ([example], 1.0), "r": ([], 1.0)})] == ["q"]
    with pytest.raises(QueenError, match=r"none of 1 examples .* tokens, at most 3") as caught:
        parts(tokenizer, 3, {"seeds": ([example], 0.7)})
    assert caught.value.where == "seeds, q1"
    assert "max_length" in caught.value.remedy
