"""Classes, expected scores and the loss, against plain computations."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from queen.engines.score import Score, expected_from_cp
from queen.networks.value import labels

SCORES = st.one_of(
    st.integers(-32_000, 32_000).map(lambda cp: Score(cp=cp)),
    st.integers(-60, 60).map(lambda mate: Score(mate=mate)),
)


@given(SCORES)
def test_a_class_is_the_nearest_percent_or_a_mate(score: Score) -> None:
    cp, mate = np.array([score.cp or 0]), np.array([score.mate or 0])
    (found,) = labels.class_of(cp, mate, np.array([score.mate is not None])).tolist()
    if score.mate is not None:
        assert found == (labels.MATES if score.mate > 0 else labels.MATED)
    else:
        assert abs(found / 100 - score.expected) <= 0.005 + 1e-12
    assert abs(float(labels.worth()[found]) - score.expected) <= 0.005 + 1e-6


def test_the_project_has_one_expected_score() -> None:
    cp = np.array([-40_000, -700, -1, 0, 1, 35, 990, 40_000])
    wanted = [expected_from_cp(each) for each in cp.tolist()]
    assert np.allclose(labels.expected_of_cp(cp), wanted, rtol=0, atol=1e-15)


def random_logits(count: int) -> torch.Tensor:
    return 3 * torch.randn(count, labels.CLASSES, generator=torch.Generator().manual_seed(1))


def test_the_expected_score_is_the_mean_worth() -> None:
    logits = random_logits(5)
    for row, found in zip(logits.tolist(), labels.expected_score(logits).tolist(), strict=True):
        share = [math.exp(x) for x in row]
        worth = sum(s * b / 100 for b, s in enumerate(share[:101])) + share[labels.MATES]
        assert found == pytest.approx(worth / sum(share), abs=1e-6)


def test_cross_entropy_is_the_right_class_surprise() -> None:
    logits, classes = random_logits(4), torch.tensor([0, 57, 101, 102])
    share = logits.double().exp() / logits.double().exp().sum(1, keepdim=True)
    wanted = [-math.log(share[i, c]) for i, c in enumerate(classes.tolist())]
    assert labels.cross_entropy(logits, classes).tolist() == pytest.approx(wanted, rel=1e-5)


def test_the_ordinal_term_is_the_mean_distance_walked() -> None:
    """With all of the right answer in one class the earth mover walks each share to it."""
    places = {**{b: b / 100 for b in range(101)}, labels.MATES: 2.0, labels.MATED: -1.0}
    logits = random_logits(6)
    classes = torch.tensor([0, 50, 100, labels.MATES, labels.MATED, 13])
    share = logits.double().softmax(1)
    wanted = [
        sum(float(share[i, c]) * abs(at - places[right]) for c, at in places.items())
        for i, right in enumerate(classes.tolist())
    ]
    found = labels.ordinal_distance(logits, classes)
    assert found.tolist() == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("said", "right", "distance"),
    [(40, 40, 0.0), (40, 45, 0.05), (0, 100, 1.0), (100, labels.MATES, 1.0),
     (labels.MATED, 0, 1.0), (labels.MATED, labels.MATES, 3.0)],
)  # fmt: skip
def test_distances_of_sure_answers(said: int, right: int, distance: float) -> None:
    logits = torch.full((1, labels.CLASSES), -60.0)
    logits[0, said] = 60.0
    found = labels.ordinal_distance(logits, torch.tensor([right]))
    assert float(found) == pytest.approx(distance, abs=1e-5)


def test_the_loss_has_a_gradient_everywhere() -> None:
    logits = random_logits(3).requires_grad_()
    classes = torch.tensor([0, 60, labels.MATED])
    loss = labels.cross_entropy(logits, classes) + 0.5 * labels.ordinal_distance(logits, classes)
    loss.sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad.abs().sum(1) > 0).all()
