"""Drawing candidates and replacing the worst where all are mistakes."""

from __future__ import annotations

import math
from collections import Counter

import hypothesis.strategies as st
from hypothesis import given

from queen.engines.judge import RootVerdict
from queen.search.candidates import draw, replace_worst

POLICIES = st.dictionaries(
    st.text("abcdefgh12345678", min_size=4, max_size=4),
    st.floats(-20, 0),
    min_size=1,
    max_size=40,
)


def verdict(values: dict[str, float], best: float = 0.8) -> RootVerdict:
    return RootVerdict("fen", best, "e2e4", ("e2e4",), values, 0, 0.10)


@given(POLICIES, st.integers(1, 5), st.integers(0, 2**60), st.floats(0, 2))
def test_draws_are_distinct_legal_and_sorted(
    policy: dict[str, float], count: int, seed: int, temperature: float
) -> None:
    moves = draw(policy, count, temperature, seed)
    assert len(moves) == len(set(moves)) == min(count, len(policy))
    assert set(moves) <= policy.keys()
    assert [policy[m] for m in moves] == sorted((policy[m] for m in moves), reverse=True)
    assert draw(dict(reversed(policy.items())), count, temperature, seed) == moves


def test_temperature_zero_takes_the_most_probable() -> None:
    assert draw({"a": -3.0, "b": -1.0, "c": -2.0}, 2, 0.0, 7) == ("b", "c")


def test_draws_follow_the_policy() -> None:
    policy = {"a": math.log(0.7), "b": math.log(0.2), "c": math.log(0.1)}
    first = Counter(draw(policy, 1, 1.0, seed)[0] for seed in range(4000))
    assert abs(first["a"] / 4000 - 0.7) < 0.03
    assert abs(first["c"] / 4000 - 0.1) < 0.02


def test_the_worst_gives_way_only_where_all_are_mistakes() -> None:
    all_bad = verdict({"a2a3": 0.5, "b2b3": 0.3, "c2c3": 0.6})
    assert replace_worst(("a2a3", "b2b3", "c2c3"), all_bad) == (("e2e4", "a2a3", "c2c3"), "b2b3")
    one_good = verdict({"a2a3": 0.5, "b2b3": 0.3, "c2c3": 0.75})
    assert replace_worst(("a2a3", "b2b3", "c2c3"), one_good) == (("a2a3", "b2b3", "c2c3"), None)


def test_the_engines_move_never_stands_twice() -> None:
    shallow = verdict({"a2a3": 0.5, "e2e4": 0.6})
    assert replace_worst(("e2e4", "a2a3"), shallow) == (("e2e4", "a2a3"), None)


def test_a_loss_of_exactly_the_threshold_is_a_mistake() -> None:
    assert replace_worst(("a2a3",), verdict({"a2a3": 0.7}))[1] == "a2a3"
    assert replace_worst(("a2a3",), verdict({"a2a3": 0.7000001}))[1] is None
