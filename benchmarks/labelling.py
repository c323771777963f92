"""Labels a second: the stage `label` against a raw pipe to the same engine.

    python benchmarks/labelling.py [--positions 2000] [--depth 10 | --nodes 1000] [--repeats 3]

The stage's whole work on a shard counts: rows read from parquet, positions unpacked and checked
against the rules, answers kept against a kill, labels written. The raw pipe is handed finished
FENs and picks scores out. Both reset the engine for each position and have as many commands in
flight; positions come from the shipped games. One engine and as many as asked for, the two ways
taking turns; the median of the ratios of neighbours counts. Where other work disturbs, the ratio
of the best of each way and CPU time of engines and drivers together, both given too, are steadier;
then let `--repeats` be many and `--positions` few. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import chess
import chess.pgn
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
import zstandard

from queen.engines.locate import find_engine
from queen.engines.workers import IN_FLIGHT
from queen.lineage.artifact import Record, describe_files, fresh_partial, publish
from queen.lineage.store import ShardStore
from queen.positions.packed import pack, unpack
from queen.positions.schema import DISTINCT
from stages import label
from stages.base import Job
from stages.preparing import make_plan, prepare
from stages.sharing import work_one

GAMES = Path(__file__).resolve().parents[1] / "data" / "shipped" / "engine_games.pgn.zst"
Row = dict[str, Any]


def distinct_rows(count: int) -> list[Row]:
    """Positions of the shipped games, each once."""
    rows: dict[bytes, Row] = {}
    with GAMES.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        text = io.TextIOWrapper(stream)
        while len(rows) < count and (game := chess.pgn.read_game(text)):
            board = game.board()
            for ply, move in enumerate(game.mainline_moves()):
                board.push(move)
                if ply >= 6 and ply % 3 == 0 and len(rows) < count:
                    key = pack(board)
                    rows[key] = _row(key, board.halfmove_clock, board.ply())
    return list(rows.values())


def _row(key: bytes, halfmove: int, ply: int) -> Row:
    counts = dict.fromkeys(("seen", "white_wins", "draws", "black_wins"), 1)
    place = {"position": key, "game": bytes(16), "ply": ply, "halfmove": halfmove}
    return {**place, "move": 1, "played": 0, **counts}


def make_project(root: Path, rows: Sequence[Row], limit: dict[str, int], shard: int) -> Path:
    """A project in which the stage finds these positions."""
    (root / "params").mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    params = {
        "seed": 1,
        "engine": {"command": "auto", "hash_mb": 1},
        "label": {"limit": limit, "sources": ["engine"], "per_shard": shard},
    }
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    final = root / "data" / "dedup"
    partial = fresh_partial(final)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=DISTINCT), partial / "0000.parquet")
    files, none = describe_files(partial), {}
    record = Record(
        "data/dedup", "dedup", 1, "r", 1, none, (), (), files, none, none, none, none, none
    )
    publish(partial, final, record)
    return root


@dataclass(frozen=True)
class Took:
    """Wall and CPU seconds, the latter of this process and its engines together."""

    wall: float
    cpu: float


class Watch:
    """Measures a block; engines that it uses must live before and after."""

    def __enter__(self) -> Watch:
        self._cpu, self._wall = _cpu_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall = time.perf_counter() - self._wall
        self.took = Took(wall, _cpu_seconds() - self._cpu)


def _cpu_seconds() -> float:
    me = psutil.Process()
    times = [me.cpu_times(), *(child.cpu_times() for child in me.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def by_stage(job: Job[label.Params], root: Path) -> tuple[Took, dict[bytes, tuple[Any, Any]]]:
    """All shards of the stage into a fresh store."""
    plan, store = make_plan(label.SPEC, job), ShardStore(root)
    _warm(job)
    with Watch() as watch:
        folders = [
            work_one(label.SPEC, job, store, shard, key)
            for shard, key in zip(plan.shards, plan.keys, strict=True)
        ]
    rows = pa.concat_tables([pq.read_table(folder / label.ROWS) for folder in folders]).to_pylist()
    return watch.took, {row["position"]: (row["cp"], row["mate"]) for row in rows}


def _warm(job: Job[label.Params]) -> None:
    """Every engine has searched once."""
    settings = label.engine_settings(job.engine, job.machine)
    labeller = label._labeller(settings, job.params.limit.search)
    start = label.Asked(pack(chess.Board()), 0, 0)
    list(labeller.label([start] * (8 * job.machine.workers)))


class RawPipe:
    """One engine and the shortest way to its scores."""

    def __init__(self, command: str, go: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._engine = subprocess.Popen([command], **pipes)  # type: ignore[call-overload]
        self._go = f"\n{go}\n".encode()
        self._engine.stdin.write(b"setoption name Threads value 1\nsetoption name Hash value 1\n")
        self.scores([chess.STARTING_FEN] * 8)

    def scores(self, fens: Sequence[str]) -> list[tuple[int | None, int | None]]:
        """Centipawns and mate of each, IN_FLIGHT commands ahead of the answers."""
        write, flush = self._engine.stdin.write, self._engine.stdin.flush
        found, sent = [], 0
        while len(found) < len(fens):
            while sent < len(fens) and sent - len(found) < IN_FLIGHT:
                write(b"ucinewgame\nposition fen " + fens[sent].encode() + self._go)
                sent += 1
            flush()
            found.append(self._next())
        return found

    def _next(self) -> tuple[int | None, int | None]:
        last = b""
        for line in self._engine.stdout:
            if line.startswith(b"bestmove"):
                break
            if b" score " in line:
                last = line
        words = last.split()
        place = words.index(b"score")
        value = int(words[place + 2])
        return (value, None) if words[place + 1] == b"cp" else (None, value)

    def close(self) -> None:
        self._engine.communicate(b"quit\n")


def by_pipe(
    pipes: Sequence[RawPipe], fens: Sequence[str]
) -> tuple[Took, list[tuple[int | None, int | None]]]:
    """The positions dealt out to the engines, each with a thread of its own."""
    scores: list[Any] = [None] * len(fens)

    def work(first: int) -> None:
        scores[first :: len(pipes)] = pipes[first].scores(fens[first :: len(pipes)])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(pipes))]
    with Watch() as watch:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return watch.took, scores


def measure(
    job: Job[label.Params], rows: Sequence[Row], engines: int, repeats: int, root: Path
) -> dict[str, Any]:
    """Both ways in turn; rates, their ratios, and whether the scores are the same."""
    job = replace(job, machine=replace(job.machine, workers=engines))
    job.progress = lambda done, total, note="": None
    boards = [unpack(row["position"], row["halfmove"], row["ply"] // 2 + 1) for row in rows]
    live = [b for b in boards if not b.is_game_over() and b.halfmove_clock < 150]
    fens, keys = [b.fen() for b in live], [pack(b) for b in live]
    pipes = [RawPipe(find_engine(), job.params.limit.search.go) for _ in range(engines)]
    ours, raw, same = [], [], True
    for number in range(repeats):
        took, labels = by_stage(job, root / f"{engines}-{number}")
        ours.append(took)
        took, scores = by_pipe(pipes, fens)
        raw.append(took)
        same &= [labels[key] for key in keys] == scores
        _forget(job)
    for pipe in pipes:
        pipe.close()
    return {"engines": engines, "same_scores": same, **_told(ours, raw, len(rows), len(fens))}


def _forget(job: Job[label.Params]) -> None:
    """No answers for the next time."""
    for path in job.state.scratch.rglob("answers.log"):
        path.unlink()


def _told(ours: Sequence[Took], raw: Sequence[Took], rows: int, fens: int) -> dict[str, Any]:
    wall = [(rows / a.wall) / (fens / b.wall) for a, b in zip(ours, raw, strict=True)]
    cpu = [(rows / a.cpu) / (fens / b.cpu) for a, b in zip(ours, raw, strict=True)]
    return {
        "labels_per_second": round(statistics.median(rows / a.wall for a in ours), 1),
        "raw_per_second": round(statistics.median(fens / b.wall for b in raw), 1),
        "ratio_wall": round(statistics.median(wall), 3),
        "ratios_wall": [round(one, 3) for one in wall],
        "ratio_of_best_walls": round(
            rows / min(a.wall for a in ours) / (fens / min(b.wall for b in raw)), 3
        ),
        "ratio_cpu": round(statistics.median(cpu), 3),
        "ratios_cpu": [round(one, 3) for one in cpu],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--engines", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--per-shard", type=int, default=4096)
    chosen = parser.parse_args()
    limit = {"nodes": chosen.nodes} if chosen.nodes else {"depth": chosen.depth}
    rows = distinct_rows(chosen.positions)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        project = make_project(root / "project", rows, limit, chosen.per_shard)
        job = prepare(label.SPEC, None, project)
        results = [measure(job, rows, n, chosen.repeats, root) for n in chosen.engines]
        report = {
            "engine": job.identities["engine"],
            "limit": limit,
            "positions": len(rows),
            "in_flight": IN_FLIGHT,
            "cpus": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "results": results,
        }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
