"""Small hybrid, ResNet and ViT of equal size on the same labelled positions, and which one wins.

    python benchmarks/value_networks.py GAMES --out FOLDER [--positions 200000] [--seeds 0 1]
        [--kinds hybrid resnet vit] [--width 32] [--lr 0] [--batch 64] [--minutes 0]
        [--measure test] [--threads 1]

GAMES is a PGN whose moves carry [%eval]: each position's label is that evaluation. Positions are
met once (the first game keeps them). By hash of the game 10 % are development games (the curves,
and all tuning: --measure dev), 20 % test games, which nothing is chosen by, the rest is trained on.

Every network meets --positions positions, with one seed the same ones in the same order, by the
project's loop. With --minutes it is as many as it gets through in that processor time instead: a
few steps are timed first and give the run its number of steps, which is then kept. What is
finished in FOLDER is taken, what was killed goes on, so that seeds and kinds may be added later.

FOLDER/report-test.json and report-test.txt hold curves, measures with 95 % intervals by
bootstrap over games and paired differences between the kinds (each position's measures averaged
over seeds; the intervals do not know how much seeds differ, so each run stands there too). Beside
them: always saying the training set's frequencies, and counting pieces (`fit_material`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from queen.evaluation.intervals import Interval, paired_difference
from queen.evaluation.material import fit_material
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
from stages.bulk.value_rows import Split

BLOCKS = {"hybrid": (2, 3), "resnet": (4, 0), "vit": (0, 6)}  # of equal size at any width
RATES = {"hybrid": 2e-3, "resnet": 3e-3, "vit": 1e-3}  # the best of a few short trials
DEV, TEST = "dev", "test"
HELD_OUT, DEV_PART = 0.3, 1 / 3
WARMUP, LOOKS, LOOKED_AT, SAMPLES = 0.05, 12, 3000, 1000
MEASURES = ("loss", "cross_entropy", "ordinal", "side", "score_error", "cp_error")
MATES = ("mates_recall", "mates_precision", "mated_recall", "mated_precision")
CURVE = ("loss", "cross_entropy", "side")


@dataclass(frozen=True, eq=False)
class Part:
    """Held-out rows and the game of each."""

    rows: np.ndarray
    games: list[bytes]


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


def prepared(games: Path, folder: Path) -> tuple[RowFile, dict[str, Part]]:
    """The rows to train on, and those of development and test games."""
    if not (folder / "train.npy").exists():
        seen: set[bytes] = set()
        rows, ids = [], []
        for game in read_games(games, on_reject=lambda reject: None):
            here = list(rows_of(game, seen))
            rows += here
            ids += [bytes.fromhex(game.id)] * len(here)
        every, owners = np.concatenate(rows), np.array(ids, "S16")
        out = Split(HELD_OUT, len(every), 1).holds_out(owners)
        dev = out & Split(DEV_PART, len(every), 2).holds_out(owners)
        for name, chosen in ((DEV, dev), (TEST, out & ~dev)):
            raw = b"".join(each for each, own in zip(ids, chosen, strict=True) if own)
            own = np.frombuffer(raw, np.uint8).reshape(-1, 16)
            np.savez(folder / f"{name}.npz", rows=every[chosen], games=own)
        write_rows_file(folder / "train.npy", [every[~out]], len(every))
    parts = {}
    for name in (DEV, TEST):
        kept = np.load(folder / f"{name}.npz")
        parts[name] = Part(kept["rows"], [bytes(row) for row in kept["games"]])
    return open_rows_file(folder / "train.npy"), parts


def sizes(kind: str, width: int) -> ValueSettings:
    residual, transformer = BLOCKS[kind]
    return ValueSettings(width, residual, transformer, heads=max(1, width // 16))


def seconds_a_step(network: ValueSettings, train: RowFile, args: argparse.Namespace) -> float:
    """Processor time of one step, the median of a few."""
    torch.set_num_threads(args.threads)
    settings = TrainSettings(steps=1, batch_size=args.batch, threads=args.threads)
    task, net = ValueTask(train, Shuffle(train.count, 0), args.batch), new_value(network, 0)
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
        steps = math.ceil(args.positions / args.batch)
        if args.minutes:
            steps = max(20, round(60 * args.minutes / seconds_a_step(network, train, args)))
        file.write_text(json.dumps({"steps": steps}))
    return int(json.loads(file.read_text())["steps"])


def name_of(kind: str, seed: int, args: argparse.Namespace) -> str:
    long = f"m{args.minutes:g}" if args.minutes else f"n{args.positions}"
    return f"{kind}-w{args.width}-{long}-b{args.batch}-lr{args.lr or RATES[kind]:g}-s{seed}"


def run(kind: str, seed: int, args: argparse.Namespace, train: RowFile, dev: Part) -> Path:
    """Train one configuration, or take it as it is; its folder."""
    folder: Path = args.out / name_of(kind, seed, args)
    if (folder / "done.json").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    network = sizes(kind, args.width)
    steps = planned(folder, args, network, train)
    settings = TrainSettings(
        steps=steps, batch_size=args.batch, micro_batch=0, lr=args.lr or RATES[kind], seed=seed,
        threads=args.threads, warmup_steps=math.ceil(WARMUP * steps), weight_decay=0.01,
        checkpoint_every_s=60, log_every=max(1, steps // LOOKS),
    )  # fmt: skip
    net = new_value(network, seed)
    some = dev.rows[np.random.default_rng(0).permutation(len(dev.rows))[:LOOKED_AT]]

    def look(step: int, figures: Any) -> None:
        told = {"step": step, "positions": step * args.batch, "train": figures["loss"]}
        told |= {f"dev.{k}": v for k, v in measured(net, some).items() if k in MEASURES}
        with (folder / "curve.jsonl").open("a") as stream:
            stream.write(json.dumps(told) + "\n")
        print(f"{folder.name} {json.dumps(told)}", flush=True)

    result = train_value(net, train.path, settings, work=folder / "work", sink=look)
    save_value(net.cpu(), folder / "model")
    told = {
        "parameters": sum(each.numel() for each in net.parameters()), "steps": steps,
        "positions": result.tokens, "epochs": result.tokens / train.count,
        "minutes": result.seconds / 60, "final_train_loss": result.final_loss,
    }  # fmt: skip
    (folder / "done.json").write_text(json.dumps(told))
    return folder


def logits_of(net: ValueNet, rows: np.ndarray) -> torch.Tensor:
    return net.logits(rows["position"], rows["halfmove"], bf16=net.device.type == "cuda")


def measured(net: ValueNet, rows: np.ndarray) -> dict[str, float]:
    return means(judged(logits_of(net, rows), rows["label"], rows["cp"]))


def measures_of(folder: Path, name: str, part: Part) -> dict[str, np.ndarray]:
    """Each measure of each position of a part, computed once."""
    from queen.networks.value import load_value

    file = folder / f"measures-{name}.npz"
    if not file.exists():
        logits = logits_of(load_value(folder / "model").eval(), part.rows)
        np.savez(file, **judged(logits, part.rows["label"], part.rows["cp"]))
    return dict(np.load(file))


def told_of(folder: Path, found: Mapping[str, np.ndarray], games: list[bytes]) -> dict[str, Any]:
    """What a finished run is worth, with its intervals and its curve."""
    curve = [json.loads(line) for line in (folder / "curve.jsonl").read_text().splitlines()]
    by_step = {point["step"]: point for point in curve}
    return {
        **json.loads((folder / "done.json").read_text()),
        "measures": shown(intervals(found, games, seed=0, samples=SAMPLES)),
        "curve": [by_step[step] for step in sorted(by_step)],
    }


def baselines(train: RowFile, part: Part) -> dict[str, dict[str, np.ndarray]]:
    """The same measures of what looks at nothing, and of what counts pieces."""
    every, rows = train.read(), part.rows
    fit = fit_material(every["position"], every["label"])
    said = {
        "constant": constant_logits(every["label"], len(rows)),
        "material": fit.logits(rows["position"]),
    }
    return {name: judged(each, rows["label"], rows["cp"]) for name, each in said.items()}


def averaged(runs: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Each position's measures, averaged over the runs in which they say something."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a position of which no run says anything
        return {name: np.nanmean([one[name] for one in runs], axis=0) for name in runs[0]}


def shown(found: Mapping[str, Interval]) -> dict[str, list[float]]:
    return {k: [round(x, 5) for x in (v.estimate, v.low, v.high)] for k, v in found.items()}


def compared(kinds: dict[str, dict[str, np.ndarray]], games: list[bytes]) -> dict[str, Any]:
    """Paired differences of every two kinds, position by position."""
    told: dict[str, Any] = {}
    names = list(kinds)
    for one, other in ((a, b) for i, a in enumerate(names) for b in names[i + 1 :]):
        pairs = {}
        for measure in MEASURES:
            ours, theirs = kinds[one][measure], kinds[other][measure]
            kept = np.flatnonzero(~np.isnan(ours) & ~np.isnan(theirs))
            own = [games[row] for row in kept.tolist()]
            pairs[measure] = paired_difference(
                ours[kept], theirs[kept], own, seed=0, samples=SAMPLES
            )
        told[f"{one} - {other}"] = shown(pairs)
    return told


def as_text(report: dict[str, Any]) -> str:
    """Measures of the kinds and of each run, the differences, and the curves."""
    lines = [
        f"{report['train']:,} positions to train on; measured on {report['positions']:,} of "
        f"{report['games']:,} {report['measured_on']} games", "",
    ]  # fmt: skip
    kinds = report["kinds"]
    lines += ["seeds averaged", *table(kinds, (*MEASURES, *MATES)), ""]
    runs = {name: each["measures"] for name, each in report["runs"].items()}
    lines += ["each run", *table(runs, MEASURES), ""]
    for name, each in report["runs"].items():
        lines.append(f"{name}: {each['parameters']:,} parameters, {each['positions']:,} positions "
                     f"({each['epochs']:.1f} epochs), {each['minutes']:.1f} minutes, final "
                     f"training loss {each['final_train_loss']:.3f}")  # fmt: skip
    lines += ["", "paired differences", *table(report["differences"], MEASURES), ""]
    for name, each in report["runs"].items():
        lines.append(f"{name}: positions, training loss, on development games {', '.join(CURVE)}")
        for point in each["curve"]:
            cells = "".join(f"{point[f'dev.{m}']:>9.3f}" for m in CURVE)
            lines.append(f"{point['positions']:>10,}{point['train']:>9.3f}{cells}")
    return "\n".join(lines) + "\n"


def table(rows: Mapping[str, Mapping[str, list[float]]], measures: tuple[str, ...]) -> list[str]:
    wide = max(len(name) for name in rows) + 2
    lines = [" " * wide + "".join(f"{measure:>32}" for measure in measures)]
    for name, own in rows.items():
        cells = "".join(f"{cell(own[m]) if m in own else '-':>32}" for m in measures)
        lines.append(f"{name:<{wide}}{cells}")
    return lines


def cell(bounds: list[float]) -> str:
    return f"{bounds[0]:.4f} [{bounds[1]:.4f}, {bounds[2]:.4f}]"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("games", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--positions", type=int, default=200_000, help="met by each network")
    parser.add_argument("--minutes", type=float, default=0.0, help="in place of --positions")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", nargs="+", choices=list(BLOCKS), default=list(BLOCKS))
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.0, help="in place of each kind's own")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--measure", choices=(DEV, TEST), default=TEST)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = parsed()
    args.out.mkdir(parents=True, exist_ok=True)
    train, parts = prepared(args.games, args.out)
    part = parts[args.measure]
    kinds = baselines(train, part)
    report: dict[str, Any] = {
        "train": train.count, "positions": len(part.rows), "games": len(set(part.games)),
        "measured_on": args.measure, "runs": {},
    }  # fmt: skip
    found: dict[str, list[dict[str, np.ndarray]]] = {}
    for seed in args.seeds:
        for kind in args.kinds:
            folder = run(kind, seed, args, train, parts[DEV])
            own = measures_of(folder, args.measure, part)
            found.setdefault(kind, []).append(own)
            report["runs"][folder.name] = told_of(folder, own, part.games)
    kinds |= {kind: averaged(runs) for kind, runs in found.items()}
    report["kinds"] = {
        name: shown(intervals(each, part.games, seed=0, samples=SAMPLES))
        for name, each in kinds.items()
    }
    report["differences"] = compared(kinds, part.games)
    (args.out / f"report-{args.measure}.json").write_text(json.dumps(report, indent=1) + "\n")
    (args.out / f"report-{args.measure}.txt").write_text(as_text(report))
    print(as_text(report))


if __name__ == "__main__":
    main()
