"""Intervals: coverage on simulated games, and what must hold whatever the data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.errors import QueenError
from queen.evaluation.intervals import (
    cluster_bootstrap,
    paired_difference,
    ratio_bootstrap,
)

rows = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60
)


@settings(max_examples=50, deadline=None)
@given(rows)
def test_a_bootstrap_holds_its_estimate_and_repeats(rows: list[tuple[int, int, int]]) -> None:
    values, games = [row[1] for row in rows], [row[0] for row in rows]
    interval = cluster_bootstrap(values, games, seed=1, samples=500)
    assert interval.estimate == pytest.approx(sum(values) / len(values))
    assert interval.low <= interval.estimate + 1e-12
    assert interval.high >= interval.estimate - 1e-12
    assert interval == cluster_bootstrap(values, games, seed=1, samples=500)
    assert interval.clusters == len(set(games))


@settings(max_examples=50, deadline=None)
@given(rows)
def test_swapping_sides_mirrors_the_difference(rows: list[tuple[int, int, int]]) -> None:
    games, ours, theirs = zip(*rows, strict=True)
    there = paired_difference(ours, theirs, games, seed=3, samples=400)
    back = paired_difference(theirs, ours, games, seed=3, samples=400)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))
    same = paired_difference(ours, ours, games, seed=3, samples=400)
    assert same.estimate == 0
    assert not same.above_zero
    assert not same.below_zero


def test_the_bootstrap_matches_one_written_out() -> None:
    """The same draws, one at a time, with positions copied by game."""
    rng = np.random.default_rng(5)
    games = rng.integers(0, 6, size=40).tolist()
    values = rng.random(40)
    order = list(dict.fromkeys(games))
    draws = np.random.default_rng(9).multinomial(6, np.full(6, 1 / 6), size=300)
    means = []
    for counts in draws:
        copied = [
            value
            for game, count in zip(order, counts, strict=True)
            for value, own in zip(values, games, strict=True)
            for _ in range(count if own == game else 0)
        ]
        means.append(sum(copied) / len(copied))
    interval = cluster_bootstrap(values, games, seed=9, samples=300)
    assert interval.low == pytest.approx(np.quantile(means, 0.025))
    assert interval.high == pytest.approx(np.quantile(means, 0.975))


def test_coverage_with_games_that_are_alike() -> None:
    """60 games of five positions that share a game's own level; 95 % nominal."""
    rng = np.random.default_rng(2)
    games = np.repeat(np.arange(60), 5)
    covered = naive = 0
    for trial in range(300):
        level = np.repeat(rng.beta(2, 2, size=60), 5)
        values = (rng.random(300) < level).astype(float)
        interval = cluster_bootstrap(values, games.tolist(), seed=trial, samples=400)
        covered += interval.low <= 0.5 <= interval.high
        share = values.mean()
        naive += abs(share - 0.5) <= 1.96 * math.sqrt(share * (1 - share) / 300)
    assert 0.91 <= covered / 300 <= 0.98
    assert naive < covered  # positions are not independent: as if they were, one is too sure


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 4)), min_size=1, max_size=30))
def test_a_ratio_is_the_share_of_all_that_is_counted(rows: list[tuple[int, int]]) -> None:
    """Texts of so many claims, all but one of each true, against the claims one by one."""
    games, wholes = [game for game, _ in rows], [whole for _, whole in rows]
    parts = [max(0, whole - 1) for whole in wholes]
    if not sum(wholes):
        with pytest.raises(QueenError, match="0 to count"):
            ratio_bootstrap(parts, wholes, games, seed=2)
        return
    ratio = ratio_bootstrap(parts, wholes, games, seed=2, samples=300)
    values = [float(n > 0) for whole in wholes for n in range(whole)]
    owners = [game for game, whole in rows for _ in range(whole)]
    assert ratio == cluster_bootstrap(values, owners, seed=2, samples=300)


def test_one_game_says_nothing_and_no_positions_are_an_error() -> None:
    lone = cluster_bootstrap([1, 1, 1], ["g"] * 3, seed=0)
    assert (lone.estimate, lone.low, lone.high) == (1.0, -math.inf, math.inf)
    assert not lone.above_zero
    with pytest.raises(QueenError, match="values of shape"):
        cluster_bootstrap([], [], seed=0)
    with pytest.raises(QueenError, match="same positions"):
        paired_difference([1, 0], [1], ["a", "b"], seed=0)
