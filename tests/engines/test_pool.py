from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import chess
import chess.engine
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queen.engines.analysis import decode_analysis, encode_analysis
from queen.engines.cache import SearchCache
from queen.engines.pool import (
    Analyser,
    Analysis,
    EngineFailure,
    EngineSettings,
    Limit,
    Line,
    Score,
    read_search,
)
from queen.engines.uci import EngineFaultError, EngineStartError
from queen.engines.workers import EngineBrokenError
from queen.errors import QueenError

LIMIT = Limit(nodes=300)
MATED = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
STALEMATE = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"
BARE_KINGS = "8/8/4k3/8/8/3K4/8/8 w - - 0 1"
CLOCK = "8/8/4k3/8/8/3K4/7R/8 w - - {} 100"


def analyse(settings: EngineSettings, fens: list[str], **more: object) -> list[object]:
    with Analyser(settings) as analyser:
        return list(analyser.analyse(fens, LIMIT, **more))  # type: ignore[arg-type]


# -- the real engine ------------------------------------------------------------------------


def test_answers_do_not_depend_on_workers_or_order(stockfish: str, fens: list[str]) -> None:
    asked = fens + fens[:5]
    first = analyse(EngineSettings(stockfish, workers=1, depth_in_flight=1), asked)
    assert first[-5:] == first[:5]
    assert all(isinstance(answer, Analysis) for answer in first)
    shuffled = list(asked)
    random.Random(1).shuffle(shuffled)
    for workers in (2, 3):
        by_fen = dict(
            zip(
                shuffled, analyse(EngineSettings(stockfish, workers=workers), shuffled), strict=True
            )
        )
        assert [by_fen[fen] for fen in asked] == first


def test_answers_agree_with_python_chess(stockfish: str, fens: list[str]) -> None:
    ours = analyse(EngineSettings(stockfish, workers=2), fens[::4], multipv=2)
    with chess.engine.SimpleEngine.popen_uci(stockfish) as engine:
        engine.configure({"Hash": 1, "Threads": 1})
        for fen, answer in zip(fens[::4], ours, strict=True):
            board, limit = chess.Board(fen), chess.engine.Limit(nodes=300)
            infos = engine.analyse(board, limit, multipv=2, game=object())
            assert isinstance(answer, Analysis)
            assert [line.moves for line in answer.lines] == [
                tuple(move.uci() for move in info["pv"]) for info in infos
            ]
            assert [line.score.cp for line in answer.lines] == [
                info["score"].relative.score() for info in infos
            ]


def test_the_identity_is_what_the_engine_says(stockfish: str) -> None:
    with Analyser(EngineSettings(stockfish, options={"Hash": 2})) as analyser:
        identity = analyser.identity
    assert identity.name == "Stockfish"
    assert dict(identity.options) == {"Hash": "2", "Threads": "1"}
    assert all(
        part and set(part) <= set("0123456789abcdef") for part in identity.network_digest.split("+")
    )


def test_spellings_of_one_position_get_one_search(stockfish: str, tmp_path: Path) -> None:
    board = chess.Board()
    board.push_uci("e2e4")
    spelt = board.fen(en_passant="fen")
    assert spelt != board.fen()
    with SearchCache(tmp_path / "c") as cache, Analyser(EngineSettings(stockfish), cache) as a:
        first, second = a.analyse([spelt, board.fen()], LIMIT)
        assert cache.count() == 1
    assert isinstance(first, Analysis)
    assert isinstance(second, Analysis)
    assert (first.fen, second.fen) == (spelt, board.fen())
    assert first.lines == second.lines


def test_a_kept_search_is_not_repeated(stockfish: str, fens: list[str], tmp_path: Path) -> None:
    with SearchCache(tmp_path / "c") as cache:
        with Analyser(EngineSettings(stockfish), cache) as analyser:
            first = analyser.analyse(fens, LIMIT)
            assert all(x.source == "engine" for x in first if isinstance(x, Analysis))
            analyser.analyse(fens[:3], Limit(nodes=200))
            analyser.analyse(fens[:3], LIMIT, multipv=2)
        assert cache.count() == len(fens) + 6
        with Analyser(EngineSettings(stockfish, workers=3), cache) as analyser:
            again = analyser.analyse(fens, LIMIT)
        with Analyser(EngineSettings(stockfish, options={"Hash": 2}), cache) as analyser:
            other = analyser.analyse(fens[:1], LIMIT)
    assert again == first
    assert {x.source for x in again if isinstance(x, Analysis)} == {"cache"}
    assert isinstance(other[0], Analysis)
    assert other[0].source == "engine"


# -- the rules ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fen", "score"),
    [
        (MATED, Score(mate=0)),
        (STALEMATE, Score(cp=0)),
        (BARE_KINGS, Score(cp=0)),
        (CLOCK.format(150), Score(cp=0)),
    ],
)
def test_games_that_are_over_need_no_engine(
    fake: Callable[..., str], fen: str, score: Score
) -> None:
    (answer,) = analyse(EngineSettings(fake(always="die")), [fen])
    assert answer == Analysis(fen, (Line(score, ()),), 0, 0)
    assert isinstance(answer, Analysis)
    assert answer.source == "rules"


def test_a_game_before_its_last_move_is_searched(fake: Callable[..., str]) -> None:
    (answer,) = analyse(EngineSettings(fake()), [CLOCK.format(149)])
    assert isinstance(answer, Analysis)
    assert answer.source == "engine"


@pytest.mark.parametrize(
    "fen",
    [
        "",
        "not a position",
        "8/8/8/8/8/8/8/8 w - - 0 1",
        "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBN w KQkq - 0 1",
        "k7/1Q6/8/8/8/8/8/K7 w - - 0 1",
        "kkkkkkkk/8/8/8/8/8/8/K7 w - - 0 1",
        "k7/8/8/8/8/8/8/P6K w - - 0 1",
    ],
)
def test_illegal_positions_never_reach_an_engine(stockfish: str, fens: list[str], fen: str) -> None:
    before, bad, after = analyse(EngineSettings(stockfish, workers=1), [fens[0], fen, fens[1]])
    assert isinstance(bad, EngineFailure)
    assert (bad.fen, bad.reason) == (fen, "illegal")
    assert isinstance(before, Analysis)
    assert isinstance(after, Analysis)


# -- engines that fail ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mood", "reason", "workers"),
    [
        ("die", "crashed", 1),
        ("die", "crashed", 2),
        ("hang", "hung", 2),
        ("illegal", "rubbish", 2),
        ("scoreless", "rubbish", 1),
        ("babble", "rubbish", 1),
        ("flood", "rubbish", 2),
    ],
)
def test_one_bad_position_costs_no_other(
    fake: Callable[..., str], fens: list[str], mood: str, reason: str, workers: int
) -> None:
    good = analyse(EngineSettings(fake(), workers=1), fens[:12])
    settings = EngineSettings(fake(on={fens[5]: mood}), workers=workers, timeout_s=0.4)
    answers = analyse(settings, fens[:12])
    bad = answers.pop(5)
    assert isinstance(bad, EngineFailure)
    assert (bad.fen, bad.reason) == (fens[5], reason)
    assert bad.detail
    assert answers == good[:5] + good[6:]


def test_a_crash_that_does_not_repeat_is_no_failure(
    fake: Callable[..., str], fens: list[str]
) -> None:
    good = analyse(EngineSettings(fake()), fens[:8])
    assert analyse(EngineSettings(fake(on={fens[3]: "die once"})), fens[:8]) == good


def test_an_engine_that_dies_every_few_searches(fake: Callable[..., str], fens: list[str]) -> None:
    good = analyse(EngineSettings(fake()), fens[:14])
    assert analyse(EngineSettings(fake(die_after=4), workers=2), fens[:14]) == good


def test_answers_never_slip_to_the_next_position(fake: Callable[..., str], fens: list[str]) -> None:
    """An engine that answers one search twice puts all later answers out by one."""
    good = analyse(EngineSettings(fake()), fens[:8])
    answers = analyse(EngineSettings(fake(on={fens[2]: "twice"}), workers=1), fens[:8])
    assert answers[:2] + answers[3:] == good[:2] + good[3:]


def test_an_engine_that_always_fails_ends_the_run(
    fake: Callable[..., str], fens: list[str]
) -> None:
    command = fake(always="die")
    with pytest.raises(EngineBrokenError, match="in a row") as caught:
        analyse(EngineSettings(command, workers=2), fens)
    assert command in caught.value.where
    assert "FEN" in caught.value.remedy or "position" in caught.value.where


def test_engines_that_may_not_queue_get_one_command_at_a_time(
    fake: Callable[..., str], fens: list[str]
) -> None:
    with Analyser(EngineSettings(fake(name="Patzer 2"))) as analyser:
        assert analyser.identity.name == "Patzer"
        assert analyser._pool.in_flight == 1
        assert all(isinstance(x, Analysis) for x in analyser.analyse(fens[:4], LIMIT))
    with Analyser(EngineSettings(fake())) as analyser:
        assert analyser._pool.in_flight > 1


def test_stopping_early_ends_the_engines_at_once(fake: Callable[..., str], fens: list[str]) -> None:
    """What a full disk does: the consumer stops while searches are in flight."""
    settings = EngineSettings(fake(on={fens[9]: "hang"}), workers=2, timeout_s=60)

    started = time.monotonic()
    with Analyser(settings) as analyser:
        stream = analyser._pool.run(_jobs(fens[:12]))
        next(stream)
        stream.close()
        again = analyser.analyse(fens[:3], LIMIT)
    assert all(isinstance(x, Analysis) for x in again)
    assert time.monotonic() - started < 10


def _jobs(fens: list[str]) -> list[object]:
    from queen.engines.pool import search_job

    return [search_job(fen, chess.Board(fen), LIMIT, 1) for fen in fens]


def test_threads_share_an_analyser(fake: Callable[..., str], fens: list[str]) -> None:
    answers: dict[int, object] = {}
    with Analyser(EngineSettings(fake(), workers=2)) as analyser:

        def ask(number: int) -> None:
            answers[number] = analyser.analyse(fens[number : number + 6], LIMIT)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        alone = [analyser.analyse(fens[number : number + 6], LIMIT) for number in range(3)]
    assert [answers[number] for number in range(3)] == alone


# -- settings -------------------------------------------------------------------------------


def test_more_threads_are_refused(fake: Callable[..., str]) -> None:
    with pytest.raises(QueenError, match="depend on timing"):
        Analyser(EngineSettings(fake(), options={"threads": 2}))


def test_too_many_lines_are_refused(fake: Callable[..., str], fens: list[str]) -> None:
    with pytest.raises(QueenError, match="gives 1 to 500"):
        analyse(EngineSettings(fake()), fens[:1], multipv=501)


def test_a_missing_network_file_is_named(stockfish: str) -> None:
    with (
        pytest.raises(EngineStartError, match=r"gone\.nnue"),
        Analyser(EngineSettings(stockfish, options={"EvalFile": "gone.nnue"})) as analyser,
    ):
        _ = analyser.identity


@pytest.mark.parametrize("limit", [{}, {"nodes": 0}, {"nodes": 5, "depth": -1}])
def test_a_limit_must_end(limit: dict[str, int]) -> None:
    with pytest.raises(QueenError, match="ends no search"):
        Limit(**limit)


# -- reading --------------------------------------------------------------------------------

START = chess.Board()


def read(*lines: str, multipv: int = 1) -> Analysis:
    return read_search(START.fen(), START, multipv, [b"readyok", *map(str.encode, lines)])


def test_the_last_info_of_each_line_counts() -> None:
    answer = read(
        "info depth 1 multipv 1 score cp 9 nodes 20 pv a2a3",
        "info depth 2 multipv 1 score cp 30 nodes 50 pv e2e4 e7e5",
        "info depth 2 multipv 2 score mate -3 nodes 60 pv d2d4",
        "info depth 3 currmove e2e4 currmovenumber 1",
        "bestmove e2e4 ponder e7e5",
        multipv=2,
    )
    lines = (Line(Score(cp=30), ("e2e4", "e7e5")), Line(Score(mate=-3), ("d2d4",)))
    assert answer == Analysis(START.fen(), lines, 2, 50)


def test_a_line_is_cut_at_its_first_illegal_move() -> None:
    answer = read("info depth 2 score cp 1 nodes 3 pv e2e4 e2e4 e7e5", "bestmove e2e4")
    assert answer.best.moves == ("e2e4",)


def test_a_score_without_a_line_takes_the_best_move() -> None:
    assert read("info depth 1 score cp 4 nodes 2", "bestmove g1f3").best.moves == ("g1f3",)


@pytest.mark.parametrize(
    "lines",
    [
        ("bestmove e2e4",),
        ("info depth 1 score cp 4 pv e2e4", "bestmove"),
        ("info depth 1 score cp 4 pv e2e4", "bestmove (none)"),
        ("info depth 1 score cp 4 pv e2e4", "bestmove e2e5"),
        ("info depth 1 score cp", "bestmove e2e4"),
        ("info depth 1 score xx 4 pv e2e4", "bestmove e2e4"),
        ("info depth one score cp 4 pv e2e4", "bestmove e2e4"),
    ],
)
def test_rubbish_is_recognised(lines: tuple[str, ...]) -> None:
    with pytest.raises((EngineFaultError, ValueError, IndexError)):
        read(*lines)


def test_output_that_nobody_asked_for_is_rubbish() -> None:
    lines = [b"info depth 1 score cp 4 pv e2e4", b"bestmove e2e4"]
    with pytest.raises(EngineFaultError, match="nobody asked"):
        read_search(START.fen(), START, 1, lines)


scores = st.one_of(
    st.builds(Score, cp=st.integers(-40_000, 40_000)), st.builds(Score, mate=st.integers(-99, 99))
)
moves = st.lists(st.sampled_from(["e2e4", "e7e8q", "g1f3"]), max_size=6).map(tuple)


@given(
    st.lists(st.builds(Line, scores, moves), min_size=1, max_size=4).map(tuple),
    st.integers(0, 200),
    st.integers(0, 10**12),
)
def test_kept_bytes_give_the_same_analysis(lines: tuple[Line, ...], depth: int, nodes: int) -> None:
    analysis = Analysis(START.fen(), lines, depth, nodes)
    assert decode_analysis(START.fen(), encode_analysis(analysis)) == analysis


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_output_breaks_the_reader(lines: list[bytes]) -> None:
    """Any bytes give an analysis or one of the errors that count as rubbish."""
    try:
        read_search(START.fen(), START, 1, [*lines, b"bestmove e2e4"])
    except (EngineFaultError, ValueError, IndexError):
        return
    assert any(b" score " in line for line in lines)
