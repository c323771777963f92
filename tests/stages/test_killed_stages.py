"""The bulk stages, killed at random points: each ends with the bytes of a run left alone."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import chess
import chess.pgn
import pytest
import yaml
from dying import got_through

from queen.engines.locate import find_engine
from queen.engines.uci import EngineStartError
from queen.lineage.artifact import open_artifact
from stages import label
from stages.runner import run_stage

GAMES, PLIES = 60, 30
PARAMS = {
    "seed": 1,
    "machine": {"workers": 1},
    "engine": {"command": "auto", "hash_mb": 1},
    "extract": {"source": "games.pgn", "licence": "CC0-1.0", "part_mb": 0.0003},
    "dedup": {"evaluation": "none.epd", "files": 8, "buckets": 64, "memory_mb": 256},
    "label": {"limit": {"nodes": 20}, "per_shard": 150},
}
STAGES = ("extract", "dedup", "label")
MOST_S, MORE_S = 0.03, 0.003  # processor seconds of an attempt; later ones have more


def game(number: int) -> str:
    """A game of random moves, with few choices at first, so that positions repeat."""
    rng, board = random.Random(number), chess.Board()
    for ply in range(PLIES):
        moves = sorted(board.legal_moves, key=lambda move: move.uci())
        if not moves:
            break
        board.push(rng.choice(moves[: 2 if ply < 8 else 30]))
    told = chess.pgn.Game.from_board(board)
    told.headers["Date"] = f"2026.01.{number % 28 + 1:02d}"
    return str(told)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the stages ran undisturbed."""
    root = tmp_path_factory.mktemp("whole")
    (root / "params").mkdir()
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    (root / "none.epd").write_text("# nothing\n")
    (root / "games.pgn").write_text("\n\n".join(map(game, range(GAMES))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUEEN_SENDER", "none")
        patch.setattr(label, "_ready", {})
        run_stage("extract", root)  # here: what it imports takes seconds, and the others have it
        for stage in STAGES[1:]:
            if stage != "label" or _has_engine():
                assert attempt(root, stage)
    return root


def _has_engine() -> bool:
    try:
        return bool(find_engine())
    except EngineStartError:
        return False


def attempt(project: Path, stage: str, seconds: float = 0.0) -> bool:
    """A stage in a process of its own that the kernel ends after so many processor seconds (none:
    not at all); whether it got through."""
    return got_through(lambda: run_stage(stage, project), seconds)


@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_random_points_it_ends_with_the_same_bytes(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    if stage == "label" and not _has_engine():
        pytest.skip("no engine")
    monkeypatch.setenv("QUEEN_SENDER", "none")
    monkeypatch.setattr(label, "_ready", {})  # engines of this process are not the child's
    project, killed, rng = tmp_path / "project", 0, random.Random(stage)
    shutil.copytree(whole, project, ignore=shutil.ignore_patterns(".state", stage))
    while not attempt(project, stage, MOST_S * rng.random() + MORE_S * (1 + killed) ** 2):
        killed += 1
        assert killed < 100, "nothing is kept"
    assert killed > 3
    found, wanted = (open_artifact(root / "data" / stage) for root in (project, whole))
    assert contents(found.path) == contents(wanted.path)
    assert found.record.counts


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
