"""Training of the small QUEEN: tokens a second, what each choice costs, and what it learns.

    python benchmarks/train_mini.py [--threads 2] [--net FILE] [--steps 12] [--learn 0]

Real games (the shipped ones), real curriculum questions (four about a position to a sequence),
the real encoder (maia-1900). Each row changes one thing of the first, which is what the project
does. Tokens are real ones, questions and answers, no padding. `wall` and `cpu` are tokens for
each second of time and for each second of processor time of the whole process, in the median
step; on a machine that does other things too the latter is the steadier. With `--learn N`
it trains N steps with batches mixed and with batches of like length, and reports accuracy on
held-out games.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from queen.games.chess.pgn import read_games
from queen.games.chess.position import Position
from queen.language.questions.bank import BANK, Question, ask
from queen.language.tokenizer import train_tokenizer
from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.expert import Expert
from queen.networks.fetch import obtain
from queen.networks.lc0.load import build, load_net
from queen.networks.queen import QueenModel
from queen.training.backend import TorchBackend
from queen.training.curriculum import majority_answers, question_examples, question_turn
from queen.training.examples import encode_examples
from queen.training.heldout import accuracy
from queen.training.loop import TrainSettings, deterministic
from queen.training.sampling import BatchPlan, Share
from queen.training.sft import Part, QueenBatch, QueenTask, fine_tune
from queen.training.states import PositionStates

GAMES = Path(__file__).parents[1] / "data" / "shipped" / "engine_games.pgn.zst"
STATES = (1, 2, 4, 6)
TURNS = 4


def sampled_positions(
    count: int, held_out: bool, every: int = 7
) -> Iterator[tuple[Position, tuple[str, ...]]]:
    """Positions of every other game and the moves played on from each."""
    for game in read_games(GAMES, on_reject=lambda reject: None):
        if game.index % 2 != held_out:
            continue
        for ply in range(6, len(game.moves), every):
            yield game.position(ply), game.moves[ply : ply + 4]
            count -= 1
            if not count:
                return


def questions_about(count: int, held_out: bool = False) -> list[Question]:
    """TURNS questions of random current types about each position."""
    kinds = [kind.name for kind in BANK if kind.stage.endswith("current")]
    found = []
    for index, (position, line) in enumerate(sampled_positions(count, held_out)):
        rng = random.Random(f"{held_out} {index}")
        asked = [ask(position, line, rng.choice(kinds), rng) for _ in range(TURNS)]
        found += [question for question in asked if question]
    return found


class Bench:
    """A training set, an expert and the model of the `mini` profile."""

    def __init__(self, net: str, positions: int, threads: int) -> None:
        torch.set_num_threads(threads)
        self.threads = threads
        path = obtain(net, Path(tempfile.gettempdir()) / "queen-benchmarks")
        self.expert = Expert(build(load_net(path)), STATES, memory_mb=0)
        self.questions = questions_about(positions)
        turns = [question_turn(question) for question in self.questions]
        texts = [text for turn in turns for text in (turn.prompt, turn.answer)]
        self.tokenizer = train_tokenizer(texts, 1000)
        examples = question_examples(self.questions, TURNS, 0)
        self.encoded = encode_examples(examples, self.tokenizer, 512)
        visits = 10 * len(self.encoded)
        self.table = PositionStates(self.expert, self.encoded.positions, visits, 4096)
        self.fresh = PositionStates(self.expert, self.encoded.positions, visits, 0)

    def model(self) -> QueenModel:
        encoder = self.expert.encoder
        info = EncoderInfo("maia-1900", self.expert.digest, encoder.n_states, encoder.width)
        bridge = BridgeSettings(states=STATES)
        return build_queen(DecoderSettings(), bridge, self.tokenizer, info, 0)

    def rate(
        self,
        steps: int,
        changes: dict[str, Any],
        backend: type[TorchBackend] = TorchBackend,
        task: type[QueenTask] = QueenTask,
        fresh: bool = False,
    ) -> dict[str, float]:
        """Tokens a second of training, and the share of padding."""
        settings = TrainSettings(steps=steps, threads=self.threads, **changes)
        shares = [Share("all", self.encoded.lengths, 1.0)]
        plan = BatchPlan(shares, settings.batch_size, steps, 0, settings.megabatch)
        work = task(self.encoded, plan, self.fresh if fresh else self.table, 0)
        model = self.model().train()
        engine = backend(model, work.groups(model, settings), settings)
        with deterministic(self.threads):
            timed = [_timed_step(engine, work, model, step, settings) for step in range(steps)]
        tokens, cells = sum(row[2] for row in timed[2:]), sum(row[3] for row in timed[2:])
        per_token = [[row[column] / row[2] for row in timed[2:]] for column in (0, 1)]
        wall, cpu = (round(1 / statistics.median(each)) for each in per_token)
        return {"wall": wall, "cpu": cpu, "padding": round(1 - tokens / cells, 3)}


def _timed_step(
    engine: TorchBackend, task: QueenTask, model: QueenModel, step: int, settings: TrainSettings
) -> tuple[float, float, int, int]:
    """(seconds, processor seconds, tokens, tokens and padding) of one step."""
    wall, cpu = time.perf_counter(), time.process_time()
    batch = task.batch(step)
    parts = batch.split(settings.micro_batch) if settings.micro_batch else [batch]
    for part in parts:
        engine.backward(lambda part=part: task.loss(model, part), batch.weight)
    engine.step(1.0)
    spent = time.perf_counter() - wall, time.process_time() - cpu
    return *spent, batch.tokens, sum(part.ids.numel() for part in parts)


class PlainAutocast(TorchBackend):
    """Attention in bf16, as autocast has it."""

    @contextmanager
    def _precision(self) -> Iterator[None]:
        with torch.autocast("cpu", torch.bfloat16):
            yield


class WholeHead(QueenTask):
    """Logits of every token, then those of the targets."""

    def loss(self, model: QueenModel, batch: QueenBatch) -> Tensor:
        assert self.states
        states = self.states.of(batch.positions.numpy(), model.device)
        logits = model(batch.ids, states=states)[:, :-1]
        wanted = batch.targets[:, 1:]
        return F.cross_entropy(logits[wanted].float(), batch.ids[:, 1:][wanted], reduction="sum")


ROWS: Sequence[tuple[str, Callable[[Bench, int], dict[str, float]]]] = (
    ("as it is: bf16, mixed batches of 96, micro-batches of 32", lambda b, n: b.rate(n, {})),
    ("float32", lambda b, n: b.rate(n, {"precision": "fp32"})),
    ("attention in bf16 too", lambda b, n: b.rate(n, {}, backend=PlainAutocast)),
    ("head on every token", lambda b, n: b.rate(n, {}, task=WholeHead)),
    ("states computed each step", lambda b, n: b.rate(n, {}, fresh=True)),
    ("no micro-batches", lambda b, n: b.rate(n, {"micro_batch": 0})),
    ("micro-batches of 16", lambda b, n: b.rate(n, {"micro_batch": 16})),
    ("batches of like length", lambda b, n: b.rate(n, {"megabatch": 8, "micro_batch": 0})),
)


def learnt(bench: Bench, steps: int, megabatch: int) -> dict[str, Any]:
    """Accuracy on held-out positions after a short training."""
    settings = TrainSettings(steps=steps, threads=bench.threads, megabatch=megabatch)
    held_out = questions_about(1000, held_out=True)
    model, began = bench.model(), time.perf_counter()
    with tempfile.TemporaryDirectory() as work:
        part = Part("all", bench.encoded, 1.0)
        result = fine_tune(model, bench.expert, [part], settings, work=Path(work), table_mb=4096)
    spent = time.perf_counter() - began
    majority = majority_answers(bench.questions)
    report = accuracy(
        model, bench.tokenizer, bench.expert, held_out, majority, threads=bench.threads
    )
    types = {
        f"{kind}": [round(tally.accuracy, 3), round(tally.majority, 3)]
        for stage in report.types.values()
        for kind, tally in stage.items()
    }
    macro = {stage: report.macro(stage) for stage in report.types}
    return {"seconds": spent, "loss": result.final_loss, "macro": macro, "types": types}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--net", default="maia-1900", help="a known name, a URL or a file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--learn", type=int, default=0, metavar="STEPS")
    args = parser.parse_args()
    bench = Bench(args.net, args.positions, args.threads)
    report: dict[str, Any] = {
        "machine": f"{platform.machine()} {platform.processor()}".strip(),
        "torch": torch.__version__,
        "threads": args.threads,
        "parameters": sum(each.numel() for each in bench.model().parameters()),
        "tokens_per_example": round(float(bench.encoded.lengths.mean()), 1),
        "answer_share": round(float(bench.encoded.answers.mean()), 3),
    }
    report["rates"] = {name: row(bench, args.steps) for name, row in ROWS}
    if args.learn:
        report["learnt"] = {
            name: learnt(bench, args.learn, megabatch)
            for name, megabatch in (("mixed", 1), ("like length", 8))
        }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
