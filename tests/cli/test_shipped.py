"""The models that ship: whole, small, and able to explain and to play at a clock."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import chess
import chess.engine
import pytest
import torch
from safetensors.torch import load_file
from tiny_release import make_bare

from queen.engines.locate import find_engine
from queen.engines.uci import EngineStartError
from queen.games.chess.position import Position
from queen.lineage.artifact import hash_problems, read_json, read_record
from stages.play.explaining import choose_model, explain_with
from stages.release.make import LIMIT
from stages.release.shipped import newest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path.parent for path in (ROOT / "models/released").glob("*/record.json"))
MATE = "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
WAIT_S = 240.0


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as it is checked out, its encoder's network fetched."""
    data = os.environ.get("QUEEN_TEST_DATA")
    if not data:
        pytest.skip("QUEEN_TEST_DATA is not set")
    root = make_bare(tmp_path_factory.mktemp("shipped") / "project")
    shutil.copytree(ROOT / "models/released", root / "models/released")
    (root / ".state/downloads").mkdir(parents=True)
    shutil.copy(Path(data) / "nets/maia-1900.pb.gz", root / ".state/downloads")
    return root


def test_a_model_ships() -> None:
    assert SHIPPED
    assert newest(ROOT) in SHIPPED


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda path: path.name)
def test_it_is_whole_and_small_and_tells_what_it_is(folder: Path) -> None:
    record = read_record(folder)
    assert not list(hash_problems(folder, record))
    assert sum(entry.size for entry in record.files) <= LIMIT
    kinds = {t.dtype for t in load_file(folder / "model.safetensors").values()}
    assert torch.bfloat16 in kinds
    assert torch.float32 not in kinds
    assert read_json(folder / "verdict.json")["verdict"] == "better"
    card = (folder / "README.md").read_text()
    for part in ("license: gpl-3.0", "## Data", "## Licences", "## Strength", "## Limits"):
        assert part in card


def test_it_mates_in_one_and_says_so(fresh: Path) -> None:
    told = explain_with(fresh, choose_model(fresh, None), Position(MATE), tokens=224)
    assert told.best == "h5f7"
    assert told.prose


def test_it_plays_at_a_clock_and_explains_as_it_does(fresh: Path) -> None:
    try:
        weakest = find_engine("stockfish")
    except EngineStartError as error:
        pytest.skip(error.what)
    command = [sys.executable, "-m", "queen.cli", "uci"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("QUEEN_")}
    environment = {**kept, "PYTHONPATH": str(ROOT)}
    popen = chess.engine.SimpleEngine.popen_uci
    with (
        popen(command, timeout=WAIT_S, cwd=fresh, env=environment) as queen,
        popen(weakest) as stockfish,
    ):
        stockfish.configure({"Skill Level": 0})
        assert queen.id["name"] == f"Queen {newest(fresh).name}"  # type: ignore[union-attr]
        board, said = chess.Board(), []
        clock = chess.engine.Limit(white_clock=120, black_clock=120, white_inc=2, black_inc=2)
        while len(board.move_stack) < 10 and not board.is_game_over():
            if board.turn:
                found = queen.play(board, clock, info=chess.engine.INFO_ALL)
                said.append(str(found.info.get("string", "")))
            else:
                found = stockfish.play(board, chess.engine.Limit(depth=1))
            assert found.move in board.legal_moves
            board.push(found.move)
    assert len(said) >= 4
    assert all(said)
