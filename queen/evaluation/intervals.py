"""Confidence intervals by bootstrap over games, for shares of positions.

Positions of one game are alike, so games and not positions are drawn again. Source: METHOD
section 1 (Verdict of a round).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from queen.errors import QueenError

SAMPLES = 4000
CHUNK = 1 << 22  # weights held in memory at once


@dataclass(frozen=True)
class Interval:
    """An estimate with its bounds at `level`, from `clusters` independent games."""

    estimate: float
    low: float
    high: float
    level: float
    clusters: int

    @property
    def above_zero(self) -> bool:
        return self.low > 0.0

    @property
    def below_zero(self) -> bool:
        return self.high < 0.0


def cluster_bootstrap(
    values: ArrayLike,
    clusters: Sequence[Hashable],
    *,
    seed: int,
    samples: int = SAMPLES,
    level: float = 0.95,
) -> Interval:
    """The mean of `values` [positions] with a percentile interval, games drawn again.

    Args:
        values: one for each position.
        clusters: the game of each position.
        seed: of the draws; the order of the games does not matter beyond it.
        samples: bootstrap samples.
        level: coverage.

    With fewer than two games nothing is known of their spread: the bounds are infinite.
    Raises QueenError where there are no positions or the lengths differ.
    """
    array = np.asarray(values, dtype=np.float64)
    return ratio_bootstrap(
        array, np.ones(array.shape), clusters, seed=seed, samples=samples, level=level
    )


def ratio_bootstrap(
    parts: ArrayLike,
    wholes: ArrayLike,
    clusters: Sequence[Hashable],
    *,
    seed: int,
    samples: int = SAMPLES,
    level: float = 0.95,
) -> Interval:
    """Sum of `parts` [positions] by that of `wholes` [positions], with an interval over games.

    For shares whose denominator differs from position to position: of the sentences of a text,
    say. A game that holds nothing to count says nothing and is left out.

    Raises QueenError where there is nothing to count or the lengths differ.
    """
    upper, lower = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    fits = upper.ndim == 1 and upper.shape == lower.shape and len(upper) == len(clusters)
    if not fits or not lower.sum() > 0:
        raise QueenError(
            f"values of shape {upper.shape} for {len(clusters)} games, {lower.sum():g} to count",
            remedy="give one value and one game for each position, and at least one",
        )
    sums, counts = _totals(upper, lower, clusters)
    estimate = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return Interval(estimate, -math.inf, math.inf, level, len(sums))
    means = _resampled_means(sums, counts, np.random.default_rng(seed), samples)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high), level, len(sums))


def paired_difference(
    ours: ArrayLike,
    theirs: ArrayLike,
    clusters: Sequence[Hashable],
    *,
    seed: int,
    samples: int = SAMPLES,
    level: float = 0.95,
) -> Interval:
    """Mean of ours - theirs, position by position, with an interval by `cluster_bootstrap`."""
    first, second = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if first.shape != second.shape:
        raise QueenError(
            f"{first.shape} values of ours against {second.shape} of theirs",
            remedy="score both on the same positions, in the same order",
        )
    return cluster_bootstrap(first - second, clusters, seed=seed, samples=samples, level=level)


def _totals(
    parts: NDArray[np.float64], wholes: NDArray[np.float64], clusters: Sequence[Hashable]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both sums of each cluster that holds anything, in order of first appearance."""
    numbers: dict[Hashable, int] = {}
    held = np.flatnonzero(wholes).tolist()
    at = np.array([numbers.setdefault(clusters[n], len(numbers)) for n in held])
    sums = np.bincount(at, weights=parts[held]).astype(np.float64)
    return sums, np.bincount(at, weights=wholes[held]).astype(np.float64)


def _resampled_means(
    sums: NDArray[np.float64],
    counts: NDArray[np.float64],
    rng: np.random.Generator,
    samples: int,
) -> NDArray[np.float64]:
    """Means [samples] over as many clusters as there are, drawn with replacement."""
    games = len(sums)
    even = np.full(games, 1.0 / games)
    means = []
    for start in range(0, samples, step := max(1, CHUNK // games)):
        weights = rng.multinomial(games, even, size=min(step, samples - start))
        means.append((weights @ sums) / (weights @ counts))
    return np.concatenate(means)
