"""Verdicts: the rule of METHOD section 1, case by case."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.evaluation.elo import Rating
from queen.evaluation.sprt import Sprt, SprtResult, State
from queen.evaluation.verdict import VerdictRules, verdict

GAMES = [n // 4 for n in range(200)]
GOOD = [1.0 if n % 10 else 0.0 for n in range(200)]
POOR = [1.0 if n % 3 == 0 else 0.0 for n in range(200)]
LOW, MID, HIGH = (Rating(elo, elo - 80, elo + 80, 16, 32) for elo in (900.0, 1000.0, 1400.0))
LOST_ALL = Rating(600.0, None, 700.0, 0, 32)
QUICK = VerdictRules(samples=800)


@pytest.mark.parametrize(
    ("child", "parent", "elo_child", "elo_parent", "kind"),
    [
        (GOOD, POOR, MID, MID, "better"),
        (GOOD, POOR, None, None, "better"),
        (GOOD, POOR, LOW, MID, "better"),  # Elo lower, but not wholly
        (GOOD, POOR, LOW, HIGH, "worse"),  # Elo wholly below
        (POOR, GOOD, HIGH, LOW, "worse"),
        (POOR, GOOD, None, None, "worse"),
        (GOOD, GOOD, HIGH, LOW, "no evidence"),  # Elo alone makes nothing better
        (GOOD, GOOD, LOW, HIGH, "worse"),
        (GOOD, POOR, LOST_ALL, MID, "worse"),
        (GOOD, POOR, LOST_ALL, LOST_ALL, "better"),  # bounds on one side only
        (GOOD, GOOD, MID, LOST_ALL, "no evidence"),
    ],
)
def test_kinds(
    child: list[float],
    parent: list[float],
    elo_child: Rating | None,
    elo_parent: Rating | None,
    kind: str,
) -> None:
    found = verdict(child, parent, GAMES, elo_child, elo_parent, rules=QUICK)
    assert found.kind == kind
    assert f"{100 * found.difference.estimate:+.1f} points" in found.reason


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 1), min_size=40, max_size=120), st.integers(0, 1000))
def test_a_model_against_itself_is_no_evidence(scores: list[int], seed: int) -> None:
    games = [n // 2 for n in range(len(scores))]
    rules = VerdictRules(samples=300, seed=seed)
    assert verdict(scores, scores, games, MID, MID, rules=rules).kind == "no evidence"


def test_two_models_alike_are_seldom_told_apart() -> None:
    """Equal strength, independent errors: at most about 5 % false verdicts."""
    rng = np.random.default_rng(8)
    kinds = []
    for _ in range(200):
        level = np.repeat(rng.beta(3, 2, size=40), 5)
        child, parent = (rng.random((2, 200)) < level).astype(float)
        games = np.repeat(np.arange(40), 5).tolist()
        rules = VerdictRules(samples=400)
        kinds.append(verdict(child.tolist(), parent.tolist(), games, None, None, rules=rules).kind)
    assert kinds.count("no evidence") >= 180


def test_few_games_decide_nothing() -> None:
    few = [n // 50 for n in range(200)]
    found = verdict(GOOD, POOR, few, None, None, rules=QUICK)
    assert found.kind == "no evidence"
    assert "only 4 games, 8 needed" in found.reason


@pytest.mark.parametrize(
    ("elo0", "elo1", "state", "kind"),
    [
        (-20, 0, "H1", "better"),
        (-20, 0, "H0", "worse"),
        (-20, 0, "undecided", "worse"),  # then the ratings decide, and LOW is below HIGH
        (0, 20, "H0", "no evidence"),  # no gain in play, but no loss shown
        (0, 20, "H1", "better"),
    ],
)
def test_a_sequential_test_decides_for_elo(
    elo0: float, elo1: float, state: State, kind: str
) -> None:
    result = SprtResult(Sprt(elo0, elo1), (0, 0, 0), 0.0, state)
    assert verdict(GOOD, POOR, GAMES, LOW, HIGH, sprt=result, rules=QUICK).kind == kind
