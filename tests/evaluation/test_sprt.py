"""The sequential test: the ratio by an independent optimiser, its error rates by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from queen.engines.match import GameRecord
from queen.evaluation.elo import EloError, expected_score
from queen.evaluation.sprt import Sprt, log_likelihood_ratio, pentanomial, trinomial


def constrained_maximum(counts: list[int], mean: float) -> float:
    """Greatest log-likelihood of counts among distributions of that mean, by SLSQP."""
    points = np.linspace(0, 1, len(counts))
    seen = np.array(counts, dtype=float)
    found = minimize(
        lambda p: -float((seen * np.log(p)).sum()) / seen.sum(),
        np.full(len(counts), 1 / len(counts)),
        bounds=[(1e-9, 1)] * len(counts),
        constraints=[
            {"type": "eq", "fun": lambda p: p.sum() - 1},
            {"type": "eq", "fun": lambda p: p @ points - mean},
        ],
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return -float(found.fun) * float(seen.sum())


@pytest.mark.parametrize(
    ("counts", "elo0", "elo1"),
    [
        ([30, 40, 35], 0.0, 10.0),
        ([100, 300, 140], -5.0, 5.0),
        ([10, 40, 90, 50, 12], 0.0, 20.0),
        ([5, 5, 5, 5, 80], 0.0, 50.0),
    ],
)
def test_the_ratio_is_that_of_two_constrained_maxima(
    counts: list[int], elo0: float, elo1: float
) -> None:
    wanted = constrained_maximum(counts, expected_score(elo1)) - constrained_maximum(
        counts, expected_score(elo0)
    )
    assert log_likelihood_ratio(counts, elo0, elo1) == pytest.approx(wanted, abs=2e-3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 200), min_size=3, max_size=3).filter(sum), st.floats(1, 60))
def test_mirrored_counts_negate_the_ratio(counts: list[int], width: float) -> None:
    there = log_likelihood_ratio(counts, -width, width)
    back = log_likelihood_ratio(counts[::-1], -width, width)
    assert there == pytest.approx(-back, abs=1e-6)


def test_wins_go_to_h1_and_losses_to_h0() -> None:
    test = Sprt(0.0, 30.0)
    assert test.bounds == pytest.approx((-math.log(19), math.log(19)))
    assert test.run([0, 0, 0]).state == "undecided"
    assert test.run([5, 10, 5]).state == "undecided"
    assert test.run([50, 100, 150]).state == "H1"
    assert test.run([150, 100, 50]).state == "H0"
    assert test.run([1, 5, 30, 60, 40]).state == "H1"


@pytest.mark.parametrize("elo", [0.0, 60.0])
def test_error_rates_are_about_those_asked_for(elo: float) -> None:
    """200 simulated tests of 0 against 60 Elo, ended at 600 games; 5 % errors are allowed."""
    rng = np.random.default_rng(11)
    win = expected_score(elo) - 0.15
    test, wrong, decided = Sprt(0.0, 60.0), 0, 0
    for _ in range(200):
        outcomes = rng.choice(3, size=600, p=[0.7 - win, 0.3, win])
        for end in range(20, 601, 20):
            state = test.run(np.bincount(outcomes[:end], minlength=3).tolist()).state
            if state != "undecided":
                wrong += state != ("H1" if elo else "H0")
                decided += 1
                break
    assert decided >= 195
    assert wrong / decided <= 0.085


@pytest.mark.parametrize("counts", [[1, 2], [1, 2, 3, 4], [-1, 0, 5]])
def test_counts_of_another_kind_are_refused(counts: list[int]) -> None:
    with pytest.raises(EloError, match="no counts"):
        Sprt(0, 5).run(counts)


def test_impossible_hypotheses_are_refused() -> None:
    with pytest.raises(EloError, match="elo0 must be below"):
        Sprt(5.0, 5.0)


def games(*results: tuple[str, str, str]) -> list[GameRecord]:
    return [
        GameRecord(n, white, black, "", (), 0, result, "")
        for n, (white, black, result) in enumerate(results)
    ]


def test_outcomes_are_counted_for_the_player_named() -> None:
    played = games(
        ("x", "y", "1-0"),
        ("y", "x", "0-1"),
        ("x", "y", "1/2-1/2"),
        ("y", "x", "1-0"),
    )
    assert trinomial(played, "x") == (1, 1, 2)
    assert pentanomial(played, "x") == (0, 1, 0, 0, 1)
    assert pentanomial(played, "y") == (1, 0, 0, 1, 0)
    with pytest.raises(EloError, match="no pair"):
        pentanomial(games(("x", "y", "1-0"), ("x", "y", "1-0")), "x")
