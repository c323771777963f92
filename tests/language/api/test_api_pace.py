"""Rates and the account, on a clock of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from queen.language.api.ledger import Ledger
from queen.language.api.messages import Bound
from queen.language.api.pace import WINDOW_S, Halt, Pace
from queen.language.api.settings import Budget, Endpoint, Price

WHOM = Endpoint(model="m", price=Price(2.0, 8.0))
AMOUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=40)


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def times(per_minute: int, amounts: Sequence[int]) -> list[float]:
    clock = Clock()
    pace = Pace(per_minute, clock, clock.sleep)

    async def run() -> list[float]:
        return [(await pace.wait(amount)).at for amount in amounts]

    return asyncio.run(run())


@given(st.integers(1, 60), AMOUNTS)
def test_no_minute_holds_more_than_the_limit(per_minute: int, amounts: list[int]) -> None:
    at = times(per_minute, amounts)
    assert at == sorted(at)
    for start in at:
        inside = [a for a, t in zip(amounts, at, strict=True) if start <= t < start + WINDOW_S]
        assert sum(inside) <= per_minute or len(inside) == 1


@given(st.integers(1, 60), AMOUNTS)
def test_nothing_waits_longer_than_it_must(per_minute: int, amounts: list[int]) -> None:
    """Each goes as soon as enough of the minute before it is over."""
    at = times(per_minute, amounts)
    for n, moment in enumerate(at):
        earlier = moment - 0.002
        if n and earlier > at[n - 1]:
            used = sum(amounts[i] for i in range(n) if at[i] > earlier - WINDOW_S)
            assert used + amounts[n] > per_minute


def test_a_smaller_amount_than_feared_makes_room() -> None:
    clock = Clock()
    pace = Pace(100, clock, clock.sleep)

    async def run() -> tuple[float, float]:
        first = await pace.wait(90)
        first.amount = 10
        return first.at, (await pace.wait(90)).at

    first, second = asyncio.run(run())
    assert second == first


def test_without_a_limit_nobody_waits() -> None:
    assert times(0, [10**6] * 5) == [100.0] * 5


def test_a_halt_holds_until_the_later_of_two_moments() -> None:
    clock = Clock()
    halt = Halt(clock, clock.sleep)
    halt.hold(5)
    halt.hold(3)
    asyncio.run(halt.wait())
    assert clock.now == 105.0
    asyncio.run(halt.wait())
    assert clock.now == 105.0


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 60), st.booleans()), max_size=60),
    st.integers(1, 3000),
    st.sampled_from([0.0, 0.002, 0.01]),
)
def test_the_account_never_passes_its_budget(
    attempts: list[tuple[int, int, bool]], tokens: int, usd: float
) -> None:
    """Whatever is asked and however much of what was reserved is used."""
    ledger = Ledger(Budget(usd, tokens))
    open_: list[tuple[Bound, bool]] = []
    for prompt, answer, lost in attempts:
        bound = Bound(prompt + 10, answer)
        if ledger.fits(WHOM, bound):
            ledger.reserve(WHOM, bound)
            open_.append((bound, lost))
        elif open_:
            settled, was_lost = open_.pop(0)
            used = settled if was_lost else Bound(settled.prompt // 2, settled.answer // 3)
            ledger.settle(WHOM, settled, used, lost=was_lost)
        assert ledger.tokens <= tokens
        assert not usd or ledger.usd <= usd + 1e-9
    for settled, _ in open_:
        ledger.settle(WHOM, settled, settled)
    assert ledger.tokens <= tokens
    assert not usd or ledger.usd <= usd + 1e-9
    assert (ledger.open, ledger.reserved_tokens) == (0, 0)
    assert abs(ledger.reserved_usd) < 1e-9
