"""Labels of single positions, engines that fail, and answers that outlive a kill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import chess
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queen.engines.analysis import EngineFailure, Limit
from queen.engines.answers import WRITE_EVERY, AnswerLog
from queen.engines.labelling import Asked, Label, Labeller
from queen.engines.pool import EngineSettings
from queen.positions.packed import pack
from queen.positions.schema import move_of

Fake = Callable[..., str]
QUICK = Limit(nodes=10)
MATE = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
CASTLES = "r3k2r/pppppppp/8/8/8/8/PPPPPPPP/R3K2R w KQkq - 0 1"
CASTLES_960 = "r2k3r/8/8/8/8/8/8/1R2K1R1 w GBha - 0 1"


def asked(fen: str, chess960: bool = False) -> Asked:
    board = chess.Board(fen, chess960=chess960)
    return Asked(pack(board), board.halfmove_clock, 2 * board.fullmove_number - 1 - board.turn)


def labelled(
    command: str, fens: list[str], workers: int = 1, timeout_s: float = 20.0
) -> list[Label | EngineFailure]:
    labeller = Labeller(EngineSettings(command, workers=workers, timeout_s=timeout_s), QUICK)
    found = dict(labeller.label([asked(fen) for fen in fens]))
    labeller.close()
    return [found[number] for number in range(len(fens))]


def test_a_crash_in_one_position_is_retried_and_then_its_failure(
    fake: Fake, fens: list[str]
) -> None:
    whole = labelled(fake(), fens)
    broken = labelled(fake(on={fens[5]: "die"}), fens)
    failure = broken[5]
    assert isinstance(failure, EngineFailure)
    assert (failure.fen, failure.reason) == (fens[5], "crashed")
    assert [*broken[:5], *broken[6:]] == [*whole[:5], *whole[6:]]
    assert labelled(fake(on={fens[5]: "die once"}), fens) == whole


@pytest.mark.parametrize(
    ("mood", "reason"), [("illegal", "rubbish"), ("scoreless", "rubbish"), ("hang", "hung")]
)
def test_other_failures_have_their_reasons(
    fake: Fake, fens: list[str], mood: str, reason: str
) -> None:
    command = fake(on={fens[1]: mood})
    found = labelled(command, fens[:3], timeout_s=1.0 if mood == "hang" else 20.0)
    assert [f.reason for f in found if isinstance(f, EngineFailure)] == [reason]
    assert isinstance(found[1], EngineFailure)


def test_no_engine_sees_what_needs_none(fake: Fake, fens: list[str]) -> None:
    """The fake would die on the finished game and on the position without kings."""
    empty = "8/8/8/8/8/8/8/8 w - - 0 1"
    command = fake(on={MATE: "die", empty: "die"})
    mate, illegal, normal = labelled(command, [MATE, empty, fens[0]])
    assert mate == Label(None, 0, 0, 0, 0, "rules")
    assert isinstance(illegal, EngineFailure)
    assert illegal.reason == "illegal"
    assert isinstance(normal, Label)


def test_nothing_depends_on_order_or_workers(stockfish: str, fens: list[str]) -> None:
    once = labelled(stockfish, fens)
    assert labelled(stockfish, fens[::-1], workers=2) == once[::-1]
    assert len({label.cp for label in once if isinstance(label, Label)}) > 5


def test_chess960_and_standard_positions_do_not_disturb_each_other(stockfish: str) -> None:
    """One engine, which must change its rules in between."""
    labeller = Labeller(EngineSettings(stockfish, workers=1), Limit(nodes=400))
    pair = [asked(CASTLES), asked(CASTLES_960, chess960=True)] * 3
    found = dict(labeller.label(pair))
    labeller.close()
    boards = [chess.Board(CASTLES), chess.Board(CASTLES_960, chess960=True)]
    for number, label in found.items():
        assert isinstance(label, Label)
        move = move_of(label.best)
        assert move is not None
        assert boards[number % 2].is_legal(move)
        assert label == found[number % 2]


labels = st.builds(
    lambda score, is_mate, best, depth, nodes, source: Label(
        None if is_mate else score, score if is_mate else None, best, depth, nodes, source
    ),
    st.integers(-32_000, 32_000),
    st.booleans(),
    st.integers(0, 2**15 - 1),
    st.integers(0, 245),
    st.integers(0, 2**62),
    st.sampled_from(["engine", "rules"]),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kept=st.dictionaries(st.integers(0, 2**32 - 1), labels, max_size=9), cut=st.integers(0, 40))
def test_a_log_gives_back_what_was_whole(tmp_path: Path, kept: dict[int, Label], cut: int) -> None:
    path = tmp_path / "log"
    path.unlink(missing_ok=True)
    with AnswerLog(path) as log:
        for number, label in kept.items():
            log.add(number, label)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(max(0, size - cut))
    with AnswerLog(path) as log:
        assert log.answers.items() <= kept.items()
        record = size // len(kept) if kept else 1
        assert len(log.answers) == max(0, size - cut) // record
        log.add(7, Label(1, None, 2, 3, 4))
    with AnswerLog(path) as log:
        assert log.answers[7] == Label(1, None, 2, 3, 4)


def test_nothing_is_read_behind_a_damaged_record(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with AnswerLog(path) as log:
        for number in range(3):
            log.add(number, Label(number, None, 2, 3, 4))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with AnswerLog(path) as log:
        assert log.answers == {0: Label(0, None, 2, 3, 4)}


def test_a_log_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with AnswerLog(path) as first:
        with AnswerLog(path) as second:
            for number in range(WRITE_EVERY):
                second.add(number, Label(1, None, 2, 3, 4))
        first.add(1, Label(9, None, 2, 3, 4))
    with AnswerLog(path) as log:
        assert log.answers == {1: Label(9, None, 2, 3, 4)}
