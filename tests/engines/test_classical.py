from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.engines.cache import SearchCache
from queen.engines.classical import (
    TERMS,
    ClassicalEvaluator,
    ClassicalTerms,
    game_phase,
    has_classical_table,
)
from queen.engines.locate import find_engine
from queen.engines.table import parse_table
from queen.engines.uci import EngineStartError

ITALIAN = "r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"
CHECK = "r1bqkbnr/ppppQppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNB1K2R b KQkq - 3 3"

STOCKFISH_15_1 = """\
info string classical evaluation enabled

 Contributing terms for the classical eval:
+------------+-------------+-------------+-------------+
|    Term    |    White    |    Black    |    Total    |
|            |   MG    EG  |   MG    EG  |   MG    EG  |
+------------+-------------+-------------+-------------+
|   Material |  ----  ---- |  ----  ---- |  0.07  0.07 |
|  Imbalance |  ----  ---- |  ----  ---- |  0.00  0.00 |
|      Pawns |  0.12 -0.02 |  0.12 -0.02 |  0.00  0.00 |
|    Knights | -0.07 -0.12 | -0.05 -0.09 | -0.02 -0.02 |
|    Bishops | -0.19 -0.60 | -0.09 -0.52 | -0.10 -0.07 |
|      Rooks | -0.15 -0.04 | -0.15 -0.04 |  0.00  0.00 |
|     Queens |  0.00  0.00 |  0.00  0.00 |  0.00  0.00 |
|   Mobility | -0.08 -0.02 |  0.01  0.04 | -0.08 -0.06 |
|King safety |  0.42 -0.06 |  0.35 -0.09 |  0.06  0.03 |
|    Threats |  0.12  0.30 |  0.12  0.14 |  0.00  0.17 |
|     Passed |  0.00  0.00 |  0.00  0.00 |  0.00  0.00 |
|      Space |  0.31  0.00 |  0.27  0.00 |  0.04  0.00 |
|   Winnable |  ----  ---- |  ----  ---- |  0.00  0.11 |
+------------+-------------+-------------+-------------+
|      Total |  ----  ---- |  ----  ---- | -0.04  0.22 |
+------------+-------------+-------------+-------------+

Classical evaluation   +0.10 (white side)
Final evaluation       +0.14 (white side)
"""
FAIRY = """\
     Term    |    White    |    Black    |    Total
             |   MG    EG  |   MG    EG  |   MG    EG
 ------------+-------------+-------------+------------
    Material |  ----  ---- |  ----  ---- |  0.15  0.17
   Imbalance |  ----  ---- |  ----  ---- |  0.00  0.00
       Pawns |  0.46 -0.10 |  0.46 -0.10 |  0.00  0.00
     Knights | -0.08 -0.17 | -0.05 -0.14 | -0.03 -0.04
     Bishops | -0.42 -0.96 | -0.27 -0.87 | -0.15 -0.09
       Rooks | -0.24 -0.05 | -0.24 -0.05 |  0.00  0.00
      Queens |  0.00  0.00 |  0.00  0.00 |  0.00  0.00
    Mobility | -0.15  0.02 | -0.10  0.14 | -0.06 -0.12
 King safety |  0.59 -0.05 |  0.47 -0.11 |  0.12  0.06
     Threats |  0.22  0.46 |  0.23  0.23 | -0.01  0.23
      Passed |  0.00  0.00 |  0.00  0.00 |  0.00  0.00
       Space |  0.53  0.00 |  0.46  0.00 |  0.07  0.00
  Initiative |  ----  ---- |  ----  ---- |  0.00  0.16
     Variant |  0.00  0.00 |  0.00  0.00 |  0.00  0.00
 ------------+-------------+-------------+------------
       Total |  ----  ---- |  ----  ---- |  0.09  0.38

Total evaluation: -0.04 (white side)
"""


@pytest.fixture(params=["stockfish", "fairy-stockfish"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine at hand that prints the table."""
    try:
        found = find_engine(request.param)
    except EngineStartError as error:
        pytest.skip(error.what)
    if not has_classical_table(found):
        pytest.skip(f"{found} prints no table")
    return found


def positions(count: int, seed: int = 5) -> list[str]:
    """Positions of random games, in check and out of it."""
    rng, found = random.Random(seed), []
    while len(found) < count:
        board = chess.Board()
        for _ in range(rng.randrange(4, 60)):
            if board.is_game_over():
                break
            board.push(rng.choice(list(board.legal_moves)))
        found.append(board.fen())
    return found


# -- the table ------------------------------------------------------------------------------


def test_both_engines_tables_are_read() -> None:
    new, old = parse_table(STOCKFISH_15_1.splitlines()), parse_table(FAIRY.splitlines())
    assert new is not None
    assert old is not None
    assert list(new.rows) == list(old.rows) == list(TERMS)
    assert new.rows["Threats"].white == (0.12, 0.30)
    assert new.rows["Threats"].black == (0.12, 0.14)
    assert new.rows["Threats"].total == (0.0, 0.17)
    assert new.rows["Material"].white is None
    assert old.rows["Winnable"].total == (0.0, 0.16)
    assert old.rows["King safety"].black == (0.47, -0.11)
    assert (new.evaluation, old.evaluation) == (0.10, -0.04)


def test_a_table_in_check_is_none() -> None:
    assert parse_table(["Final evaluation: none (in check)"]) is None


@pytest.mark.parametrize("gone", ["Threats", "Total"])
def test_a_table_that_breaks_off_is_refused(gone: str) -> None:
    lines = [line for line in FAIRY.splitlines() if gone not in line or "Term" in line]
    with pytest.raises(ValueError, match=gone):
        parse_table(lines)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(alphabet="|-. 0123456789aMTotal", max_size=50), max_size=20))
def test_no_text_but_a_table_is_read(lines: list[str]) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_table(lines)


# -- the phase ------------------------------------------------------------------------------


def test_the_phase_falls_from_1_to_0() -> None:
    assert game_phase(chess.STARTING_FEN) == 1.0
    assert game_phase("4k3/pppp4/8/8/8/8/PPPP4/4K3 w - - 0 1") == 0.0
    assert game_phase("3qk3/8/8/8/8/8/8/3QK3 w - - 0 1") == pytest.approx(8 / 24)
    assert game_phase("qqqqkqqq/8/8/8/8/8/8/QQQQKQQQ w - - 0 1") == 1.0


# -- real engines ---------------------------------------------------------------------------


def test_terms_add_up(engine: str) -> None:
    with ClassicalEvaluator(engine) as evaluator:
        found = [terms for terms in evaluator.terms(positions(60)) if terms and terms.complete]
    assert len(found) > 20
    for terms in found:
        for row in terms.terms.values():
            if row.white and row.black:
                for phase in (0, 1):
                    difference = row.white[phase] - row.black[phase]
                    assert difference == pytest.approx(row.total[phase], abs=0.04)
        assert sum(terms.blended(name) for name in TERMS if name != "Total") == pytest.approx(
            terms.blended("Total"), abs=0.2
        )
        low, high = sorted(terms.terms["Mobility"].total)
        assert low <= terms.blended("Mobility") <= high


def test_none_in_check_and_where_a_position_is_illegal(engine: str) -> None:
    fens = [ITALIAN, CHECK, "nonsense", *positions(40)]
    with ClassicalEvaluator(engine) as evaluator:
        found = evaluator.terms(fens)
        failures = [(failure.fen, failure.reason) for failure in evaluator.failures]
    assert [terms is None for terms in found[:3]] == [False, True, True]
    assert failures == [("nonsense", "illegal")]
    for fen, terms in zip(fens[3:], found[3:], strict=True):
        assert (terms is None) == chess.Board(fen).is_check()
        assert terms is None or terms.fen == fen


def test_pawns_are_worth_about_one(engine: str) -> None:
    """In any engine's units: rook pawns to queen pawns, missing on Black's side."""
    board = chess.Board()
    board.remove_piece_at(chess.E7)
    with ClassicalEvaluator(engine) as evaluator:
        (terms,) = evaluator.terms([board.fen()])
    assert terms is not None
    assert terms.terms["Material"].total[1] == pytest.approx(1.0, abs=0.15)
    assert terms.evaluation is not None
    assert 0.2 < terms.evaluation < 2


def test_the_table_mirrors(engine: str) -> None:
    """Turning the board changes the sign of every term and swaps the sides."""
    with ClassicalEvaluator(engine) as evaluator:
        here, there = evaluator.terms([ITALIAN, chess.Board(ITALIAN).mirror().fen()])
    assert here is not None
    assert there is not None
    for name in set(TERMS):
        assert here.blended(name) == pytest.approx(-there.blended(name), abs=1e-9)
        assert here.side(name, chess.WHITE) == there.side(name, chess.BLACK)


def test_order_workers_and_cache_change_nothing(engine: str, tmp_path: Path) -> None:
    fens = positions(30)
    with ClassicalEvaluator(engine) as evaluator:
        first = evaluator.terms(fens)
        assert evaluator.terms(fens[::-1]) == first[::-1]
    with SearchCache(tmp_path / "c") as cache:
        for _ in range(2):
            with ClassicalEvaluator(engine, cache) as evaluator:
                assert evaluator.terms(fens) == first
        kept = sum(1 for fen in set(fens) if not chess.Board(fen).is_check())
        assert cache.count() == kept + 8
        assert cache.statistics.hits == kept + 8


def test_terms_the_engine_left_out_are_known(engine: str) -> None:
    queen_up = "4k3/pppp4/8/8/8/8/PPPPPPPP/RNBQKBNR w KQ - 0 1"
    with ClassicalEvaluator(engine) as evaluator:
        ahead, even = evaluator.terms([queen_up, ITALIAN])
    assert isinstance(ahead, ClassicalTerms)
    assert isinstance(even, ClassicalTerms)
    assert not ahead.complete
    assert even.complete


def test_an_engine_without_a_table(fake: Callable[..., str]) -> None:
    assert not has_classical_table(fake())


def test_an_engine_that_dies_on_a_position(script: Callable[[str], str], classical: str) -> None:
    """A wrapper around the real engine that ends when one position is evaluated."""
    wrapper = script(f"""
        import os, subprocess, sys
        engine = subprocess.Popen([{classical!r}], stdin=subprocess.PIPE, text=True)
        doomed = False
        for line in sys.stdin:
            if line.startswith("position"):
                doomed = "5N2/PPPP1PPP/RNBQK2R b" in line
            if doomed and line.startswith("eval"):
                engine.kill()
                os._exit(4)
            engine.stdin.write(line)
            engine.stdin.flush()
    """)
    fens = [fen for fen in positions(12) if not chess.Board(fen).is_check()]
    with ClassicalEvaluator(classical) as evaluator:
        good = evaluator.terms(fens)
    with ClassicalEvaluator(wrapper) as evaluator:
        found = evaluator.terms([*fens[:4], ITALIAN, *fens[4:]])
        assert [(x.fen, x.reason) for x in evaluator.failures] == [(ITALIAN, "crashed")]
    assert found == [*good[:4], None, *good[4:]]
