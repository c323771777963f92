"""Explanations a second, against transformers' `generate` with the same bridge.

    python benchmarks/generation.py [--shape mini] [--shape smollm2] [--texts 128] [--repeat 1]

`mini` is the decoder of that profile with random weights; `smollm2` is SmolLM2-135M-Instruct with
a bridge before every second layer, its gates opened at random weights. Both read the real expert
(maia-1900) at positions of the shipped games, and each text is cut at the length of a real
explanation, so both sides write the same number of tokens. The peer has its cross-attention keys
and values computed once for each position too; what it does otherwise is its own. Rows name the
number type and the batch size. Rates of one process are texts for each second of processor time,
of several processes texts for each second of time, rows by turns, the best of `--repeat`.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import multiprocessing
import platform
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from smollm2 import bridged
from torch import Tensor
from transformers import StoppingCriteria

from queen.games.chess.pgn import read_games
from queen.games.chess.position import Position
from queen.generation import batch as batching
from queen.generation.batch import Batch, Job
from queen.generation.decode import Generator, Request, Sampling
from queen.generation.pool import GeneratorPool
from queen.language.prompts import explain_prompt
from queen.language.questions.bank import BANK, ask
from queen.language.tokenizer import train_tokenizer
from queen.networks.build import (
    BridgeSettings,
    DecoderSettings,
    EncoderInfo,
    build_queen,
)
from queen.networks.expert import Expert
from queen.networks.fetch import obtain
from queen.networks.lc0.load import build, load_net
from queen.networks.queen import QueenModel, _Reading

ROOT = Path(__file__).parents[1]
GAMES = ROOT / "data" / "shipped" / "engine_games.pgn.zst"
CACHE = Path(tempfile.gettempdir()) / "queen-benchmarks"
GATE = 0.5
# Tokens of 96 explanations that the hce teacher wrote in the style of `mini` (5 plies, 4
# candidates, 6 sentences), in the project's own vocabulary; SmolLM2's gives within 5 % of them.
LENGTHS = [
    195, 212, 205, 228, 196, 207, 230, 240, 232, 206, 198, 250, 235, 214, 227, 227, 211, 198, 248,
    197, 221, 243, 236, 232, 252, 240, 235, 209, 235, 262, 227, 217, 227, 213, 231, 209, 230, 223,
    186, 256, 204, 205, 236, 205, 218, 227, 239, 222, 228, 222, 225, 221, 248, 217, 209, 228, 211,
    225, 224, 216, 218, 221, 251, 243, 253, 246, 241, 217, 217, 216, 197, 198, 235, 216, 203, 214,
    228, 189, 232, 196, 201, 227, 222, 222, 233, 216, 200, 223, 234, 212, 215, 240, 218, 212, 229,
    210,
]  # fmt: skip


@dataclass
class Shape:
    """What is measured: a model, its tokenizer and expert, the batches to try."""

    model: QueenModel
    tokenizer: Any
    expert: Expert
    batches: Sequence[int]


@functools.cache
def expert() -> Expert:
    return Expert(build(load_net(obtain("maia-1900", CACHE))), range(7), memory_mb=0)


@functools.cache
def shape(name: str) -> Shape:
    """The shape of that name; made alike in every process."""
    encoder = expert().encoder
    info = EncoderInfo("maia-1900", expert().digest, encoder.n_states, encoder.width)
    if name == "mini":
        states, batches = (1, 2, 4, 6), (64, 128)
        tokenizer = train_tokenizer(_texts(), 768)
        model = build_queen(DecoderSettings(), BridgeSettings(states=states), tokenizer, info, 0)
    else:
        states, batches = tuple(i % 7 for i in range(15)), (16, 32)
        model, tokenizer = bridged(states, BridgeSettings().gate_init, info, CACHE)
    with torch.no_grad():
        for block in model.blocks:
            block.attention_gate.fill_(GATE)
            block.ffn_gate.fill_(GATE)
    reader = Expert(encoder, states, memory_mb=0)
    return Shape(model.eval(), tokenizer, reader, batches)


def _positions(count: int) -> Iterator[tuple[Position, tuple[str, ...]]]:
    for game in read_games(GAMES, on_reject=lambda reject: None):
        for ply in range(8, len(game.moves) - 4, 23):
            yield game.position(ply), game.moves[ply : ply + 4]
            count -= 1
            if not count:
                return


def _texts() -> list[str]:
    """Questions and answers for a tokenizer."""
    kinds, rng = [kind.name for kind in BANK], random.Random(0)
    asked = [ask(p, line, rng.choice(kinds), rng) for p, line in _positions(600)]
    return [text for each in asked if each for text in (each.prompt, each.answer)]


def requests(count: int) -> list[Request]:
    """Requests whose number says how long their text is."""
    return [
        Request(str(index), position, explain_prompt(position), "best ")
        for index, (position, _) in enumerate(_positions(count))
    ]


def length(request: Request) -> int:
    return LENGTHS[int(request.id) % len(LENGTHS)]


# -- ours ---------------------------------------------------------------------------------------


class Forced(Generator):
    """A generator whose texts end at their given lengths and nowhere else."""

    def _job(self, index: int, request: Request, sampling: Sampling) -> Job:
        job = super()._job(index, request, sampling)
        job.room = length(request)
        return job

    def _batch(self, jobs: Sequence[Job]) -> Batch:
        made = super()._batch(jobs)
        made.end = -1
        return made


@functools.cache
def ours(name: str, batch: int, dtype: torch.dtype, fused: bool = True) -> Forced:
    part = shape(name)
    return Forced(part.model, part.tokenizer, part.expert, batch, dtype, fused)


def make(name: str, batch: int, dtype: torch.dtype, number: int) -> Forced:
    """For a process of the pool."""
    torch.set_num_threads(1)
    return ours(name, batch, dtype)


@contextmanager
def without_shrinking() -> Iterator[None]:
    kept, batching.SHRINK = batching.SHRINK, 0.0
    try:
        yield
    finally:
        batching.SHRINK = kept


def in_turn(made: Forced, asked: Sequence[Request]) -> None:
    """One batch after the other: no vacant slot is filled before all are."""
    for start in range(0, len(asked), made.batch_size):
        made.generate(asked[start : start + made.batch_size], Sampling())


# -- the peer -----------------------------------------------------------------------------------


class Lengths(StoppingCriteria):  # type: ignore[misc]
    """Ends each row at its length."""

    def __init__(self, ends: Tensor) -> None:
        self.ends = ends

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        return input_ids.shape[1] >= self.ends


@functools.cache
def peers_model(name: str, dtype: torch.dtype) -> QueenModel:
    model = shape(name).model
    return model if dtype == torch.float32 else copy.deepcopy(model).to(dtype)


@torch.inference_mode()
def peer(name: str, batch: int, dtype: torch.dtype, asked: Sequence[Request]) -> int:
    """Write with `generate`; returns the number of tokens asked for."""
    part, model = shape(name), peers_model(name, dtype)
    for start in range(0, len(asked), batch):
        some = asked[start : start + batch]
        texts = [ours(name, batch, dtype)._prompt(one) for one in some]
        longest = max(map(len, texts))
        ids = torch.tensor([[0] * (longest - len(t)) + t for t in texts])
        mask = torch.tensor([[0] * (longest - len(t)) + [1] * len(t) for t in texts])
        context = model.context(part.expert.states([one.position for one in some]))
        ends = torch.tensor([longest + length(one) for one in some])
        with _Reading(model._ports, context, None):
            model.decoder.generate(
                ids, attention_mask=mask, do_sample=False, use_cache=True, eos_token_id=None,
                pad_token_id=0, max_new_tokens=int(ends.max()) - longest,
                stopping_criteria=[Lengths(ends)],
            )  # fmt: skip
    return sum(map(length, asked))


def _peers_share(task: tuple[str, int, torch.dtype, int, int, int]) -> None:
    """One process's texts."""
    name, batch, dtype, texts, number, count = task
    torch.set_num_threads(1)
    peer(name, batch, dtype, requests(texts)[number::count])


# -- measuring ----------------------------------------------------------------------------------


Row = tuple[str, Callable[[], object]]
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def best_rates(
    rows: Sequence[Row], texts: int, repeat: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Texts a second of each row at its best, rows taken by turns."""
    best: dict[str, float] = {}
    for _ in range(repeat):
        for name, work in rows:
            start = clock()
            work()
            rate = texts / (clock() - start)
            print(f"{name}: {rate:.2f}", flush=True)
            best[name] = max(best.get(name, 0.0), rate)
    return best


def one_process(
    name: str,
    asked: Sequence[Request],
    repeat: int,
    types: Sequence[torch.dtype],
    batches: Sequence[int],
) -> dict[str, float]:
    """Both sides at every batch and number type."""
    torch.set_num_threads(1)
    tried: list[Row] = []
    for dtype in types:
        for batch in batches:
            words = f"{next(k for k, v in TYPES.items() if v == dtype)} {batch}"
            tried.append((f"generate {words}", functools.partial(peer, name, batch, dtype, asked)))
            writer = ours(name, batch, dtype)
            writer.generate(asked[:4], Sampling())
            tried.append((f"ours {words}", functools.partial(writer.generate, asked, Sampling())))
    return best_rates(tried, len(asked), repeat, time.process_time)


def best_of(rates: dict[str, float], side: str) -> tuple[int, torch.dtype]:
    """Batch and number type of a side's best row."""
    row = max((row for row in rates if row.startswith(side)), key=rates.__getitem__)
    _, number_type, batch = row.split()
    return int(batch), TYPES[number_type]


def what_each_gave(
    name: str, asked: Sequence[Request], repeat: int, batch: int, dtype: torch.dtype
) -> dict[str, float]:
    """Our own loop without its ideas, and with them one after the other."""
    torch.set_num_threads(1)
    ordered = sorted(asked, key=length)
    writer = ours(name, batch, dtype)

    def plain(which: Sequence[Request], made: Forced) -> None:
        with without_shrinking():
            in_turn(made, which)

    rows: list[Row] = [
        ("the model's own forward", lambda: plain(asked, ours(name, batch, dtype, False))),
        ("few calls a token", lambda: plain(asked, writer)),
        ("and sorted by length (not known beforehand)", lambda: plain(ordered, writer)),
        ("and shrinking", lambda: in_turn(writer, asked)),
        ("and refilling", lambda: writer.generate(asked, Sampling())),
        ("generate, sorted by length", lambda: peer(name, batch, dtype, ordered)),
    ]
    return best_rates(rows, len(asked), repeat, time.process_time)


def several_processes(
    name: str, asked: Sequence[Request], repeat: int, mine: Any, theirs: Any, count: int
) -> dict[str, float]:
    """Texts a second of time, each side in `count` processes of one thread."""
    texts = len(asked)
    tasks = [(name, *theirs, texts, number, count) for number in range(count)]
    warm = [(name, *theirs, count, number, count) for number in range(count)]
    made = functools.partial(make, name, *mine)
    context = multiprocessing.get_context("spawn")
    with GeneratorPool(made, count, mine[0]) as pool, context.Pool(count) as peers:
        pool.move_logprobs(asked[: count * mine[0]])
        peers.map(_peers_share, warm, chunksize=1)
        rows: list[Row] = [
            (f"generate, {count} processes", lambda: peers.map(_peers_share, tasks, chunksize=1)),
            (f"ours, {count} processes", lambda: pool.generate(asked, Sampling())),
        ]
        return best_rates(rows, texts, repeat, time.perf_counter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", action="append", choices=["mini", "smollm2"])
    parser.add_argument("--texts", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--types", nargs="+", choices=list(TYPES), default=list(TYPES))
    parser.add_argument("--batches", type=int, nargs="+", help="instead of the shape's own")
    parser.add_argument("--each", type=int, default=64, help="batch for what each gave; 0: not")
    options = parser.parse_args()
    found: dict[str, Any] = {"cpu": platform.processor(), "texts": options.texts}
    for name in options.shape or ["mini", "smollm2"]:
        asked = requests(options.texts)
        types = [TYPES[key] for key in options.types]
        batches = options.batches or shape(name).batches
        rates = one_process(name, asked, options.repeat, types, batches)
        mine, theirs = best_of(rates, "ours"), best_of(rates, "generate")
        found[name] = {"rates": rates}
        found[name]["ratio"] = max(v for k, v in rates.items() if k.startswith("ours")) / max(
            v for k, v in rates.items() if k.startswith("generate")
        )
        if options.each:
            found[name]["each"] = what_each_gave(name, asked, options.repeat, options.each, mine[1])
        if options.processes:
            found[name]["processes"] = several_processes(
                name, asked, options.repeat, mine, theirs, options.processes
            )
        print(json.dumps({name: found[name]}, indent=2), flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
