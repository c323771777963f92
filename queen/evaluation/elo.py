"""Elo from few games, and the sequential test that decides between two players.

Ratings are on the logistic scale: a player R points above another is expected to score
1 / (1 + 10^(-R/400)). Draws are half points: a game of score s adds s log p + (1-s) log(1-p) to
the log-likelihood, which overstates the spread where many games are drawn, so intervals are on
the safe side. A normal prior keeps the estimate finite where all games are lost or won.
Source: METHOD section 1 (Accuracy; Verdict of a round).

    python -m queen.evaluation.elo GAMES RATINGS.json --anchor NAME=ELO

fits every player of a match record (JSON lines).
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import chi2

from queen.engines.match import GameRecord, read_record
from queen.errors import QueenError

Floats = NDArray[np.float64]
SLOPE = math.log(10.0) / 400.0
REACH = 4000.0  # no interval reaches further than this from its estimate


class EloError(QueenError):
    """Results from which no rating can be fitted."""


@dataclass(frozen=True)
class Rating:
    """A player's rating with its interval.

    Attributes:
        elo: the penalised estimate.
        low, high: bounds at the level asked for; None where the games give none on that side.
        points, games: what it was fitted to.
    """

    elo: float
    low: float | None
    high: float | None
    points: float
    games: int

    def wholly_below(self, other: Rating) -> bool:
        """True where this interval ends before the other begins."""
        return self.high is not None and other.low is not None and self.high < other.low


@dataclass(frozen=True)
class Prior:
    """A normal prior on ratings; `mean` None stands for the mean of the known ratings."""

    sd: float = 400.0
    mean: float | None = None


@dataclass(frozen=True)
class Pairwise:
    """The points of `one` in `games` games against `other`."""

    one: str
    other: str
    points: float
    games: int


def expected_score(difference: float) -> float:
    """Expected score of a player `difference` Elo above the other."""
    return 1.0 / (1.0 + math.exp(-SLOPE * difference))


def pairwise(games: Iterable[GameRecord]) -> list[Pairwise]:
    """Points by pair of players, sorted; each pair once, the names in order."""
    totals: dict[tuple[str, str], list[float]] = defaultdict(list)
    for game in games:
        one, other = sorted((game.white, game.black))
        if one != other:
            totals[one, other].append(game.score_of(one))
    return [Pairwise(*pair, sum(scores), len(scores)) for pair, scores in sorted(totals.items())]


def fit_player(
    opponents: Sequence[float],
    scores: Sequence[float],
    prior: Prior | None = None,
    level: float = 0.95,
) -> Rating:
    """One player's rating from games against opponents of known rating.

    Args:
        opponents: each game's opponent's rating, which sets the scale.
        scores: the player's points in each game: 0, 0.5 or 1.
        prior: 400 Elo wide about the opponents' mean by default.
        level: coverage of the interval.

    The interval is the profile likelihood's, the prior included. Where every game is lost (won),
    there is only an upper (lower) bound: the rating at which losing (winning) them all would have
    a chance of 1 - level, as Clopper and Pearson's, without the prior (but never beyond the
    estimate).
    Raises EloError where there are no games or a score is none.
    """
    if not scores or len(scores) != len(opponents):
        raise EloError(
            f"{len(scores)} scores for {len(opponents)} opponents",
            remedy="give one opponent's rating for each game, and at least one game",
        )
    if any(not 0.0 <= score <= 1.0 for score in scores):
        raise EloError("a score lies outside 0 to 1", remedy="give 0, 0.5 or 1 for each game")
    names = ["", *(str(n) for n in range(len(opponents)))]
    results = [Pairwise("", str(n), score, 1) for n, score in enumerate(scores)]
    anchors = {str(n): float(elo) for n, elo in enumerate(opponents)}
    return _Pool(names, results, anchors, prior or Prior()).rating("", level)


def fit_pool(
    results: Sequence[Pairwise],
    anchors: Mapping[str, float],
    prior: Prior | None = None,
    level: float = 0.95,
) -> dict[str, Rating]:
    """All players' ratings at once; `anchors` are fixed and set the scale.

    The interval of each is the profile likelihood's: the other players are fitted anew for each
    rating tried. Bounds where all games are lost or won are as in `fit_player`, the opponents
    taken at their estimates. Raises EloError where there is no anchor among the players.
    """
    names = sorted({name for result in results for name in (result.one, result.other)})
    if not set(anchors) & set(names):
        raise EloError(
            f"none of the anchors {sorted(anchors)} played",
            remedy=f"anchor one of {', '.join(names) or 'the players'}",
        )
    pool = _Pool(names, results, anchors, prior or Prior())
    return {name: pool.rating(name, level) for name in names}


class _Pool:
    """The penalised log-likelihood of all ratings, and its maximum."""

    def __init__(
        self,
        names: Sequence[str],
        results: Sequence[Pairwise],
        anchors: Mapping[str, float],
        prior: Prior,
    ) -> None:
        self.names = list(names)
        at = {name: n for n, name in enumerate(names)}
        self.one = np.array([at[r.one] for r in results])
        self.other = np.array([at[r.other] for r in results])
        self.points = np.array([r.points for r in results], dtype=np.float64)
        self.games = np.array([r.games for r in results], dtype=np.float64)
        self.fixed = np.array([name in anchors for name in names])
        known = [anchors[name] for name in names if name in anchors]
        self.mean = float(np.mean(known)) if prior.mean is None else prior.mean
        self.sd = prior.sd
        start = np.array([anchors.get(name, self.mean) for name in names], dtype=np.float64)
        self.best = self._maximise(start, ~self.fixed)

    def rating(self, name: str, level: float) -> Rating:
        k = self.names.index(name)
        points, games = self._tally(k)
        elo = float(self.best[k])
        if self.fixed[k]:
            return Rating(elo, elo, elo, points, games)
        if points in (0.0, games):
            bound = self._bound(k, won=points > 0, level=level)
            # A narrow prior may outweigh the games: the estimate is never ruled out.
            low, high = (min(bound, elo), None) if points > 0 else (None, max(bound, elo))
            return Rating(elo, low, high, points, games)
        drop = float(chi2.ppf(level, df=1)) / 2.0
        return Rating(elo, self._edge(k, -1.0, drop), self._edge(k, 1.0, drop), points, games)

    def likelihood(self, ratings: Floats) -> float:
        """Penalised log-likelihood of `ratings` [players]."""
        d = SLOPE * (ratings[self.one] - ratings[self.other])
        games = self.points * d - self.games * np.logaddexp(0.0, d)
        free = ratings[~self.fixed]
        return float(games.sum() - ((free - self.mean) ** 2).sum() / (2 * self.sd**2))

    def _maximise(self, ratings: Floats, free: NDArray[np.bool_]) -> Floats:
        """Newton's method over the `free` ratings; the function is strictly concave."""
        ratings = ratings.copy()
        for _ in range(100 if free.any() else 0):
            gradient, curvature = self._derivatives(ratings)
            step = np.linalg.solve(curvature[np.ix_(free, free)], gradient[free])
            # Far from the maximum a whole step may leap over it.
            step *= min(1.0, 400.0 / max(1e-12, float(np.abs(step).max())))
            ratings[free] += step
            if float(np.abs(step).max()) < 1e-9:
                break
        return ratings

    def _derivatives(self, ratings: Floats) -> tuple[Floats, Floats]:
        """Gradient [players] and minus the Hessian [players, players]."""
        p = 1.0 / (1.0 + np.exp(-SLOPE * (ratings[self.one] - ratings[self.other])))
        pull = SLOPE * (self.points - self.games * p)
        bend = SLOPE**2 * self.games * p * (1.0 - p)
        gradient = -(ratings - self.mean) / self.sd**2
        np.add.at(gradient, self.one, pull)
        np.add.at(gradient, self.other, -pull)
        curvature = np.eye(len(ratings)) / self.sd**2
        for a, b, sign in (
            (self.one, self.one, 1.0),
            (self.other, self.other, 1.0),
            (self.one, self.other, -1.0),
            (self.other, self.one, -1.0),
        ):
            np.add.at(curvature, (a, b), sign * bend)
        return gradient, curvature

    def _edge(self, k: int, side: float, drop: float) -> float:
        """Where the profile likelihood of player k has fallen by `drop`, on one side."""
        top = self.likelihood(self.best)
        free = ~self.fixed
        free[k] = False

        def excess(distance: float) -> float:
            ratings = self.best.copy()
            ratings[k] += side * distance
            return self.likelihood(self._maximise(ratings, free)) - top + drop

        if excess(REACH) > 0:
            return float(self.best[k]) + side * REACH
        return float(self.best[k]) + side * float(brentq(excess, 0.0, REACH, xtol=1e-6))

    def _bound(self, k: int, won: bool, level: float) -> float:
        """The rating at which winning (losing) all games has a chance of 1 - level."""
        mine, theirs = self.one == k, self.other == k
        rivals = np.concatenate([self.best[self.other[mine]], self.best[self.one[theirs]]])
        games = np.concatenate([self.games[mine], self.games[theirs]])
        sign = 1.0 if won else -1.0

        def excess(rating: float) -> float:
            chance = -(games * np.logaddexp(0.0, -sign * SLOPE * (rating - rivals))).sum()
            return float(chance) - math.log(1.0 - level)

        low, high = float(rivals.min()) - REACH, float(rivals.max()) + REACH
        return float(brentq(excess, low, high, xtol=1e-6))

    def _tally(self, k: int) -> tuple[float, int]:
        mine, theirs = self.one == k, self.other == k
        points = self.points[mine].sum() + (self.games - self.points)[theirs].sum()
        return float(points), int(self.games[mine].sum() + self.games[theirs].sum())


def _anchor(text: str) -> tuple[str, float]:
    name, _, elo = text.rpartition("=")
    return name, float(elo)


def main(argv: Sequence[str] | None = None) -> None:
    """Fit every player of a match record and write name to Elo as JSON."""
    parser = argparse.ArgumentParser(prog="python -m queen.evaluation.elo", description=__doc__)
    parser.add_argument("games", type=Path, help="a match record (JSON lines)")
    parser.add_argument("ratings", type=Path)
    parser.add_argument("--anchor", type=_anchor, action="append", required=True)
    parser.add_argument("--prior-sd", type=float, default=400.0)
    args = parser.parse_args(argv)
    pool = fit_pool(pairwise(read_record(args.games)), dict(args.anchor), Prior(args.prior_sd))
    for name, rating in sorted(pool.items(), key=lambda item: item[1].elo):
        low, high = (f"{x:.0f}" if x is not None else "none" for x in (rating.low, rating.high))
        print(f"{rating.elo:6.0f}  [{low}, {high}]  {rating.points:g}/{rating.games}  {name}")
    ratings = {name: round(rating.elo, 1) for name, rating in pool.items()}
    args.ratings.write_text(json.dumps(ratings, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
