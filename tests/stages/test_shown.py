"""Figures as people read them."""

from __future__ import annotations

import pytest

from stages.shown import between, duration, elo, percent, share


def test_ratings_with_bounds_open_bounds_and_none() -> None:
    assert elo(700.2, (640.1, None)) == "700 (640 .. +inf)"
    assert elo(-3.0, (None, 0.0)) == "-3 (-inf .. 0)"
    assert (elo(None, None), elo(3.0, None)) == ("–", "3")
    assert between((40.0, -3.2), sign="+") == "+40 .. -3"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (4.21, "4.2 s"),
        (42.4, "42 s"),
        (59.6, "1 min 0 s"),
        (190, "3 min 10 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_shares_in_percent() -> None:
    assert (percent(0.1234), share(0.1234)) == ("12.3 %", "12.3")
    assert {percent(None), share(None)} == {"–"}
