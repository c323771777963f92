"""FNMR and NMR: denominators, short lines, illegal moves, finished games."""

from __future__ import annotations

import chess
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.engines.analysis import EngineFailure, Limit
from queen.engines.judge import MoveJudge, RootVerdict
from queen.engines.locate import find_program
from queen.engines.pool import Analyser
from queen.engines.workers import EngineSettings
from queen.evaluation.substantiation import (
    Answer,
    LineScore,
    losses_of,
    measure,
    needed_searches,
    score_line,
)
from queen.games.chess.position import Position

START = Position(chess.STARTING_FEN)
RUY = ("e2e4", "e7e5", "g1f3", "b8c6", "f1b5", "a7a6", "b5a4")


def no_loss(fen: str, uci: str) -> float:
    return 0.0


def bad_at(*bad: str):  # type: ignore[no-untyped-def]
    return lambda fen, uci: 0.1 if uci in bad else 0.099


def score(answer: Answer, loss=no_loss, position: Position = START) -> LineScore:  # type: ignore[no-untyped-def]
    return score_line(position, answer, loss, 0.1)


def test_searches_are_those_of_the_first_move_and_five_plies() -> None:
    items = needed_searches(START, Answer("d2d4", RUY))
    assert items[0] == (chess.STARTING_FEN, ("d2d4", "e2e4"))
    assert [moves for _, moves in items[1:]] == [("e7e5",), ("g1f3",), ("b8c6",), ("f1b5",)]
    boards = [chess.Board(fen) for fen, _ in items]
    assert all(
        b.is_legal(chess.Move.from_uci(m))
        for b, (_, ms) in zip(boards, items, strict=True)
        for m in ms
    )


def test_searches_stop_at_an_illegal_move_and_skip_what_does_not_parse() -> None:
    items = needed_searches(START, Answer("e2e4", ("e2e4", "e2e4", "g1f3")))
    assert items == [(chess.STARTING_FEN, ("e2e4",))]
    assert needed_searches(START, Answer("e2e5", ("nonsense",))) == []
    assert needed_searches(START, Answer("e2e4", RUY, parseable=False)) == []
    assert needed_searches(START, Answer(None)) == []


def test_a_sound_line_passes_at_every_depth() -> None:
    found = score(Answer("e2e4", RUY))
    assert found.first_sound
    assert [found.sound_to(k) for k in (1, 3, 5)] == [True] * 3
    assert found.legal
    assert found.line_legal


@pytest.mark.parametrize(
    ("bad", "sound"), [(0, []), (1, [1]), (2, [1]), (3, [1, 3]), (5, [1, 3, 5])]
)
def test_a_mistake_of_either_side_fails_the_line_from_its_ply_on(
    bad: int, sound: list[int]
) -> None:
    found = score(Answer("d2d4", RUY), bad_at(RUY[bad]))
    assert [k for k in (1, 3, 5) if found.sound_to(k)] == sound
    assert found.first_sound


def test_a_loss_of_just_the_threshold_is_a_mistake() -> None:
    assert not score(Answer("e2e4", RUY), lambda fen, uci: 0.3 - 0.2).first_sound
    assert score(Answer("e2e4", RUY), lambda fen, uci: 0.0999).first_sound


def test_a_short_line_fails_where_it_stops_short() -> None:
    found = score(Answer("e2e4", RUY[:3]))
    assert [found.sound_to(k) for k in (1, 3, 5)] == [True, True, False]
    bare = score(Answer("e2e4", ()))
    assert bare.first_sound
    assert not any(bare.sound_to(k) for k in (1, 3, 5))


def test_a_short_line_passes_where_the_game_is_over() -> None:
    before_mate = Position(chess.STARTING_FEN, ("f2f3", "e7e5", "g2g4"))
    found = score(Answer("d8h4", ("d8h4",)), position=before_mate)
    assert [found.sound_to(k) for k in (1, 3, 5)] == [True] * 3
    after = score(Answer("d8h4", ("d8h4", "a2a3")), position=before_mate)
    assert [after.sound_to(k) for k in (1, 3, 5)] == [True, False, False]
    assert not after.line_legal


def test_a_repetition_known_from_the_history_ends_a_line() -> None:
    shuffle = ("g1f3", "g8f6", "f3g1", "f6g8") * 2
    found = score(Answer("f6g8", ("f6g8",)), position=Position(chess.STARTING_FEN, shuffle[:-1]))
    assert found.over
    assert found.sound_to(5)


def test_illegal_moves_and_text_that_does_not_parse_are_mistakes() -> None:
    illegal = score(Answer("e2e5", ("e2e5",)))
    assert not illegal.legal
    assert not illegal.first_sound
    late = score(Answer("e2e4", ("e2e4", "e7e5", "e4e5")))
    assert late.first_sound
    assert late.sound_to(1)
    assert not late.sound_to(3)
    assert not late.line_legal
    unreadable = score(Answer("e2e4", RUY, parseable=False))
    assert not unreadable.first_sound
    assert not unreadable.sound_to(1)
    assert not score(Answer(None)).legal


def test_an_answer_on_which_the_engine_failed_is_not_judged() -> None:
    good, failed = score(Answer("e2e4", RUY)), score(Answer("e2e4", RUY), lambda fen, uci: None)
    assert good.judged
    assert not failed.judged
    assert score(Answer("e2e4", RUY, parseable=False), lambda fen, uci: None).judged


moves = st.sampled_from(["e2e4", "e7e5", "g1f3", "b8c6", "d2d4", "zzz", "e2e5", "0000"])
answers = st.builds(
    Answer, st.none() | moves, st.lists(moves, max_size=7).map(tuple), st.booleans()
)


@settings(max_examples=150, deadline=None)
@given(answers, st.sets(moves))
def test_deeper_is_never_easier_and_only_asked_searches_are_used(
    answer: Answer, bad: set[str]
) -> None:
    asked = {(fen, uci) for fen, ucis in needed_searches(START, answer) for uci in ucis}
    used = set()

    def loss(fen: str, uci: str) -> float:
        used.add((fen, uci))
        return 0.5 if uci in bad else 0.0

    found = score(answer, loss)
    assert used == asked
    passed = [found.sound_to(k) for k in range(1, 6)]
    assert passed == sorted(passed, reverse=True)
    if answer.line[:1] == (answer.first,):
        assert found.first_sound == found.sound_to(1)


def test_measure_judges_each_position_once() -> None:
    calls = []

    def judge(items):  # type: ignore[no-untyped-def]
        calls.append(items)
        return [
            RootVerdict(fen, 0.5, "", (), {m: 0.3 if m == "d2d4" else 0.5 for m in ms}, 1, 0.1)
            for fen, ms in items
        ]

    found = measure([START] * 3, [Answer("e2e4", RUY), Answer("d2d4"), Answer(None)], judge, 0.1)
    assert [s.first for s in found] == ["sound", "mistake", "illegal"]
    assert len(calls) == 1
    assert len({fen for fen, _ in calls[0]}) == len(calls[0]) == 5
    failure = losses_of([EngineFailure(START.fen, "hung", "")])
    assert failure(START.fen, "e2e4") is None


@pytest.mark.skipif(find_program("stockfish") is None, reason="no stockfish")
def test_a_real_judge_tells_a_sound_line_from_one_that_loses_a_knight() -> None:
    with Analyser(EngineSettings("stockfish", {}, 1, 30.0, 8)) as analyser:
        judge = MoveJudge(analyser, Limit(nodes=3000)).judge
        good = Answer("e2e4", RUY)
        bad = Answer("e2e4", ("e2e4", "e7e5", "g1f3", "b8c6", "f3e5"))
        sound, blunder = measure([START, START], [good, bad], judge, 0.1)
    assert sound.sound_to(5)
    assert blunder.sound_to(3)
    assert not blunder.sound_to(5)
    assert blunder.losses[-1] > 0.15
