"""How fast the value trainer is fed: mapped rows to planes, against python-chess and an H200.

    python benchmarks/value_loader.py [--rows 2000000] [--batch 1024] [--seconds 5] [--run 1 32]

    rows      shuffled rows of a mapped file, gathered as a batch (the file is in memory by then)
    planes    18 planes of such batches on this CPU; on a GPU the trainer makes them there
    both      one after the other: what a trainer on the CPU gets from one thread
    chess     18 planes by python-chess from FENs, square by square, on the same positions

Positions a second, by wall and by processor time of one thread, the ways taking turns; ratios are
of processor time. `need` is what the 79 M network can eat on an H200: its operations a position
(three times the forward pass, `queen.networks.value.cost`) into 989 TFLOP/s of dense bf16 at the
share --mfu. The rows are positions of random games, repeated to fill the file. Prints one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import chess
import numpy as np
import torch

from queen.networks.value.cost import forward_flops, parameters
from queen.networks.value.planes import PLANES
from queen.networks.value.settings import ValueSettings
from queen.positions.packed import pack, unpack
from queen.training.rows import ROW, RowFile, Shuffle, write_rows_file
from queen.training.value import ValueBatch, ValueTask

H200_TFLOPS = 989.0
DISTINCT = 4000


def some_rows(count: int) -> np.ndarray:
    rng, rows, board = random.Random(1), np.zeros(count, ROW), chess.Board()
    for row in rows:
        if board.is_game_over() or rng.random() < 0.01:
            board = chess.Board()
        board.push(rng.choice(list(board.legal_moves)))
        row["position"] = np.frombuffer(pack(board), np.uint8)
        row["halfmove"], row["label"] = board.halfmove_clock, rng.randrange(103)
    return rows


def parts(rows: np.ndarray, total: int) -> Iterator[np.ndarray]:
    order = np.random.default_rng(0)
    for start in range(0, total, 1 << 16):
        yield rows[order.integers(0, len(rows), min(1 << 16, total - start))]


def by_python_chess(fen: str) -> np.ndarray:
    """The planes as queen.networks.value.planes has them."""
    board = chess.Board(fen)
    planes = np.zeros((PLANES, 64), np.uint8)
    turn, flip = board.turn, 0 if board.turn else 56
    for square, piece in board.piece_map().items():
        planes[piece.piece_type - 1 + (0 if piece.color == turn else 6), square ^ flip] = 1
    for number, color in enumerate((turn, not turn)):
        if board.has_kingside_castling_rights(color):
            planes[12 + 2 * number, 7::8] = 1
        if board.has_queenside_castling_rights(color):
            planes[13 + 2 * number, 0::8] = 1
    if board.has_legal_en_passant() and board.ep_square is not None:
        planes[16, board.ep_square ^ flip] = 1
    planes[17] = min(100, board.halfmove_clock)
    return planes.reshape(PLANES, 8, 8)


def rate(once: Callable[[], int], seconds: float) -> tuple[float, float]:
    """Positions a second by wall and by processor time."""
    done, wall, own = 0, time.perf_counter(), time.process_time()
    while time.process_time() - own < seconds:
        done += once()
    return done / (time.perf_counter() - wall), done / (time.process_time() - own)


class Ways:
    """What is measured."""

    def __init__(self, file: RowFile, batch: int, run: int) -> None:
        self.task = ValueTask(file, Shuffle(file.count, 1, run), batch)
        self.step, self.device = 0, torch.device("cpu")
        self.held = self.task.batch(0)
        boards = [
            unpack(bytes(self.held.packed[i].numpy()), int(self.held.halfmove[i]))
            for i in range(min(batch, 256))
        ]
        self.fens = [board.fen() for board in boards]
        planes = self.held.planes(self.device).numpy()
        same = [np.array_equal(by_python_chess(f), p) for f, p in zip(self.fens, planes)]  # noqa: B905
        assert all(same), "both ways give the same planes"

    def rows(self) -> int:
        self.step += 1
        return self._read().tokens

    def planes(self) -> int:
        return len(self.held.planes(self.device))

    def both(self) -> int:
        self.step += 1
        return len(self._read().planes(self.device))

    def chess(self) -> int:
        return len([by_python_chess(fen) for fen in self.fens])

    def _read(self) -> ValueBatch:
        return self.task._read(self.step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each way, in all rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--mfu", type=float, default=0.4)
    args = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, object] = {"load": os.getloadavg()[0], "cores": os.cpu_count(), **vars(args)}
    paper = ValueSettings()
    need = args.mfu * H200_TFLOPS * 1e12 / (3 * forward_flops(paper))
    report["network"] = {
        "parameters": parameters(paper),
        "gflop_a_position": round(3 * forward_flops(paper) / 1e9, 2),
    }
    with tempfile.TemporaryDirectory() as folder:
        source = parts(some_rows(DISTINCT), args.rows)
        file = write_rows_file(Path(folder) / "rows.npy", source, args.rows)
        for run in args.run:
            report[f"run {run}"] = measured(Ways(file, args.batch, run), args, need)
    print(json.dumps(report, indent=1))


def measured(ways: Ways, args: argparse.Namespace, need: float) -> dict[str, object]:
    names = ("rows", "planes", "both", "chess")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for name in names:
        getattr(ways, name)()  # warm
    for _ in range(args.rounds):
        for name in names:
            found[name].append(rate(getattr(ways, name), args.seconds / args.rounds))
    told = {
        name: {
            kind: round(statistics.median(each[place] for each in pairs))
            for place, kind in enumerate(("wall", "cpu"))
        }
        for name, pairs in found.items()
    }
    return {
        **told,
        "both over chess": round(told["both"]["cpu"] / told["chess"]["cpu"], 1),
        "need": round(need),
        "rows over need": round(told["rows"]["cpu"] / need, 1),
        "both over need": round(told["both"]["cpu"] / need, 1),
    }


if __name__ == "__main__":
    main()
