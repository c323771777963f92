from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import chess
import pytest

from queen.engines.judge import MoveJudge, RootVerdict, tactical_gap
from queen.engines.pool import Analyser, Analysis, EngineFailure, EngineSettings, Limit
from queen.engines.score import LICHESS_SLOPE

START = chess.STARTING_FEN
CHEAP, DEAR = Limit(nodes=10), Limit(nodes=50)
MATE_IN_ONE = "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1"
LOOSE_QUEEN = "6k1/5ppp/8/3q4/8/2N5/5PPP/6K1 w - - 0 1"
ONE_MOVE = "7k/8/8/8/8/8/1r6/K7 w - - 0 1"


def child(fen: str, uci: str) -> str:
    board = chess.Board(fen)
    board.push_uci(uci)
    return board.fen()


def cp(expected: float) -> int:
    """Centipawns of an expected score."""
    return round(math.log(expected / (1 - expected)) / LICHESS_SLOPE)


def table(root: float, moves: Mapping[str, float], dear: Mapping[str, float]) -> dict[str, object]:
    """Scores for a fake engine: expected scores for the root's mover, "" being the root."""
    scores = {START: {"any": cp(root)}}
    scores |= {child(START, move): {"any": cp(1 - value)} for move, value in moves.items()}
    for move, value in dear.items():
        fen = child(START, move) if move else START
        scores[fen]["nodes 50"] = cp(1 - value) if move else cp(value)
    return scores


@pytest.fixture
def verdict(fake: Callable[..., str]) -> Callable[..., RootVerdict]:
    """The verdict on the start position by an engine that gives the scores told."""

    def judge(
        root: float, moves: Mapping[str, float], dear: Mapping[str, float] | None = None
    ) -> RootVerdict:
        command = fake(scores=table(root, moves, dear or {}))
        with Analyser(EngineSettings(command, workers=1)) as analyser:
            judge = MoveJudge(analyser, CHEAP, DEAR if dear is not None else None, 0.10, 0.03)
            (found,) = judge.judge([(START, list(moves))])
        assert isinstance(found, RootVerdict)
        return found

    return judge


def test_the_root_search_may_be_best(verdict: Callable[..., RootVerdict]) -> None:
    found = verdict(0.60, {"e2e4": 0.55, "g2g4": 0.30})
    assert found.best == pytest.approx(0.60, abs=0.001)
    assert found.best_move == "a2a3"
    assert found.best_line == ("a2a3",)
    assert found.values["e2e4"] == pytest.approx(0.55, abs=0.001)
    assert found.loss("g2g4") == pytest.approx(0.30, abs=0.002)
    assert (found.is_mistake("e2e4"), found.is_mistake("g2g4")) == (False, True)
    assert found.close == frozenset()
    assert found.nodes == 21


def test_a_child_may_be_best(verdict: Callable[..., RootVerdict]) -> None:
    found = verdict(0.50, {"e2e4": 0.70, "d2d4": 0.59})
    assert found.best == pytest.approx(0.70, abs=0.001)
    assert found.best_line == ("e2e4", "a7a5")
    assert found.best_move == "e2e4"
    assert found.loss("e2e4") == 0.0
    assert found.is_mistake("d2d4")


def test_clear_cases_are_not_searched_again(verdict: Callable[..., RootVerdict]) -> None:
    found = verdict(0.60, {"e2e4": 0.58, "g2g4": 0.30}, {"": 0.9, "e2e4": 0.1, "g2g4": 0.9})
    assert found.close == frozenset()
    assert found.best == pytest.approx(0.60, abs=0.001)


def test_close_cases_are_decided_by_the_dear_search(verdict: Callable[..., RootVerdict]) -> None:
    moves = {"e2e4": 0.51, "d2d4": 0.59}
    worse = verdict(0.60, moves, {"": 0.60, "e2e4": 0.40, "d2d4": 0.2})
    better = verdict(0.60, moves, {"": 0.60, "e2e4": 0.59, "d2d4": 0.2})
    assert worse.close == better.close == {"e2e4"}
    assert (worse.is_mistake("e2e4"), better.is_mistake("e2e4")) == (True, False)
    assert worse.values["d2d4"] == pytest.approx(0.59, abs=0.001)


def test_what_could_be_best_is_searched_at_the_same_budget(
    verdict: Callable[..., RootVerdict],
) -> None:
    """d2d4 looked best only to the cheap search: it may not make e2e4 a mistake."""
    found = verdict(0.60, {"e2e4": 0.58, "d2d4": 0.69}, {"": 0.60, "e2e4": 0.58, "d2d4": 0.55})
    assert found.close == {"d2d4", "e2e4"}
    assert found.best == pytest.approx(0.60, abs=0.001)
    assert not found.is_mistake("e2e4")


def test_a_move_whose_verdict_would_flip_is_searched_too(
    verdict: Callable[..., RootVerdict],
) -> None:
    """The dear search lowers the best by .2: b2b3 was a clear mistake and no longer is."""
    dear = {"": 0.50, "e2e4": 0.45, "b2b3": 0.20}
    found = verdict(0.70, {"e2e4": 0.61, "b2b3": 0.49}, dear)
    assert found.close == {"e2e4", "b2b3"}
    assert found.is_mistake("b2b3")
    assert all(value <= found.best for value in found.values.values())


def test_exactly_the_threshold_is_a_mistake() -> None:
    found = RootVerdict(START, 0.6, "e2e4", ("e2e4",), {"d2d4": 0.5, "c2c4": 0.51}, 0, 0.1)
    assert 0.6 - 0.5 < 0.1  # in floating point
    assert found.is_mistake("d2d4")
    assert not found.is_mistake("c2c4")


def test_games_that_end_with_the_move(fake: Callable[..., str]) -> None:
    scores = {MATE_IN_ONE: {"any": 300}, child(MATE_IN_ONE, "a1a2"): {"any": -300}}
    with Analyser(EngineSettings(fake(scores=scores))) as analyser:
        mated = chess.Board(MATE_IN_ONE)
        mated.push_uci("a1a8")
        assert mated.is_checkmate()
        verdicts = MoveJudge(analyser, CHEAP).judge(
            [(MATE_IN_ONE, ["a1a2", "a1a8"]), (mated.fen(), [])]
        )
    mating, over = verdicts
    assert isinstance(mating, RootVerdict)
    assert isinstance(over, RootVerdict)
    assert mating.values["a1a8"] == mating.best == 1.0
    assert mating.best_line == ("a1a8",)
    assert (over.best, over.best_move, over.best_line, over.nodes) == (0.0, "", (), 0)


def test_failures_stay_with_their_root(fake: Callable[..., str], fens: list[str]) -> None:
    moves = {fen: [move.uci() for move in list(chess.Board(fen).legal_moves)[:2]] for fen in fens}
    bad = child(fens[1], moves[fens[1]][0])
    scores = {child(fen, move): {"any": 5} for fen in fens[:4] for move in moves[fen]}
    with Analyser(EngineSettings(fake(scores=scores, on={bad: "die"}))) as analyser:
        answers = MoveJudge(analyser, CHEAP).judge(
            [
                (fens[0], moves[fens[0]]),
                (fens[1], moves[fens[1]]),
                (fens[2], ["e2e5"]),
                ("nonsense", []),
                (fens[3], moves[fens[3]]),
            ]
        )
    assert [isinstance(answer, RootVerdict) for answer in answers] == [
        True,
        False,
        False,
        False,
        True,
    ]
    crashed, move, position = answers[1:4]
    assert isinstance(crashed, EngineFailure)
    assert isinstance(move, EngineFailure)
    assert isinstance(position, EngineFailure)
    assert (crashed.fen, crashed.reason) == (fens[1], "crashed")
    assert moves[fens[1]][0] in crashed.detail
    assert (move.reason, position.reason) == ("illegal", "illegal")
    assert "e2e5" in move.detail


def test_the_definition_with_a_real_engine(stockfish: str, fens: list[str]) -> None:
    """best = max(root, children), value = 1 - child's, recomputed search by search."""
    limit = Limit(nodes=300)
    items = [(fen, [m.uci() for m in list(chess.Board(fen).legal_moves)[::9]]) for fen in fens[::7]]
    with Analyser(EngineSettings(stockfish)) as analyser:
        verdicts = MoveJudge(analyser, limit).judge(items)
        for (fen, moves), found in zip(items, verdicts, strict=True):
            answers = analyser.analyse([fen, *(child(fen, move) for move in moves)], limit)
            scores = [x.lines[0].score.expected for x in answers if isinstance(x, Analysis)]
            values = [1 - score for score in scores[1:]]
            assert isinstance(found, RootVerdict)
            assert dict(found.values) == dict(zip(moves, values, strict=True))
            assert found.best == max(scores[0], *values)
            assert chess.Move.from_uci(found.best_move) in chess.Board(fen).legal_moves


def test_tactics_have_a_gap(stockfish: str) -> None:
    limit = Limit(nodes=3000)
    with Analyser(EngineSettings(stockfish)) as analyser:
        quiet, loose = tactical_gap(analyser, [START, LOOSE_QUEEN], limit)
        (judged,) = MoveJudge(analyser, limit, multipv=2).judge([(LOOSE_QUEEN, [])])
    assert quiet is not None
    assert loose is not None
    assert quiet < 0.1 < 0.2 <= loose
    assert isinstance(judged, RootVerdict)
    assert judged.gap == loose


def test_no_gap_without_a_second_move(stockfish: str) -> None:
    with Analyser(EngineSettings(stockfish)) as analyser:
        assert tactical_gap(analyser, [ONE_MOVE, "nonsense"], Limit(nodes=50)) == [None, None]
