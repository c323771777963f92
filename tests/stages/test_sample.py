"""How roots are shared out among their sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.errors import QueenError
from stages.sample import Params, _check_shares, _quotas

SIZES = st.integers(0, 50)


@given(st.integers(1, 60), SIZES, SIZES, st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_never_more_than_asked_for_and_never_fewer_than_there_are(
    roots: int, human: int, engine: int, first: float, second: float
) -> None:
    pools = {"human": range(human), "engine": range(engine)}
    quotas = _quotas(Params(roots, {"human": first, "engine": second}), pools)
    assert sum(quotas.values()) == min(roots, human + engine)
    assert all(0 <= quotas[source] <= len(pools[source]) for source in pools)


def test_halves_that_both_round_up_are_no_root_too_many() -> None:
    pools = {"human": range(99), "engine": range(99)}
    assert sum(_quotas(Params(63, {"human": 0.5, "engine": 0.5}), pools).values()) == 63


def test_a_mistyped_source_is_named_with_the_nearest() -> None:
    with pytest.raises(QueenError, match="'humans'") as caught:
        _check_shares({"humans": 1.0})
    assert "'human'" in caught.value.remedy


@pytest.mark.parametrize("shares", [{}, {"human": 0.0}, {"human": 2.0, "engine": -1.0}])
def test_shares_that_choose_nothing_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(QueenError, match="no shares"):
        _check_shares(shares)
