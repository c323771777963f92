"""The value network's measures against plain computations, one position at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from queen.engines.score import Score
from queen.evaluation.value import constant_logits, intervals, judged, means
from queen.games.expected import FARTHEST_CP
from queen.networks.value import labels as lb
from queen.positions.expected import cp_of_expected

SCORES = [Score(cp=0), Score(cp=35), Score(cp=-410), Score(cp=2500), Score(cp=-90), Score(mate=3),
          Score(mate=-2), Score(mate=0), Score(mate=9), Score(cp=120)]  # fmt: skip


def labelled(scores: list[Score]) -> tuple[np.ndarray, np.ndarray]:
    cp = np.array([score.cp or 0 for score in scores], np.int16)
    mate = np.array([score.mate or 0 for score in scores])
    return lb.class_of(cp, mate, np.array([score.mate is not None for score in scores])), cp


def plain(logits: list[float], score: Score) -> dict[str, float]:
    """What is said of one position, in plain Python."""
    top = [math.exp(x) for x in logits]
    share = [x / sum(top) for x in top]
    said = sum(p * b / 100 for b, p in enumerate(share[:101])) + share[101]
    classes, _ = labelled([score])
    right = int(classes[0])
    places = [*(b / 100 for b in range(101)), 2.0, -1.0]
    far = sum(p * abs(at - places[right]) for p, at in zip(share, places, strict=True))
    told = {"cross_entropy": -math.log(share[right]), "ordinal": far}
    told["loss"] = told["cross_entropy"] + 0.5 * far
    told["score_error"] = abs(said - score.expected)
    if score.expected != 0.5:
        told["side"] = float((said > 0.5) == (score.expected > 0.5))
    if score.mate is None:
        guess = math.log(said / (1 - said)) / 0.00368208
        bounded = [max(-1000.0, min(1000.0, cp)) for cp in (guess, score.cp)]
        told["cp_error"] = abs(bounded[0] - bounded[1])
    likeliest = logits.index(max(logits))
    for name, number in (("mates", 101), ("mated", 102)):
        if right == number:
            told[f"{name}_recall"] = float(likeliest == number)
        if likeliest == number:
            told[f"{name}_precision"] = float(right == number)
    return told


@pytest.fixture(scope="module")
def case() -> tuple[torch.Tensor, list[Score], list[dict[str, float]]]:
    generator = torch.Generator().manual_seed(4)
    scores = SCORES * 6
    logits = 2 * torch.randn(len(scores), lb.CLASSES, generator=generator)
    for row, score in enumerate(scores):
        if score.mate is not None or row % 7 == 0:
            logits[row, lb.MATES + row % 2] += 6
    return logits, scores, [plain(*p) for p in zip(logits.tolist(), scores, strict=True)]


def test_each_position_is_judged_as_by_hand(case) -> None:
    logits, scores, wanted = case
    found = judged(logits, *labelled(scores))
    assert {name for told in wanted for name in told} == set(found)
    for name, values in found.items():
        for row, value in enumerate(values.tolist()):
            if name in wanted[row]:
                assert value == pytest.approx(wanted[row][name], rel=1e-4, abs=2e-3), (name, row)
            else:
                assert math.isnan(value), (name, row)


def test_means_are_over_what_each_measure_speaks_of(case) -> None:
    logits, scores, wanted = case
    found = means(judged(logits, *labelled(scores)))
    for name, value in found.items():
        told = [each[name] for each in wanted if name in each]
        assert value == pytest.approx(sum(told) / len(told), rel=1e-4), name
    right = [each for each in wanted if each.get("mates_recall") == 1]
    assert 0 < len(right) < sum(score.mate in (3, 9) for score in scores)


def test_intervals_hold_the_mean_and_know_games_from_positions(case) -> None:
    logits, scores, _ = case
    found = judged(logits, *labelled(scores))
    alone = [bytes([row]) for row in range(len(scores))]
    few = [bytes([row // 20]) for row in range(len(scores))]
    by_position, by_game = (intervals(found, games, seed=1) for games in (alone, few))
    for name, mean in means(found).items():
        assert by_position[name].estimate == pytest.approx(mean)
        assert by_position[name].low <= mean <= by_position[name].high
    assert by_position["loss"].clusters == 60
    assert by_game["loss"].clusters == 3


def test_the_constant_says_the_frequencies() -> None:
    classes, cp = labelled([Score(cp=0)] * 60 + [Score(cp=300)] * 30 + [Score(mate=2)] * 10)
    logits = constant_logits(classes, 100)
    told = means(judged(logits, classes, cp))
    share = [61 / 203, 31 / 203, 11 / 203]
    surprise = -(60 * math.log(share[0]) + 30 * math.log(share[1]) + 10 * math.log(share[2])) / 100
    assert told["cross_entropy"] == pytest.approx(surprise, rel=1e-5)
    assert told["side"] == 1.0
    assert "mates_precision" not in told


def test_centipawns_are_the_inverse_of_expected_scores() -> None:
    cp = np.array([-999.0, -40.0, 0.0, 12.0, 700.0])
    assert np.allclose(cp_of_expected(lb.expected_of_cp(cp)), cp)
    assert cp_of_expected(np.array([0.0, 1.0])).tolist() == [-FARTHEST_CP, FARTHEST_CP]
