"""The sequential test that decides between two players, as fishtest runs it (GSPRT).

Source: METHOD section 1 (Verdict of a round); Van den Bergh, "Comments on normalized Elo", and
fishtest's LLRcalc: the generalised likelihood ratio of two hypotheses on the expected score,
each with the most likely distribution of outcomes that has that score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from queen.engines.match import GameRecord
from queen.evaluation.elo import EloError, expected_score

UNSEEN = 1e-3  # fishtest's count for an outcome not seen

State = Literal["H0", "H1", "undecided"]


@dataclass(frozen=True)
class Sprt:
    """Hypotheses and error rates: H0 says elo0, H1 says elo1 (logistic Elo of the first player).

    `alpha` is the chance of taking H1 where H0 holds, `beta` of taking H0 where H1 holds.
    """

    elo0: float
    elo1: float
    alpha: float = 0.05
    beta: float = 0.05

    def __post_init__(self) -> None:
        if not (self.elo0 < self.elo1 and 0 < self.alpha < 1 and 0 < self.beta < 1):
            raise EloError(
                f"no test: elo0={self.elo0}, elo1={self.elo1}, "
                f"alpha={self.alpha}, beta={self.beta}",
                remedy="elo0 must be below elo1, alpha and beta between 0 and 1",
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """Log-likelihood ratios at which H0 and H1 are taken."""
        lower = math.log(self.beta / (1 - self.alpha))
        return lower, math.log((1 - self.beta) / self.alpha)

    def run(self, counts: Sequence[int]) -> SprtResult:
        """The state after these outcomes.

        Args:
            counts: games lost, drawn and won (trinomial), or pairs of games of 0, 0.5, 1, 1.5
                and 2 points (pentanomial).
        """
        if len(counts) not in (3, 5) or min(counts) < 0:
            raise EloError(
                f"{list(counts)} are no counts of outcomes",
                remedy="give 3 counts of games or 5 counts of pairs, lost first",
            )
        lower, upper = self.bounds
        llr = log_likelihood_ratio(counts, self.elo0, self.elo1) if sum(counts) else 0.0
        state: State = "H1" if llr >= upper else "H0" if llr <= lower else "undecided"
        return SprtResult(self, tuple(counts), llr, state)


@dataclass(frozen=True)
class SprtResult:
    """Where a test stands: its hypotheses, the outcomes, their ratio, and what it takes."""

    test: Sprt
    counts: tuple[int, ...]
    llr: float
    state: State


def log_likelihood_ratio(counts: Sequence[int], elo0: float, elo1: float) -> float:
    """Log of the generalised likelihood ratio of elo1 to elo0."""
    seen = np.array(counts, dtype=np.float64)
    seen[seen == 0] = UNSEEN
    share = seen / seen.sum()
    points = np.linspace(0.0, 1.0, len(counts))
    p0 = _most_likely(share, points, expected_score(elo0))
    p1 = _most_likely(share, points, expected_score(elo1))
    return float((seen * np.log(p1 / p0)).sum())


def _most_likely(
    share: NDArray[np.float64], points: NDArray[np.float64], mean: float
) -> NDArray[np.float64]:
    """The most likely distribution of that mean, given observed shares.

    By Lagrange, p_i = share_i / (1 + x (points_i - mean)), with x such that the mean is met.
    """
    off = points - mean
    # x lies between the poles, where all p are positive.
    edge = 1e-12
    low, high = -1.0 / off.max() * (1 - edge), -1.0 / off.min() * (1 - edge)
    x = float(brentq(lambda x: float((share * off / (1 + x * off)).sum()), low, high, xtol=1e-14))
    likely: NDArray[np.float64] = share / (1 + x * off)
    return likely


def trinomial(games: Iterable[GameRecord], name: str) -> tuple[int, int, int]:
    """Games that `name` lost, drew and won."""
    scores = [game.score_of(name) for game in games]
    return scores.count(0.0), scores.count(0.5), scores.count(1.0)


def pentanomial(games: Sequence[GameRecord], name: str) -> tuple[int, int, int, int, int]:
    """Pairs in which `name` made 0, 0.5, 1, 1.5 and 2 points.

    Two games that follow each other share an opening with colours reversed, as `paired` makes
    them; EloError where they do not.
    """
    counts = [0] * 5
    for first, second in zip(games[::2], games[1::2], strict=True):
        opening = first.moves[: first.opening_plies] == second.moves[: second.opening_plies]
        if not opening or (first.white, first.black) != (second.black, second.white):
            raise EloError(
                f"games {first.index} and {second.index} are no pair",
                remedy="give the games in the order of their pairings",
            )
        counts[round(2 * (first.score_of(name) + second.score_of(name)))] += 1
    return counts[0], counts[1], counts[2], counts[3], counts[4]
