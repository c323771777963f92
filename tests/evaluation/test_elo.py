"""Elo: estimates, intervals and bounds, against independent computations and simulation."""

from __future__ import annotations

import math
from itertools import pairwise as steps

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import beta

from queen.engines.match import GameRecord
from queen.evaluation.elo import (
    EloError,
    Pairwise,
    Prior,
    expected_score,
    fit_player,
    fit_pool,
    pairwise,
)

games_strategy = st.lists(
    st.tuples(st.floats(800, 2800), st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=24
)


def log_posterior(elo: float, games: list[tuple[float, float]], sd: float) -> float:
    mean = sum(opponent for opponent, _ in games) / len(games)
    total = -((elo - mean) ** 2) / (2 * sd**2)
    for opponent, score in games:
        p = 1 / (1 + 10 ** ((opponent - elo) / 400))
        total += score * math.log(p) + (1 - score) * math.log(1 - p)
    return total


@settings(max_examples=60, deadline=None)
@given(games_strategy, st.floats(100, 800))
def test_the_estimate_is_the_posteriors_maximum(
    games: list[tuple[float, float]], sd: float
) -> None:
    rating = fit_player(*map(list, zip(*games, strict=True)), Prior(sd))
    found = minimize_scalar(
        lambda elo: -log_posterior(elo, games, sd), bounds=(-1500, 5000), method="bounded"
    )
    assert rating.elo == pytest.approx(found.x, abs=0.1)
    assert rating.low is None or rating.low <= rating.elo
    assert rating.high is None or rating.high >= rating.elo


@settings(max_examples=40, deadline=None)
@given(games_strategy)
def test_the_interval_ends_where_the_likelihood_has_fallen_by_its_share(
    games: list[tuple[float, float]],
) -> None:
    rating = fit_player(*map(list, zip(*games, strict=True)))
    if rating.low is None or rating.high is None:
        assert rating.points in (0, rating.games)
        return
    top = log_posterior(rating.elo, games, 400)
    for edge in (rating.low, rating.high):
        assert top - log_posterior(edge, games, 400) == pytest.approx(3.8415 / 2, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(games_strategy)
def test_a_mirrored_result_mirrors_the_rating(games: list[tuple[float, float]]) -> None:
    one = fit_player([r for r, _ in games], [s for _, s in games])
    other = fit_player([-r for r, _ in games], [1 - s for _, s in games])
    assert other.elo == pytest.approx(-one.elo, abs=1e-4)
    for low, high in ((one.low, other.high), (one.high, other.low)):
        assert (low is None) == (high is None)
        assert low is None or high is None or high == pytest.approx(-low, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.floats(0, 3000))
def test_losing_all_gives_the_bound_of_clopper_and_pearson(games: int, elo: float) -> None:
    rating = fit_player([elo] * games, [0.0] * games)
    share = float(beta.ppf(0.95, 1, games))
    assert rating.low is None
    assert rating.high == pytest.approx(elo + 400 * math.log10(share / (1 - share)), abs=1e-3)
    won = fit_player([elo] * games, [1.0] * games)
    assert won.high is None
    assert won.low == pytest.approx(2 * elo - rating.high, abs=1e-3)


def test_more_points_more_elo_and_more_games_less_doubt() -> None:
    ratings = [fit_player([1500] * 20, [1.0] * n + [0.0] * (20 - n)) for n in range(21)]
    assert all(a.elo < b.elo for a, b in steps(ratings))
    short, long = (fit_player([1500] * 2 * n, [1.0, 0.0] * n) for n in (4, 40))
    assert short.elo == pytest.approx(1500)
    assert short.high is not None
    assert long.high is not None
    assert long.high < short.high


def test_no_scores_or_impossible_ones_are_errors() -> None:
    for opponents, scores in (([], []), ([1500.0], []), ([1500.0], [2.0])):
        with pytest.raises(EloError):
            fit_player(opponents, scores)


def test_intervals_of_simulated_matches_cover_the_truth() -> None:
    """32 games against four opponents, as the evaluation plays them; nominal 95 %."""
    rng = np.random.default_rng(7)
    opponents = [900.0, 1200.0, 1500.0, 1800.0] * 8
    covered = trials = 0
    for truth in (1000.0, 1400.0, 1700.0):
        for _ in range(100):
            scores = [float(rng.random() < expected_score(truth - o)) for o in opponents]
            rating = fit_player(opponents, scores)
            low, high = rating.low or -math.inf, rating.high or math.inf
            covered += low <= truth <= high
            trials += 1
    assert 0.92 <= covered / trials <= 0.99


def simulate(ratings: dict[str, float], games: int, seed: int) -> list[Pairwise]:
    rng = np.random.default_rng(seed)
    names = sorted(ratings)
    return [
        Pairwise(a, b, float(rng.binomial(games, expected_score(ratings[a] - ratings[b]))), games)
        for n, a in enumerate(names)
        for b in names[n + 1 :]
    ]


TRUTH = {"a": 1000.0, "b": 1150.0, "c": 1400.0, "d": 1750.0, "e": 2100.0}


def test_the_joint_fit_is_the_joint_maximum() -> None:
    results = simulate(TRUTH, 30, 1)
    pool = fit_pool(results, {"c": 1400.0}, Prior(500))
    free = [name for name in sorted(TRUTH) if name != "c"]

    def loss(x: np.ndarray) -> float:
        ratings = dict(zip(free, x, strict=True)) | {"c": 1400.0}
        total = float(((x - 1400) ** 2).sum()) / (2 * 500**2)
        for r in results:
            p = expected_score(ratings[r.one] - ratings[r.other])
            total -= r.points * math.log(p) + (r.games - r.points) * math.log(1 - p)
        return total

    best = minimize(loss, np.full(4, 1400.0), method="BFGS", options={"gtol": 1e-9})
    assert [pool[name].elo for name in free] == pytest.approx(best.x, abs=0.5)
    assert pool["c"].elo == pool["c"].low == pool["c"].high == 1400.0


def test_joint_intervals_cover_the_truth_and_shift_with_the_anchor() -> None:
    covered = total = 0
    for seed in range(18):
        pool = fit_pool(simulate(TRUTH, 12, seed), {"c": 1400.0}, Prior(800))
        for name, truth in TRUTH.items():
            if name != "c":
                low, high = pool[name].low, pool[name].high
                covered += (low is None or low <= truth) and (high is None or truth <= high)
                total += 1
    assert covered / total >= 0.91
    results = simulate(TRUTH, 12, 0)
    here, there = (fit_pool(results, {"c": anchor}) for anchor in (1400.0, 2400.0))
    for name in TRUTH:
        assert there[name].elo - here[name].elo == pytest.approx(1000, abs=1e-3)


def test_one_player_against_anchors_is_the_same_alone_and_in_a_pool() -> None:
    results = [Pairwise("x", "a", 3.5, 6), Pairwise("b", "x", 4.0, 6)]
    pool = fit_pool(results, {"a": 1200.0, "b": 1500.0}, Prior(400, 1350.0))
    scores = [1, 1, 1, 0.5, 0, 0, 1, 1, 0, 0, 0, 0]
    alone = fit_player([1200.0] * 6 + [1500.0] * 6, scores, Prior(400, 1350.0))
    assert pool["x"].elo == pytest.approx(alone.elo, abs=1e-6)
    assert pool["x"].low == pytest.approx(alone.low, abs=1e-4)


def test_a_pool_without_an_anchor_is_an_error() -> None:
    with pytest.raises(EloError, match="anchor"):
        fit_pool([Pairwise("a", "b", 1, 2)], {"z": 1500.0})


def record(index: int, white: str, black: str, result: str) -> GameRecord:
    return GameRecord(index, white, black, "", (), 0, result, "checkmate")


def test_games_are_counted_by_pair_whatever_the_colours() -> None:
    games = [
        record(0, "x", "y", "1-0"),
        record(1, "y", "x", "1-0"),
        record(2, "y", "x", "1/2-1/2"),
        record(3, "z", "x", "0-1"),
    ]
    assert pairwise(games) == [Pairwise("x", "y", 1.5, 3), Pairwise("x", "z", 1.0, 1)]
