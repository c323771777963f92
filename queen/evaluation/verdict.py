"""The verdict of a round against its parent: better, worse, or no evidence.

Source: METHOD section 1 (Verdict of a round). The paired difference in FNMR on the development
positions, with an interval by bootstrap over games, decides; Elo may veto `better`, and says
`worse` where it lies wholly below the parent's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from queen.evaluation.elo import Rating
from queen.evaluation.intervals import SAMPLES, Interval, paired_difference
from queen.evaluation.sprt import SprtResult

Kind = Literal["better", "worse", "no evidence"]
Standing = Literal["below", "not below", "no gain"]


@dataclass(frozen=True)
class VerdictRules:
    """How a verdict is reached.

    Attributes:
        level: coverage of the interval. samples, seed: of the bootstrap.
        min_games: with positions from fewer games the difference decides nothing, since a
            bootstrap over a handful of games is far too sure of itself.
    """

    level: float = 0.95
    samples: int = SAMPLES
    seed: int = 0
    min_games: int = 8


@dataclass(frozen=True)
class Verdict:
    """A round's verdict with the numbers it rests on.

    Attributes:
        kind: what the champion and the pipeline go by.
        difference: child's FNMR minus parent's, with its interval.
        elo: where the child's Elo stands against the parent's.
        reason: all of it in words.
    """

    kind: Kind
    difference: Interval
    elo: Standing
    reason: str


def verdict(
    child: Sequence[float],
    parent: Sequence[float],
    games: Sequence[Hashable],
    elo_child: Rating | None,
    elo_parent: Rating | None,
    *,
    sprt: SprtResult | None = None,
    rules: VerdictRules | None = None,
) -> Verdict:
    """Judge a round.

    Args:
        child, parent: for each development position 1 where the first move is no mistake, else
            0, by free decoding; the same positions in the same order.
        games: the game each position is from.
        elo_child, elo_parent: ratings from the same opponents; None where none were played.
        sprt: a sequential test of child against parent; where given, it decides for Elo.
    """
    rules = rules or VerdictRules()
    difference = paired_difference(
        child, parent, games, seed=rules.seed, samples=rules.samples, level=rules.level
    )
    elo, elo_words = _standing(elo_child, elo_parent, sprt)
    enough = difference.clusters >= rules.min_games
    words = f"{_difference_words(difference)}; {elo_words}"
    if not enough:
        words = f"only {difference.clusters} games, {rules.min_games} needed; {words}"
    return Verdict(_kind(difference, elo, enough), difference, elo, words)


def _kind(difference: Interval, elo: Standing, enough: bool) -> Kind:
    if elo == "below" or (enough and difference.below_zero):
        return "worse"
    if enough and difference.above_zero and elo == "not below":
        return "better"
    return "no evidence"


def _standing(
    child: Rating | None, parent: Rating | None, sprt: SprtResult | None
) -> tuple[Standing, str]:
    if sprt is not None and sprt.state != "undecided":
        return _by_sprt(sprt)
    if child is None or parent is None:
        return "not below", "no Elo to compare"
    words = f"Elo {_rating_words(child)} against {_rating_words(parent)}"
    if sprt is not None:
        words = f"sequential test undecided (LLR {sprt.llr:.2f}), {words}"
    return (
        ("below", f"{words}: wholly below")
        if child.wholly_below(parent)
        else (
            "not below",
            words,
        )
    )


def _by_sprt(sprt: SprtResult) -> tuple[Standing, str]:
    """H1 clears the child. H0 condemns it where elo1 <= 0, else it only denies the gain."""
    test = sprt.test
    words = f"sequential test of {test.elo0:g} against {test.elo1:g} Elo takes {sprt.state}"
    if sprt.state == "H1":
        return "not below", words
    return ("below" if test.elo1 <= 0 else "no gain"), words


def _difference_words(difference: Interval) -> str:
    side = "above 0" if difference.above_zero else "below 0" if difference.below_zero else "holds 0"
    return (
        f"FNMR {100 * difference.estimate:+.1f} points "
        f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}] {side}"
    )


def _rating_words(rating: Rating) -> str:
    if rating.low is None:
        return f"at most {rating.high:.0f}"
    if rating.high is None:
        return f"at least {rating.low:.0f}"
    return f"{rating.elo:.0f} [{rating.low:.0f}, {rating.high:.0f}]"
