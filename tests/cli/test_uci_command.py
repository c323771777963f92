"""`queen uci` as a real process, spoken to by python-chess as a chess program would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess
import chess.engine
import pytest
from tiny_release import NET, make_bare, make_project

from queen.engines.locate import find_engine
from queen.engines.uci import EngineStartError
from stages.release.make import release

WAIT_S = 240.0
COMMAND = [sys.executable, "-m", "queen.cli", "uci"]
BLITZ = chess.engine.Limit(white_clock=60, black_clock=60, white_inc=1, black_inc=1)

QUICK = chess.engine.Limit(depth=1)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as it is checked out: a release, and nothing trained."""
    grown = make_project(tmp_path_factory.mktemp("grown") / "project")
    release(grown, "r1", "tiny")
    root = make_bare(tmp_path_factory.mktemp("fresh") / "project")
    shutil.copyfile(grown / NET, root / NET)
    shutil.copytree(grown / "models/released", root / "models/released")
    return root


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("QUEEN_")}
    return {**kept, "PYTHONPATH": str(Path(__file__).parents[2])}


def opened(folder: Path, *arguments: str) -> chess.engine.SimpleEngine:
    """The engine, started in a folder that is no project."""
    return chess.engine.SimpleEngine.popen_uci(
        [*COMMAND, *arguments], timeout=WAIT_S, cwd=folder, env=environment()
    )


@pytest.fixture(scope="module")
def engine(fresh: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The tiny release, found because nothing else is there."""
    folder = tmp_path_factory.mktemp("anywhere")
    with opened(folder, "--project", str(fresh)) as found:
        yield found


@pytest.fixture(scope="module")
def weakest() -> Iterator[Any]:
    try:
        command = find_engine("stockfish")
    except EngineStartError as error:
        pytest.skip(error.what)
    with chess.engine.SimpleEngine.popen_uci(command) as found:
        found.configure({"Skill Level": 0})
        yield found


def game(one: Any, other: Any, plies: int) -> chess.Board:
    """A game; python-chess ends it with an error where a move is illegal."""
    board = chess.Board()
    while not board.is_game_over() and len(board.move_stack) < plies:
        mover = one if board.turn else other
        found = mover.play(board, BLITZ if mover.id["name"].startswith("Queen") else QUICK)
        assert found.move in board.legal_moves
        board.push(found.move)
    return board


def test_it_says_who_it_is_and_what_can_be_set(engine: Any) -> None:
    assert engine.id == {"name": "Queen tiny", "author": "the Queen project"}
    for name in ("Explain", "Guided", "MaxTokens", "Temperature", "Move Overhead"):
        assert name in engine.options


def test_it_explains_in_info_strings(engine: Any) -> None:
    board = chess.Board()
    board.push_uci("e2e4")
    said: list[str] = []
    engine.configure({"MaxTokens": 32})
    with engine.analysis(board, chess.engine.Limit(time=30)) as analysis:
        for info in analysis:
            said += [info["string"]] if "string" in info else []
        best = analysis.wait().move
    assert best in board.legal_moves
    assert analysis.info["pv"][0] == best
    assert any("the model's text is no sound explanation" in line for line in said)
    engine.configure({"Explain": False, "Temperature": "0.5", "Seed": 7})
    found = engine.play(board, chess.engine.Limit(time=5), info=chess.engine.INFO_ALL)
    assert found.move in board.legal_moves
    assert "string" not in found.info
    engine.configure({"Explain": True, "Temperature": "0", "Guided": False})
    assert engine.play(board, chess.engine.Limit(time=5)).move in board.legal_moves
    engine.configure({"Guided": True})


def test_an_endless_analysis_ends_when_it_is_stopped(engine: Any) -> None:
    with engine.analysis(chess.Board()) as analysis:
        while "pv" not in analysis.info:
            analysis.get()
        analysis.stop()
        assert analysis.wait().move in chess.Board().legal_moves


def test_it_plays_a_match_against_stockfish_at_its_weakest(engine: Any, weakest: Any) -> None:
    engine.configure({"MaxTokens": 16})
    for white, black in ((engine, weakest), (weakest, engine)):
        board = game(white, black, 24)
        assert len(board.move_stack) > 6  # a draw or mate sooner would be no game
    engine.ping()


def test_an_lc0_network_plays_with_win_draw_and_loss(tmp_path: Path, weakest: Any) -> None:
    data = os.environ.get("QUEEN_TEST_DATA")
    if not data:
        pytest.skip("QUEEN_TEST_DATA is not set")
    net = Path(data) / "nets/maia-1900.pb.gz"
    with opened(tmp_path, "--model", str(net)) as maia:
        assert maia.id["name"] == "Queen maia-1900"
        board = chess.Board("r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4")
        found = maia.play(board, chess.engine.Limit(time=5), info=chess.engine.INFO_ALL)
        assert found.move == chess.Move.from_uci("h5f7")
        assert found.info["wdl"].relative.expectation() > 0.5
        assert len(game(maia, weakest, 60).move_stack) > 6


def spoken(folder: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], input=lines, cwd=folder, env=environment(), text=True,
        capture_output=True, timeout=WAIT_S, check=False,
    )  # fmt: skip


def test_uci_is_answered_even_if_nothing_can_be_loaded(fresh: Path) -> None:
    (fresh / "broken.pb.gz").write_bytes(b"no network")
    done = spoken(fresh, "uci\nisready\n", "--model", "broken.pb.gz")
    assert "uciok" in done.stdout
    assert "info string error: " in done.stdout
    assert "readyok" not in done.stdout
    assert done.returncode == 1


def test_a_model_that_is_not_there_is_told_on_stderr(fresh: Path) -> None:
    done = spoken(fresh, "uci\n", "--model", "r9")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "r9" in done.stderr
    assert "Traceback" not in done.stderr
