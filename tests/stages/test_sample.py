"""How roots are shared out among their sources."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.errors import QueenError
from stages.sample import Params, _check_shares, _passed_over, _quotas, _window

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


@given(st.integers(1, 40), st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_rounds_meet_every_row_before_they_meet_one_again(size: int, wanted: list[int]) -> None:
    met: list[int] = []
    for count in wanted:
        rows, again = _window(iter([{"at": n} for n in range(size)]), len(met), count)
        new = [int(row["at"]) for row in rows]
        assert len(new) == len({*new}) == min(count, size)
        assert again == sum(len(met) + n >= size for n in range(len(new)))
        met += [*new, *range(count - len(new))]
    first = met[: min(size, wanted[0])]
    assert first == list(range(len(first)))


@pytest.mark.parametrize(("sizes", "slack"), [((40, 40, 40), 0), ((30, 50, 20), 1)])
def test_the_next_round_draws_other_roots_of_each_source(
    sizes: tuple[int, ...], slack: int
) -> None:
    """All of one size: none twice. Of several: at most one of a source, by rounding."""
    pools = {"human": range(100), "engine": range(100)}
    drawn: dict[str, list[int]] = {source: [] for source in pools}
    for number, roots in enumerate(sizes):
        params = Params(roots, {"human": 0.25, "engine": 0.75}, sum(sizes[:number]))
        for source, wanted in _quotas(params, pools).items():
            rows = iter([{"at": n} for n in pools[source]])
            found, _ = _window(rows, _passed_over(params, wanted), wanted)
            drawn[source] += [int(row["at"]) for row in found]
    assert sum(map(len, drawn.values())) == sum(min(size, 200) for size in sizes)
    assert all(len(ats) - len({*ats}) <= slack for ats in drawn.values() if len(ats) <= 100)


def test_a_mistyped_source_is_named_with_the_nearest() -> None:
    with pytest.raises(QueenError, match="'humans'") as caught:
        _check_shares({"humans": 1.0})
    assert "'human'" in caught.value.remedy


@pytest.mark.parametrize("shares", [{}, {"human": 0.0}, {"human": 2.0, "engine": -1.0}])
def test_shares_that_choose_nothing_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(QueenError, match="no shares"):
        _check_shares(shares)
