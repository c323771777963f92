"""A small project whose distinct positions stand there ready to be labelled."""

from __future__ import annotations

import os
import random
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chess
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from queen.lineage.artifact import (
    Artifact,
    Record,
    describe_files,
    fresh_partial,
    publish,
)
from queen.positions.hashing import position_hash
from queen.positions.packed import POSITION_BYTES, pack
from queen.positions.schema import DISTINCT

MATE = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
STALEMATE = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 60"
BARE_KINGS = "8/8/4k3/8/8/3K4/8/8 w - - 3 90"
OLD = "8/8/4k3/8/8/3K4/7R/8 w - - 150 160"
CHESS960 = "1r2k1r1/pppppppp/8/8/8/8/PPPPPPPP/1R2K1R1 w KQkq - 0 1"
OVER = {MATE: (None, 0), STALEMATE: (0, None), BARE_KINGS: (0, None), OLD: (0, None)}


def boards(games: int, seed: int = 1) -> Iterator[chess.Board]:
    """Positions of games of random moves."""
    for number in range(games):
        rng, board = random.Random(f"{seed} {number}"), chess.Board()
        while len(board.move_stack) < 30 and not board.is_game_over():
            board.push(rng.choice(list(board.legal_moves)))
            if len(board.move_stack) > 6:
                yield board.copy(stack=False)


def distinct_rows(games: int) -> list[dict[str, Any]]:
    """Rows of DISTINCT: of games, some with an evaluation, and those of special positions."""
    found = [*boards(games), *map(chess.Board, OVER), chess.Board(CHESS960, chess960=True)]
    rows = {}
    for number, board in enumerate(found):
        rows[pack(board)] = {
            "position": pack(board),
            "game": bytes(16),
            "ply": 2 * board.fullmove_number - 1 - board.turn,
            "halfmove": board.halfmove_clock,
            "move": 1,
            "played": 0,
            "eval_cp": number - 50 if number % 3 == 0 else None,
            "eval_mate": -2 if number % 3 == 1 else None,
            "seen": 1,
            "white_wins": 0,
            "draws": 0,
            "black_wins": 0,
        }
    packed = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, POSITION_BYTES)
    order = np.argsort(position_hash(packed), kind="stable")  # as the stage before leaves them
    return [list(rows.values())[n] for n in order]


def make_project(root: Path, games: int = 2, **label: Any) -> Path:
    """Params and `data/dedup` in two files, the larger in several row groups."""
    params = {
        "seed": 3,
        "machine": {"workers": 1, "lease_s": 2.0},
        "engine": {"command": "auto", "hash_mb": 1, "timeout_s": 20.0},
        "label": {"limit": {"nodes": 60}, "per_shard": 10, **label},
    }
    bare_project(root)
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    make_dedup(root, distinct_rows(games))
    return root


def bare_project(root: Path) -> Path:
    """What makes a folder a project, and nothing in it."""
    (root / "params").mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    return root


def make_dedup(root: Path, rows: list[dict[str, Any]]) -> Artifact:
    """What the stage before leaves."""
    final = root / "data" / "dedup"
    partial = fresh_partial(final)
    table = pa.Table.from_pylist(rows, schema=DISTINCT)
    pq.write_table(table.slice(0, 13), partial / "0000.parquet")
    pq.write_table(table.slice(13), partial / "0001.parquet", row_group_size=16)
    pq.write_table(pa.table({"reason": ["odd"]}), partial / "rejects.parquet")
    record = Record(
        name="data/dedup",
        stage="dedup",
        version=1,
        recipe="r",
        seed=3,
        params={},
        inputs=(),
        shards=(),
        files=describe_files(partial),
        counts={"distinct": table.num_rows},
        drops={},
        figures={},
        identities={},
        licences={"games": "CC0"},
    )
    return publish(partial, final, record)


def change(root: Path, section: str, **values: Any) -> None:
    params = yaml.safe_load((root / "params.yaml").read_text())
    params[section].update(values)
    (root / "params.yaml").write_text(yaml.safe_dump(params))


def files_of(artifact: Artifact) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(artifact.path.iterdir())}


HANGS = """\
#!{python} -SE
import subprocess, sys, time
engine = subprocess.Popen([{engine!r}], stdin=subprocess.PIPE, text=True)
for line in sys.stdin:
    if {word!r} in line:
        time.sleep(600)
    engine.stdin.write(line)
    engine.stdin.flush()
"""


def hanging_engine(path: Path, engine: str, word: str) -> Path:
    """The real engine, but it never hears a line with this word, nor any after it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HANGS.format(python=sys.executable, engine=engine, word=word))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def environment(project: Path, **more: str) -> dict[str, str]:
    """For a process in the project: none of this process's own settings but the path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("QUEEN_", "MLFLOW_"))}
    return {**kept, "QUEEN_PROJECT": str(project), "QUEEN_SENDER": "none", **more}
