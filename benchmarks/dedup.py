"""Deduplication beside DuckDB, Polars and sort: the same work at the same memory bound.

    python benchmarks/dedup.py [--rows 20] [--memory 512] [--threads 1] [--repeats 3]
        [--sides queen,duckdb,polars,sort] [--bound] [--work FOLDER] [--files 16] [--buckets 256]

It makes `--rows` million rows first (kept in the work folder and used again): games that follow
popular moves at the start, go their own way later and now and then repeat a position, about 70 % of
the rows distinct. The work: of each position one survivor, the least by (has no eval, game, ply),
how often it was seen and how these games ended. Each side is a process of its own; its memory is
the largest sum of resident sizes of it and its children, looked at every 20 ms, and its time the
best of the repeats, the sides taking turns. All answers are compared.

What each side is given: `queen`, DuckDB and Polars read and write parquet (zstd) with all columns;
DuckDB has its memory limit set and may spill, Polars knows no limit; `sort` is given lines of text
made beforehand (position and survivor's order in front, so that it compares plain bytes) and an awk
that keeps the first line of each position and counts, and need not bring them back to parquet.
`duckdb` and `polars` are in the extra `bench`; `sort` needs mawk.
With `--bound` only `queen` runs, with a tenth of the data's bytes in memory as its bound.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from queen.positions.dedup import Bounds, dedup
from queen.positions.hashing import position_hash
from queen.positions.packed import BLACK_ROOKS, EN_PASSANT, NO_SQUARE, SIDE, WHITE_ROOKS
from queen.positions.records import OCCURRENCE, records_of, table_of
from queen.positions.schema import OCCURRENCES

GAMES, PLIES = 12_500, 80  # in a shard
SHARD = GAMES * PLIES
BACK = 4
ORDER = (4, 2, 3, 5, 6, 3, 2, 4)
SIDES = ("queen", "duckdb", "polars", "sort")
ROW_BYTES = OCCURRENCE.itemsize
REST = [n for n in OCCURRENCES.names if n not in ("position", "game", "ply")]


# The data.


def make(folder: Path, rows: int, text: bool) -> list[Path]:
    """Shards of a million rows; what is there already is used again."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(rows // SHARD):
        path = folder / f"{number:04d}.parquet"
        if not path.is_file():
            table = shard(number)
            pq.write_table(table, path.with_suffix(".part"), compression="zstd")
            path.with_suffix(".part").rename(path)
        lines = path.with_suffix(".txt")
        if text and not lines.is_file():
            lines.with_suffix(".part").write_text(as_lines(pq.read_table(path)))
            lines.with_suffix(".part").rename(lines)
        paths.append(path)
    return paths


def shard(number: int) -> pa.Table:
    """Games that share their openings: the board is a function of the moves' ranks alone."""
    rng = np.random.default_rng([7, number])
    boards, side = np.tile(start_board(), (GAMES, 1)), 0
    path = np.zeros(GAMES, np.uint64)
    rows = np.zeros((GAMES, PLIES), OCCURRENCE)
    past: list[np.ndarray] = []
    for ply in range(PLIES):
        past.append(boards.copy())
        path = mixed(path, chosen_moves(rng, ply))
        step(boards, path, side)
        if ply > 30:
            back = rng.random(GAMES) < 0.004
            boards[back] = past[ply - BACK + 1][back]
        side ^= 1
        rows["position"][:, ply] = packed(boards, side)
        rows["ply"][:, ply] = ply + 1
    fill_games(rows, rng, number)
    return table_of(rows.reshape(-1), OCCURRENCES)


def start_board() -> np.ndarray:
    board = np.zeros(64, np.uint8)
    for file, piece in enumerate(ORDER):
        board[[file, 8 + file, 48 + file, 56 + file]] = piece, 1, 9, piece + 8
    return board


def chosen_moves(rng: np.random.Generator, ply: int) -> np.ndarray:
    """The rank of the move played: by Zipf's law, steeper in the opening."""
    weights = 1.0 / np.arange(1, 31) ** max(1.0, 3.1 - 0.02 * ply)
    return np.searchsorted(np.cumsum(weights / weights.sum())[:-1], rng.random(GAMES))


def mixed(path: np.ndarray, move: np.ndarray) -> np.ndarray:
    out = (path + move.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    return out ^ (out >> np.uint64(29))


def step(boards: np.ndarray, path: np.ndarray, side: int) -> None:
    """Move the first own piece that the path's bits point at."""
    each = np.arange(len(boards))
    source = np.full(len(boards), 64)
    for shift in range(2, 50, 5):
        tried = ((path >> np.uint64(shift)) & np.uint64(63)).astype(np.int64)
        code = boards[each, tried]
        own = (code > 0) & ((code > 8) == bool(side))
        source = np.where((source == 64) & own, tried, source)
    target = ((path >> np.uint64(57)) & np.uint64(63)).astype(np.int64)
    may = (source < 64) & (source != target) & (boards[each, target] & 7 != 6)
    moved = boards[each[may], source[may]]
    boards[each[may], source[may]] = 0
    boards[each[may], target[may]] = moved


def packed(boards: np.ndarray, side: int) -> np.ndarray:
    out = np.zeros((len(boards), 36), np.uint8)
    out[:, :32] = boards[:, 0::2] | boards[:, 1::2] << 4
    out[:, SIDE], out[:, EN_PASSANT] = side, NO_SQUARE
    for column, row in ((WHITE_ROOKS, 0), (BLACK_ROOKS, 56)):
        kings = boards[:, row + 4] & 7 == 6
        out[:, column] = np.where(kings, 0x81, 0)
    return out.view("V36")[:, 0]


def fill_games(rows: np.ndarray, rng: np.random.Generator, number: int) -> None:
    """What a game's rows share, evals in every eighth of them, clocks in most."""
    ids = rng.integers(0, 256, (GAMES, 16), np.uint8)
    rows["game"] = ids.view("V16")
    for name, low, high in (("white_elo", 800, 2600), ("black_elo", 800, 2600)):
        rows[name] = rng.integers(low, high, (GAMES, 1))
    rows["result"] = rng.choice([1, 0, -1], (GAMES, 1), p=[0.49, 0.06, 0.45])
    rows["clock"] = np.round(300 - np.arange(PLIES) * 3.1 * rng.random((GAMES, 1)), 0)
    rows["halfmove"] = rng.integers(0, 9, rows.shape)
    rows["move"], rows["played"] = rng.integers(0, 4096, (2, *rows.shape))
    with_eval = rng.random((GAMES, 1)) < 0.125
    mate = with_eval & (rng.random(rows.shape) < 0.04)
    rows["eval_cp"] = np.where(with_eval & ~mate, rng.normal(0, 150, rows.shape), 0)
    rows["eval_mate"] = np.where(mate, rng.integers(1, 9, rows.shape), 0)
    bit = {name: 1 << n for n, name in enumerate(n for n in OCCURRENCE.names[2:])}
    rows["nulls"] = np.where(with_eval & ~mate, 0, bit["eval_cp"]) | np.where(
        mate, 0, bit["eval_mate"]
    )


def as_lines(table: pa.Table) -> str:
    """A line for each row: position, has no eval, game, ply, result, all the rest."""
    records = records_of(table.to_batches())
    no_eval = (
        np.array(table["eval_cp"].is_null()) & np.array(table["eval_mate"].is_null())
    ).tolist()
    width = ROW_BYTES * 2
    text = records.tobytes().hex()
    letters = {1: "W", 0: "D", -1: "B", None: "-"}
    lines = []
    for n, (ply, result) in enumerate(
        zip(table["ply"].to_pylist(), table["result"].to_pylist(), strict=True)
    ):
        row = text[n * width : (n + 1) * width]
        head = f"{row[:72]} {int(no_eval[n])} {row[72:104]} {ply:04x} {letters[result]}"
        lines.append(f"{head} {row[104:]}\n")
    return "".join(lines)


# The sides. Each runs in a process of its own and writes into `out`.


def run_queen(inputs: list[Path], out: Path, options: argparse.Namespace) -> None:
    bounds = Bounds(options.buckets, options.memory)
    dedup(inputs, out, bounds, out.with_suffix(".scratch"), files=options.files)


def run_duckdb(inputs: list[Path], out: Path, options: argparse.Namespace) -> None:
    import duckdb

    base = duckdb.connect()
    base.execute(f"SET threads={options.threads}; SET memory_limit='{options.memory}MB'")
    base.execute("SET preserve_insertion_order=false")
    base.execute(f"SET temp_directory='{out.with_suffix('.spill')}'")
    rest = ", ".join(REST)
    packed = ", ".join(f"{n} := {n}" for n in ("game", "ply", *REST))
    base.execute(f"""
        COPY (
            SELECT position, s.game AS game, s.ply AS ply, {", ".join(f"s.{n}" for n in REST)},
                seen, white_wins, draws, black_wins
            FROM (
                SELECT position, min(struct_pack(
                        no_eval := eval_cp IS NULL AND eval_mate IS NULL, {packed})) AS s,
                    count(*) AS seen, count(*) FILTER (result = 1) AS white_wins,
                    count(*) FILTER (result = 0) AS draws,
                    count(*) FILTER (result = -1) AS black_wins
                FROM (SELECT position, game, ply, {rest}
                      FROM read_parquet({[str(p) for p in inputs]}))
                GROUP BY position)
        ) TO '{out}' (FORMAT parquet, COMPRESSION zstd)""")


def run_polars(inputs: list[Path], out: Path, options: argparse.Namespace) -> None:
    import polars as pl

    key = ["no_eval", "game", "ply"]
    rows = pl.scan_parquet(inputs).with_columns(
        no_eval=pl.col("eval_cp").is_null() & pl.col("eval_mate").is_null()
    )
    results = {"white_wins": 1, "draws": 0, "black_wins": -1}
    least = (
        rows.sort(["position", *key])
        .group_by("position")
        .agg(
            *(pl.col(n).first() for n in ("game", "ply", *REST)),
            pl.len().alias("seen"),
            *((pl.col("result") == value).sum().alias(name) for name, value in results.items()),
        )
    )
    least.sink_parquet(out, compression="zstd")


AWK = """
function told() { if (seen) print first, seen, white, draws, black }
$1 != position { told(); position = $1; first = $0; seen = white = draws = black = 0 }
{ seen++ }
$5 == "W" { white++ }
$5 == "D" { draws++ }
$5 == "B" { black++ }
END { told() }
"""


def run_sort(inputs: list[Path], out: Path, options: argparse.Namespace) -> None:
    lines = " ".join(str(path.with_suffix(".txt")) for path in inputs)
    spill = out.with_suffix(".spill")
    spill.mkdir()
    script = out.with_suffix(".awk")
    script.write_text(AWK)
    subprocess.run(
        f"sort -S {options.memory}M --parallel={options.threads} -T {spill} {lines}"
        f" | mawk -f {script} > {out}",
        shell=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )


RUN = {"queen": run_queen, "duckdb": run_duckdb, "polars": run_polars, "sort": run_sort}


# Answers, to compare: a sum over rows that no order changes.


def answer(side: str, out: Path) -> dict[str, Any]:
    rows, seen, digest = 0, 0, 0
    for positions, games, numbers in answers(side, out):
        rows, seen = rows + len(positions), seen + int(numbers[:, 1].sum())
        mixed_all = position_hash(positions)
        for word in (*games.view("<u8").T, *numbers.T.astype(np.uint64)):
            mixed_all = (mixed_all ^ word) * np.uint64(0x9E3779B97F4A7C15)
            mixed_all ^= mixed_all >> np.uint64(31)
        digest = (digest + int(mixed_all.sum(dtype=np.uint64))) % 2**64
    return {"distinct": rows, "seen": seen, "digest": f"{digest:016x}"}


def answers(side: str, out: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Positions [n, 36], games [n, 16], numbers [n, 5]: ply and counts; a piece at a time."""
    if side == "sort":
        yield from answers_of_sort(out)
        return
    names = ["ply", "seen", "white_wins", "draws", "black_wins"]
    for path in sorted(out.glob("*.parquet")) if out.is_dir() else [out]:
        for batch in pq.ParquetFile(path).iter_batches(columns=["position", "game", *names]):
            wide = [
                np.frombuffer(b"".join(batch.column(n).to_pylist()), np.uint8).reshape(-1, size)
                for n, size in (("position", 36), ("game", 16))
            ]
            numbers = [np.asarray(batch.column(n).to_numpy(), np.int64) for n in names]
            yield wide[0], wide[1], np.stack(numbers, axis=1)


def answers_of_sort(out: Path) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    with out.open() as stream:
        while words := [line.split() for line in itertools.islice(stream, 100_000)]:
            wide = [
                np.frombuffer(bytes.fromhex("".join(w[n] for w in words)), np.uint8) for n in (0, 2)
            ]
            numbers = [[int(w[3], 16), *map(int, w[-4:])] for w in words]
            yield wide[0].reshape(-1, 36), wide[1].reshape(-1, 16), np.array(numbers, np.int64)


# Measuring.


def measure(
    side: str, inputs: list[Path], folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Run a side in its own process; seconds, processor seconds and the largest memory."""
    out = folder / side
    for path in folder.glob(f"{side}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    said = {**vars(options), "side": side, "out": str(out), "inputs": [str(p) for p in inputs]}
    environment = {
        **os.environ,
        "POLARS_MAX_THREADS": str(options.threads),
        "OMP_NUM_THREADS": str(options.threads),
    }
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, __file__, "--one", json.dumps(said, default=str)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = Peak(child.pid)
    _, errors = child.communicate()
    wall = time.perf_counter() - began
    found = {"seconds": round(wall, 2), "cpu": round(peak.cpu, 2), "peak_mb": round(peak.most)}
    if child.returncode:
        lines = errors.strip().splitlines() or [f"ended with {child.returncode}"]
        return {**found, "failed": lines[-1][:300]}
    return found


class Peak:
    """The largest memory of a process and its children, and the processor time they took."""

    def __init__(self, pid: int) -> None:
        self.most, self.cpu = 0.0, 0.0
        self._process = psutil.Process(pid)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        spent: dict[int, float] = {}
        while self._process.is_running():
            try:
                family = [self._process, *self._process.children(recursive=True)]
                self.most = max(self.most, sum(p.memory_info().rss for p in family) / 2**20)
                spent |= {p.pid: sum(p.cpu_times()[:2]) for p in family}
            except psutil.Error:
                pass
            self.cpu = sum(spent.values())
            time.sleep(0.02)


def main() -> None:
    options = arguments()
    if options.one:
        said = json.loads(options.one)
        given = argparse.Namespace(**said)
        RUN[said["side"]]([Path(p) for p in said["inputs"]], Path(said["out"]), given)
        return
    rows = int(options.rows * 1e6) // SHARD * SHARD
    data = rows * ROW_BYTES / 2**20
    sides = ["queen"] if options.bound else options.sides.split(",")
    if options.bound:
        options.memory = int(data / 10)
    work = Path(options.work or tempfile.mkdtemp(prefix="dedup-"))
    inputs = make(work / "in", rows, "sort" in sides)
    report: dict[str, Any] = {
        "rows": rows,
        "data_mb": round(data),
        "memory_mb": options.memory,
        "threads": options.threads,
        "versions": {name: told_version(name) for name in ("polars", "duckdb", "numpy", "pyarrow")},
    }
    report["sides"] = in_turns(sides, inputs, work, options)
    print(json.dumps(report, indent=1))
    if not options.work:
        shutil.rmtree(work)


def in_turns(
    sides: list[str], inputs: list[Path], work: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """Best of the repeats for each side, ratios to `queen`, answers compared."""
    found: dict[str, dict[str, Any]] = {}
    for turn in range(options.repeats):
        for side in sides:
            one = measure(side, inputs, work, options)
            print(f"{side} {one}", file=sys.stderr, flush=True)
            best = found.setdefault(side, one)
            most = max(best["peak_mb"], one["peak_mb"])
            if one["seconds"] < best["seconds"]:
                found[side] = one
            found[side]["peak_mb"] = most
            if not turn and "failed" not in one:
                best["answer"] = answer(side, work / side)
            found[side].setdefault("answer", best.get("answer"))
    own = found.get("queen", {}).get("seconds")
    for one in found.values():
        if own and "failed" not in one:
            one["times_queen"] = round(one["seconds"] / own, 2)
            one["cpu_times_queen"] = round(one["cpu"] / found["queen"]["cpu"], 2)
    told = {json.dumps(one["answer"]) for one in found.values() if one.get("answer")}
    if len(told) > 1:
        print("the sides do not agree", file=sys.stderr)
    return {**found, "agree": len(told) == 1}


def told_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=float, default=20, help="millions")
    parser.add_argument("--memory", type=int, default=512, help="MiB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--work", default="")
    parser.add_argument("--files", type=int, default=16)
    parser.add_argument("--buckets", type=int, default=256)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
