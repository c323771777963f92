"""What a `go` says, how long it lets an engine think, and what options take."""

from __future__ import annotations

import math
import random

import chess
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.engines.score import expected_from_cp
from queen.engines.thinking import (
    LEAST_S,
    POLICY_OPTIONS,
    TEMPERATURE,
    Limits,
    Option,
    OptionError,
    Search,
    draw_move,
    score_words,
    wdl_words,
)
from queen.engines.uci import parse_option
from queen.generation.options import EXPLAINING_OPTIONS

LOGITS = {"e2e4": 0.0, "d2d4": -0.5, "g1f3": -3.0}


def silent(text: str) -> None:
    """Nobody listens."""


def test_words_of_a_go_are_read_in_any_order() -> None:
    said = (
        "ponder searchmoves e2e4 d2d4 wtime 300 btime -40 winc 2 binc 3 movestogo 7 bogus nodes x"
    )
    found = Limits.parse(said.split())
    assert found == Limits(
        wtime=300, btime=-40, winc=2, binc=3, movestogo=7, moves=("e2e4", "d2d4"), endless=True
    )
    assert Limits.parse([]) == Limits()
    assert Limits.parse(["infinite", "depth", "3", "movetime", "40"]) == Limits(
        depth=3, movetime=40, endless=True
    )


@pytest.mark.parametrize("number", ["--5", "-", "²", "1e3", "9" * 400, "9" * 5000])
def test_what_is_no_number_is_passed_over(number: str) -> None:
    assert Limits.parse(["depth", number, "wtime", number, "nodes", "7"]) == Limits(nodes=7)


@given(
    left=st.integers(-1000, 10**7), gained=st.integers(0, 10**5),
    togo=st.none() | st.integers(1, 80), overhead=st.integers(0, 5000), turn=st.booleans(),
)  # fmt: skip
def test_no_move_takes_more_than_the_clock_has(
    left: int, gained: int, togo: int | None, overhead: int, turn: bool
) -> None:
    clocks = {"wtime": left, "winc": gained} if turn else {"btime": left, "binc": gained}
    seconds = Limits(**clocks, movestogo=togo).seconds(turn, overhead)
    assert seconds is not None
    assert seconds >= LEAST_S
    assert seconds <= max(LEAST_S, (left - overhead) / 1000)
    assert Limits(**clocks).seconds(not turn, overhead) is None


def test_a_longer_clock_never_makes_a_shorter_think() -> None:
    times = [
        Limits(wtime=t, winc=500).seconds(chess.WHITE, 50) or 0.0 for t in range(0, 60_000, 97)
    ]
    assert times == sorted(times)
    assert Limits(movetime=200).seconds(chess.BLACK, 50) == pytest.approx(0.15)


def test_a_search_is_over_when_its_time_is_up_or_it_is_stopped() -> None:
    late = Search(Limits(), silent, 0.5)
    assert 0 < late.left <= 0.5
    late.began -= 1
    assert late.over()
    endless = Search(Limits(endless=True), silent, 0.5)
    endless.began -= 1
    assert endless.left == math.inf
    endless.stopped.set()
    assert endless.over()


def test_only_the_moves_asked_for_are_chosen_from() -> None:
    search = Search(Limits(moves=("d2d4", "a1a8")), silent)
    assert dict(search.allowed(LOGITS)) == {"d2d4": -0.5}
    assert Search(Limits(moves=("a1a8",)), silent).allowed(LOGITS) == LOGITS


@pytest.mark.parametrize(
    "option", dict.fromkeys((*POLICY_OPTIONS, *EXPLAINING_OPTIONS)), ids=lambda o: o.name
)
def test_options_declare_themselves_and_take_their_default_back(option: Option) -> None:
    declared = parse_option(str(option))
    assert declared is not None
    assert declared.name == option.name
    assert option.read(declared.default) == option.default


@pytest.mark.parametrize("text", ["-0.1", "10.5", "warm", "", "nan"])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="give a number from 0 to 10"):
        TEMPERATURE.read(text)


def test_draws_follow_the_temperature() -> None:
    rng = random.Random(1)
    assert draw_move(LOGITS, 0.0, rng) == "e2e4"
    assert draw_move({"b2b4": 1.0, "a2a4": 1.0}, 0.0, rng) == "a2a4"
    warm = [draw_move(LOGITS, 1.0, rng) for _ in range(2000)]
    whole = sum(math.exp(v) for v in LOGITS.values())
    for move, logit in LOGITS.items():
        assert warm.count(move) / 2000 == pytest.approx(math.exp(logit) / whole, abs=0.04)
    cold = [draw_move(LOGITS, 0.05, rng) for _ in range(200)]
    assert cold.count("e2e4") > 195


@given(st.integers(-2000, 2000))
def test_a_score_shown_is_the_expected_score_meant(cp: int) -> None:
    assert score_words(expected_from_cp(cp)) == f"score cp {cp}"


def test_sure_scores_stay_numbers() -> None:
    assert score_words(1.0) == f"score cp {-int(score_words(0.0).split()[-1])}"


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_sum_to_a_thousand(one: float, other: float) -> None:
    win, loss = min(one, other), 1 - max(one, other)
    parts = [int(word) for word in wdl_words((win, 1 - win - loss, loss)).split()[1:]]
    assert sum(parts) in (1000, 1001)  # two halves may both be rounded up
    assert min(parts) >= 0
