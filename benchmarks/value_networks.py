"""Small hybrid, ResNet and ViT of equal size on the same labelled positions, and which one wins.

    python benchmarks/value_networks.py GAMES --out FOLDER [--positions 300000] [--seeds 0 1]
        [--kinds hybrid resnet vit] [--width 32] [--lr 3e-3] [--batch 128] [--minutes 0]
        [--measure test] [--threads 1]

GAMES is a PGN whose moves carry [%eval]: each position's label is that evaluation. Positions are
met once (the first game keeps them). By hash of the game 10 % are development games (the curves,
and all tuning: --measure dev), 20 % test games, which nothing is chosen by, the rest is trained on.

Every network meets --positions positions, with one seed the same ones in the same order, by the
project's loop. With --minutes it is as many as it gets through in that processor time instead: a
few steps are timed first and give the run its number of steps, which is then kept. What is
finished in FOLDER is taken, what was killed goes on, so that seeds and kinds may be added later.

FOLDER/report.json, report.txt and a chart of the curves hold measures with 95 % intervals by
bootstrap over games and paired differences between the kinds (each position's measures averaged
over seeds; the intervals do not know how much seeds differ, so each run stands there too). Beside
them: always saying the training set's frequencies, and counting pieces (`queen.evaluation.material`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from queen.evaluation.intervals import Interval, paired_difference
from queen.evaluation.value import constant_logits, intervals, judged, means
from queen.games.chess.pgn import MATE_PAWNS, Game, read_games
from queen.networks.value import ValueNet, new_value, save_value
from queen.networks.value.labels import class_of
from queen.networks.value.settings import ValueSettings
from queen.positions.packed import pack
from queen.training.backend import TorchBackend
from queen.training.rows import ROW, RowFile, Shuffle, open_rows_file, write_rows_file
from queen.training.settings import TrainSettings
from queen.training.value import ValueTask, train_value
from stages.value_rows import Split

BLOCKS = {"hybrid": (2, 6), "resnet": (6, 0), "vit": (0, 9)}
BATCH, WARMUP, LOOKS, LOOKED_AT = 128, 0.05, 12, 3000
MEASURES = ("loss", "cross_entropy", "ordinal", "side", "score_error", "cp_error")


def rows_of(game: Game, seen: set[bytes]) -> Iterator[np.ndarray]:
    """One row for each evaluated position of a game that was not seen before."""
    board = game.position(0).board()
    for move, value in zip(game.moves, game.evals, strict=True):
        board.push_uci(move)
        packed = pack(board)
        if value is None or packed in seen:
            continue
        seen.add(packed)
        value = value if board.turn else -value
        mate = abs(value) > MATE_PAWNS / 2
        row = np.zeros(1, ROW)
        row["position"] = np.frombuffer(packed, np.uint8)
        row["halfmove"] = min(255, board.halfmove_clock)
        row["cp"] = 0 if mate else round(100 * value)
        row["label"] = class_of(row["cp"], np.sign([value]).astype(int), np.array([mate]))
        yield row


def prepared(games: Path, folder: Path) -> tuple[RowFile, np.ndarray, list[bytes]]:
    """The rows to train on, those held out, and the games of these."""
    if not (folder / "heldout.npz").exists():
        seen: set[bytes] = set()
        rows, ids = [], []
        for game in read_games(games, on_reject=lambda reject: None):
            here = list(rows_of(game, seen))
            rows += here
            ids += [bytes.fromhex(game.id)] * len(here)
        every, owners = np.concatenate(rows), np.array(ids, "S16")
        out = Split(0.25, len(every), 1).holds_out(owners)
        write_rows_file(folder / "train.npy", [every[~out]], len(every))
        raw = np.frombuffer(b"".join(i for i, o in zip(ids, out, strict=True) if o), np.uint8)
        np.savez(folder / "heldout.npz", rows=every[out], games=raw.reshape(-1, 16))
    kept = np.load(folder / "heldout.npz")
    owners = [bytes(row) for row in kept["games"]]
    return open_rows_file(folder / "train.npy"), kept["rows"], owners


def sizes(kind: str, width: int) -> ValueSettings:
    residual, transformer = BLOCKS[kind]
    return ValueSettings(width, residual, transformer, heads=max(1, width // 32))


def seconds_a_step(network: ValueSettings, train: RowFile, threads: int) -> float:
    """Processor time of one step, the median of a few."""
    torch.set_num_threads(threads)
    settings = TrainSettings(steps=1, batch_size=BATCH, threads=threads)
    task, net = ValueTask(train, Shuffle(train.count, 0), BATCH), new_value(network, 0)
    backend, found = TorchBackend(net, task.groups(net, settings), settings), []
    for step in range(5):
        started, batch = time.process_time(), task.batch(step)
        backend.backward(lambda batch=batch: task.loss(net, batch), batch.weight)
        backend.step(0.0)
        found.append(time.process_time() - started)
    return float(np.median(found[1:]))


def planned(folder: Path, args: argparse.Namespace, network: ValueSettings, train: RowFile) -> int:
    """Steps of a run: chosen once, kept for whoever goes on with it."""
    file = folder / "plan.json"
    if not file.exists():
        a_step = seconds_a_step(network, train, args.threads)
        steps = max(20, round(60 * args.minutes / a_step))
        file.write_text(json.dumps({"steps": steps, "seconds_a_step": a_step}))
    return int(json.loads(file.read_text())["steps"])


def run(
    kind: str, seed: int, args: argparse.Namespace, train: RowFile, heldout: np.ndarray
) -> Path:
    """Train one configuration, or take it as it is; its folder."""
    folder = args.out / f"{kind}-w{args.width}-m{args.minutes:g}-s{seed}"
    if (folder / "done.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    network = sizes(kind, args.width)
    steps = planned(folder, args, network, train)
    settings = TrainSettings(
        steps=steps, batch_size=BATCH, micro_batch=0, lr=args.lr, seed=seed, threads=args.threads,
        warmup_steps=math.ceil(WARMUP * steps), weight_decay=0.01, checkpoint_every_s=60,
        log_every=max(1, steps // LOOKS),
    )  # fmt: skip
    net, started = new_value(network, seed), time.process_time()
    some = heldout[np.random.default_rng(0).permutation(len(heldout))[:LOOKED_AT]]

    def look(step: int, figures: Any) -> None:
        told = {"step": step, "positions": step * BATCH, "train": figures["loss"]}
        told |= {f"heldout.{k}": v for k, v in measured(net, some).items() if k in MEASURES}
        with (folder / "curve.jsonl").open("a") as stream:
            stream.write(json.dumps(told) + "\n")

    result = train_value(net, train.path, settings, work=folder / "work", sink=look)
    spent = time.process_time() - started
    found = judged(logits_of(net, heldout), heldout["label"], heldout["cp"])
    np.savez(folder / "measures.npz", **found)
    save_value(net.cpu(), folder / "model")
    told = {
        "parameters": sum(each.numel() for each in net.parameters()), "steps": steps,
        "positions": result.tokens, "epochs": result.tokens / train.count,
        "cpu_minutes_last_sitting": spent / 60, "final_train_loss": result.final_loss,
    }  # fmt: skip
    (folder / "done.json").write_text(json.dumps(told))
    return folder


def logits_of(net: ValueNet, rows: np.ndarray) -> torch.Tensor:
    return net.logits(rows["position"], rows["halfmove"], bf16=net.device.type == "cuda")


def measured(net: ValueNet, rows: np.ndarray) -> dict[str, float]:
    return means(judged(logits_of(net, rows), rows["label"], rows["cp"]))


def told_of(folder: Path, games: list[bytes]) -> dict[str, Any]:
    """What a finished run is worth, with its intervals and its curve."""
    found = dict(np.load(folder / "measures.npz"))
    curve = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    by_step = {point["step"]: point for point in curve}
    return {
        **json.loads((folder / "done.json").read_text()),
        "heldout": shown(intervals(found, games, seed=0)),
        "curve": [by_step[step] for step in sorted(by_step)],
    }


def shown(found: dict[str, Interval]) -> dict[str, list[float]]:
    return {k: [round(x, 5) for x in (v.estimate, v.low, v.high)] for k, v in found.items()}


def compared(folders: dict[str, list[Path]], games: list[bytes]) -> dict[str, Any]:
    """Paired differences of the kinds, position by position, seeds averaged."""
    mean = {}
    for kind, own in folders.items():
        runs = [dict(np.load(folder / "measures.npz")) for folder in own]
        mean[kind] = {m: np.mean([one[m] for one in runs], axis=0) for m in MEASURES}
    told: dict[str, Any] = {}
    kinds = list(mean)
    for one, other in ((a, b) for i, a in enumerate(kinds) for b in kinds[i + 1 :]):
        pairs = {}
        for measure in MEASURES:
            ours, theirs = mean[one][measure], mean[other][measure]
            kept = np.flatnonzero(~np.isnan(ours) & ~np.isnan(theirs))
            own = [games[row] for row in kept.tolist()]
            pairs[measure] = paired_difference(ours[kept], theirs[kept], own, seed=0, samples=1000)
        told[f"{one} - {other}"] = shown(pairs)
    return told


def as_text(report: dict[str, Any]) -> str:
    """A table of the runs, the constant beside them, and the differences."""
    lines = [f"{report['train']:,} positions to train on, {report['heldout']:,} held out "
             f"of {report['games']:,} games", ""]  # fmt: skip
    lines.append(f"{'run':<24}{'params':>9}{'epochs':>8}" + "".join(f"{m:>26}" for m in MEASURES))
    constant = "".join(f"{report['constant'][m]:>26.4f}" for m in MEASURES)
    lines.append(f"{'constant':<24}{'':>9}{'':>8}{constant}")
    for name, run_ in report["runs"].items():
        cells = "".join(f"{cell(run_['heldout'][m]):>26}" for m in MEASURES)
        lines.append(f"{name:<24}{run_['parameters']:>9,}{run_['epochs']:>8.2f}{cells}")
    lines += ["", "paired differences, seeds averaged"]
    for name, pairs in report["differences"].items():
        cells = "".join(f"{cell(pairs[m]):>26}" for m in MEASURES)
        lines.append(f"{name:<41}{cells}")
    return "\n".join(lines) + "\n"


def cell(bounds: list[float]) -> str:
    return f"{bounds[0]:.4f} ({bounds[1]:.4f} {bounds[2]:.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("games", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", nargs="+", choices=list(BLOCKS), default=list(BLOCKS))
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    train, heldout, games = prepared(args.games, args.out)
    always = constant_logits(train.read()["label"], len(heldout))
    report: dict[str, Any] = {
        "train": train.count, "heldout": len(heldout), "games": len(set(games)),
        "constant": means(judged(always, heldout["label"], heldout["cp"])), "runs": {},
    }  # fmt: skip
    folders: dict[str, list[Path]] = {}
    for seed in args.seeds:
        for kind in args.kinds:
            folder = run(kind, seed, args, train, heldout)
            folders.setdefault(kind, []).append(folder)
            report["runs"][folder.name] = told_of(folder, games)
            report["differences"] = compared(folders, games)
            (args.out / "report.json").write_text(json.dumps(report, indent=1) + "\n")
            (args.out / "report.txt").write_text(as_text(report))
    print((args.out / "report.txt").read_text())


if __name__ == "__main__":
    main()
