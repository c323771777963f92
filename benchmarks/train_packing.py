"""Packed against padded training of the small QUEEN, on a project's own explanations.

    python benchmarks/train_packing.py [PROJECT] [--threads 1] [--steps 6] [--precision bf16]

PROJECT is a folder in which `queen run` has been: its seeds, its rounds' explanations that were
kept, its curriculum for replay, its encoder and tokenizer. Three ways to train the same batches:

    padded     micro-batches in the order drawn, each padded to its longest sequence
    bucketed   the batch sorted by length first, then cut into micro-batches (packing=false)
    packed     sequences end to end, each attending to itself alone (packing=true)
    masked     (--masked) end to end in rows of 1,024 under one block-diagonal mask each

Tokens are real ones, no padding: in the median step, for each second of time (`wall`) and of
processor time (`cpu`, the steadier on a machine that does other things too). `loss` is that of
the first batch in float32 before any step; `filled` the tokens computed for each real one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn import functional as F

from queen.language.questions.bank import stages
from queen.language.tokenizer import load_tokenizer
from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.expert import Expert
from queen.networks.lc0.load import load_encoder
from queen.networks.queen import QueenModel
from queen.training.backend import TorchBackend
from queen.training.examples import EncodedSet, concatenate, encode_examples
from queen.training.head import head_at
from queen.training.loop import TrainSettings, deterministic
from queen.training.packing import PackedBatch, level, pack_batch
from queen.training.sampling import BatchPlan, Share
from queen.training.sft import QueenBatch, QueenTask, make_batch
from queen.training.states import PositionStates
from stages.questions import conversations
from stages.training import Untold, explanation_examples, question_examples

STATES = (1, 2, 4, 6)
ROW = 1024


class Padded(QueenTask):
    """Batches in the order drawn."""

    def batch(self, step: int) -> QueenBatch:
        order = np.random.default_rng([7, step])
        indices = order.permutation(self.plan.batch_indices(step))
        return make_batch(self.examples, indices, self.pad)


class Masked(QueenTask):
    """Sequences end to end in rows of ROW tokens under a boolean mask."""

    def batch(self, step: int) -> PackedBatch:
        return pack_batch(self.examples, self.plan.batch_indices(step))

    def loss(self, model: QueenModel, batch: Any) -> Tensor:
        rows = _filled(batch.lengths.tolist(), ROW)
        owner = torch.full((len(rows), ROW), -1)
        flat = torch.full((len(rows), ROW), -1)
        starts = batch.lengths.cumsum(0) - batch.lengths
        for row, members in enumerate(rows):
            at = 0
            for each in members:
                length = int(batch.lengths[each])
                owner[row, at : at + length] = each
                flat[row, at : at + length] = torch.arange(length) + starts[each]
                at += length
        return self._loss(model, batch, owner, flat, starts)

    def _loss(
        self, model: QueenModel, batch: PackedBatch, owner: Tensor, flat: Tensor, starts: Tensor
    ) -> Tensor:
        real = flat >= 0
        ids = torch.where(real, batch.ids[flat], self.pad)
        places = torch.where(real, flat - starts[owner], 0)
        same = (owner[:, :, None] == owner[:, None, :]) & torch.ones(ROW, ROW).tril().bool()
        assert self.states
        read = self.states.of(batch.positions.numpy(), model.device)
        wanted = torch.where(real, batch.targets[flat], False).flatten().nonzero().squeeze(1)
        with head_at(model, wanted - 1):
            logits = model(
                ids, states=read, rows=owner, attention_mask=same[:, None], position_ids=places
            )
        return F.cross_entropy(logits.float(), ids.flatten()[wanted], reduction="sum")


def _filled(lengths: list[int], room: int) -> list[list[int]]:
    """Sequences into rows, each into the first that has room, longest first."""
    rows: list[list[int]] = []
    left: list[int] = []
    for each in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        row = next((r for r, free in enumerate(left) if free >= lengths[each]), None)
        if row is None:
            rows.append([])
            left.append(room)
            row = len(rows) - 1
        rows[row].append(each)
        left[row] -= lengths[each]
    return rows


class Bench:
    """A project's examples and encoder, and a new model of the `mini` shape."""

    batch = 96

    def __init__(
        self,
        project: Path,
        threads: int,
        precision: str,
        limit: int | None = None,
        untold: Untold = "lines",
    ) -> None:
        self.threads, self.precision = threads, precision
        self.tokenizer = load_tokenizer(project / "models/tokenizer")
        encoder = load_encoder(project / "models/encoder/expert")
        self.expert = Expert(encoder, STATES, memory_mb=0)
        self.explained = self._encoded(_explanations(project, limit, untold))
        file = project / "data/questions/rows.parquet"
        asked = islice(conversations(file, "train", stages()), limit)
        self.questions = self._encoded(question_examples(list(asked)))

    def _encoded(self, examples: Any) -> EncodedSet:
        return encode_examples(examples, self.tokenizer, 1024)

    def model(self) -> QueenModel:
        encoder = self.expert.encoder
        info = EncoderInfo("expert", self.expert.digest, encoder.n_states, encoder.width)
        model = build_queen(
            DecoderSettings(), BridgeSettings(states=STATES), self.tokenizer, info, 0
        )
        for block in model.blocks:  # open, so that a fault in what is read shows in the loss
            block.attention_gate.data.fill_(0.5)
            block.ffn_gate.data.fill_(0.5)
        return model.train()

    def task(self, kind: type[QueenTask], packing: bool, replay: float, steps: int) -> QueenTask:
        sets = [(self.explained, 1 - replay), (self.questions, replay)]
        sets = [(each, share) for each, share in sets if share]
        shares = [Share(str(n), each.lengths, share) for n, (each, share) in enumerate(sets)]
        examples = concatenate([each for each, _ in sets])
        states = PositionStates(self.expert, examples.positions, 10**9, 4096)
        plan = BatchPlan(shares, self.batch, steps, 0)
        return kind(examples, plan, states, self.tokenizer.pad_token_id or 0, packing)

    def rates(self, tasks: dict[str, QueenTask], micro: int, steps: int) -> dict[str, Any]:
        """Each task's rates; steps in turn with the others', so that all meet the same load."""
        settings = TrainSettings(steps=steps, threads=self.threads, precision=self.precision)
        models = {name: self.model() for name in tasks}
        engines = {
            name: TorchBackend(models[name], task.groups(models[name], settings), settings)
            for name, task in tasks.items()
        }
        timed: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
        with deterministic(self.threads):
            losses = {name: self._loss(task, micro) for name, task in tasks.items()}
            for step in range(steps):
                for name, task in tasks.items():
                    spent = self._timed(engines[name], task, models[name], step, micro)
                    timed[name].append(spent)
        return {
            name: {
                **{
                    kind: round(1 / statistics.median(row[i] for row in rows[1:]))
                    for i, kind in enumerate(("wall", "cpu"))
                },
                "loss": losses[name],
                "filled": _filled_up(tasks[name], micro, steps),
            }
            for name, rows in timed.items()
        }

    def _loss(self, task: QueenTask, micro: int) -> float:
        batch, model = task.batch(0), self.model()
        with torch.no_grad():
            parts = [float(task.loss(model, part)) for part in batch.split(micro)]
        return sum(parts) / batch.weight

    def _timed(
        self, engine: TorchBackend, task: QueenTask, model: QueenModel, step: int, micro: int
    ) -> tuple[float, float]:
        """Seconds and processor seconds of a step for each real token."""
        wall, cpu = time.perf_counter(), time.process_time()
        batch = task.batch(step)
        for part in batch.split(micro):
            engine.backward(lambda part=part: task.loss(model, part), batch.weight)
        engine.step(1.0)
        spent = time.perf_counter() - wall, time.process_time() - cpu
        return spent[0] / batch.tokens, spent[1] / batch.tokens


def _explanations(project: Path, limit: int | None, untold: Untold) -> Any:
    """Seeds, and what rounds kept; of each file its first `limit` rows."""
    files = [project / "data/seeds/rows.parquet", *project.glob("data/filter/*/rows.parquet")]
    tables = [pq.read_table(file).slice(0, limit) for file in sorted(files)]
    rows = [row for table in tables for row in table.to_pylist() if not row["dropped"]]
    return explanation_examples(rows, untold=untold)


WAYS: dict[str, tuple[type[QueenTask], bool]] = {
    "padded": (Padded, False),
    "bucketed": (QueenTask, False),
    "packed": (QueenTask, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("project", nargs="?", type=Path, default=Path())
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--micro", type=int, nargs="+", default=[32, 96])
    parser.add_argument("--replay", type=float, nargs="+", default=[0.3])
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--limit", type=int, help="rows of each file: a large project's states")
    parser.add_argument(
        "--untold", choices=["lines", "move"], default="lines", help="as in `train`"
    )
    parser.add_argument("--masked", action="store_true", help="the usual way of packing, too")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bench = Bench(args.project, args.threads, args.precision, args.limit, args.untold)
    bench.batch = args.batch
    report: dict[str, Any] = {"torch": torch.__version__, "threads": args.threads}
    ways = {**WAYS, "masked": (Masked, False)} if args.masked else WAYS
    for replay in args.replay:
        tasks = {n: bench.task(kind, on, replay, args.steps) for n, (kind, on) in ways.items()}
        row: dict[str, Any] = {"tokens": _spread(tasks["packed"], args.steps)}
        for micro in args.micro:
            found = bench.rates(tasks, micro, args.steps)
            row[f"micro-batches of {micro}"] = found
        best = {n: max(row[f"micro-batches of {m}"][n]["cpu"] for m in args.micro) for n in ways}
        row["packed over, each at its best"] = {
            name: round(best["packed"] / rate, 2) for name, rate in best.items()
        }
        report[f"replay {replay}"] = row
    print(json.dumps(report, indent=1))


def _filled_up(task: QueenTask, micro: int, steps: int) -> float:
    """Tokens that go through the model for each real one."""
    parts = [part for step in range(steps) for part in task.batch(step).split(micro)]
    computed = [
        len(level(part.lengths.numpy()).sources)
        if isinstance(part, PackedBatch)
        else part.ids.numel()
        for part in parts
    ]
    return round(sum(computed) / sum(part.tokens for part in parts), 3)


def _spread(task: QueenTask, steps: int) -> dict[str, float]:
    """Tokens of an example: mean, deviation, longest."""
    drawn = np.concatenate([task.plan.batch_indices(step) for step in range(steps)])
    lengths = task.examples.lengths[drawn]
    named = (("mean", lengths.mean()), ("deviation", lengths.std()), ("longest", lengths.max()))
    return {name: round(float(each), 1) for name, each in named}


if __name__ == "__main__":
    main()
