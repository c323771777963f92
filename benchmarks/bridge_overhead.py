"""What the bridges cost a generated token, against their share of the arithmetic.

    python benchmarks/bridge_overhead.py [--models smollm2-135m mini] [--batches 16 64] [--steps 24]

The decode step of the project (`FusedStepper`, bf16 weights, one thread) with the bridges and
without, step by step in turn so that whatever else the machine does meets both alike; processor
time, and the median over pairs of steps of what the one costs over the other. `share` is what the
bridges' operations are of the decoder's, by count; `overhead` what they cost in time; `ratio` the
one over the other, at most 1.3 wanted on SmolLM2-135M. Then what the bridges take by themselves,
their feed-forward halves, and their attention (keys and values are read anew for each text and
cannot be shared as weights are). SmolLM2-135M is fetched once; states are random, for what they
hold costs nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from smollm2 import NAME, STATES, bridged
from torch import Tensor

from queen.generation.fused import FusedStepper
from queen.language.tokenizer import train_tokenizer
from queen.networks.bridge import Context
from queen.networks.build import EncoderInfo, build_queen
from queen.networks.counts import Counts, count
from queen.networks.queen import QueenModel
from queen.networks.settings import BridgeSettings, DecoderSettings
from queen.training.budget import SQUARES

ROOT = Path(__file__).parents[1]
MAIA = EncoderInfo("maia", "", states=7, width=64)


def build(name: str, cache: Path) -> QueenModel:
    """A QUEEN whose gates are open."""
    if name == "mini":
        bridge = replace(BridgeSettings(), gate_init=0.5)
        texts = [path.read_text() for path in (ROOT / "README.md", ROOT / "docs" / "results.md")]
        return build_queen(DecoderSettings(), bridge, train_tokenizer(texts, 768), MAIA, 0).eval()
    model, _ = bridged(STATES, 0.5, MAIA, cache)
    return model.eval()


def share(counts: Counts, length: float) -> float:
    """Operations of the bridges over those of the decoder, for one token."""
    bridge = counts.bridge + counts.state_mlp - counts.readers
    cross = 2 * counts.bridges * counts.bridge_width * SQUARES
    decoder = counts.each_token - bridge
    attention = 2 * counts.layers * counts.heads_width * length
    return (bridge + cross) / (decoder + attention)


class Side:
    """A stepper with `batch` texts of `prompt` tokens begun."""

    def __init__(
        self, model: QueenModel, bridged: bool, batch: int, prompt: int, steps: int
    ) -> None:
        self.stepper = FusedStepper(model, torch.bfloat16, bridged=bridged)
        generator = torch.Generator().manual_seed(0)
        self.lengths = torch.full((batch,), prompt)
        self.tokens = torch.randint(5, 700, (batch,), generator=generator)
        context = _context(model, batch) if bridged else None
        ids = torch.randint(5, 700, (1, prompt), generator=generator)
        self.stepper.open(batch, prompt + steps + 1, context)
        for slot in range(batch):  # a prompt of one token each, and the rest by copying one text's
            own = None if context is None else [_row(part, slot) for part in context]
            first = ids if slot == 0 else ids[:, :1]
            self.stepper.prefill(torch.tensor([slot]), first, torch.tensor([first.shape[1]]), own)
        for buffer in self.stepper.cache:
            buffer[:, 1:] = buffer[:, :1]
        self.stepper.bias[1:] = self.stepper.bias[:1]
        self.seconds: list[float] = []

    def step(self) -> None:
        began = time.process_time()
        self.stepper.step(self.tokens, self.lengths, int(self.lengths[0]))
        self.seconds.append(time.process_time() - began)
        self.lengths = self.lengths + 1


def _row(context: Context, row: int) -> Context:
    return Context(context.keys[row : row + 1], context.values[row : row + 1])


def _context(model: QueenModel, batch: int) -> list[Context]:
    generator = torch.Generator().manual_seed(1)
    states: list[Tensor] = [
        torch.randn(batch, SQUARES, MAIA.width, generator=generator) for _ in model.blocks
    ]
    return model.context(states)


@torch.inference_mode()
def measure(model: QueenModel, batch: int, prompt: int, steps: int) -> dict[str, float]:
    """Median seconds of a step, alone and bridged, and what they come to."""
    sides = [Side(model, bridged, batch, prompt, steps) for bridged in (False, True)]
    for _ in range(steps):
        for side in sides:
            side.step()
    alone, bridged = (statistics.median(side.seconds[2:]) for side in sides)
    pairs = zip(*(side.seconds[2:] for side in sides), strict=True)
    overhead = statistics.median(second / first for first, second in pairs) - 1
    wanted = share(_counts(model), prompt + steps / 2)
    return {
        "alone_ms": 1000 * alone,
        "bridged_ms": 1000 * bridged,
        "tokens_per_s": batch / bridged,
        "share": wanted,
        "overhead": overhead,
        "ratio": overhead / wanted,
    }


def _counts(model: QueenModel) -> Counts:
    config = model.config
    bridge = BridgeSettings(
        states=config.bridge_states, layers=config.bridge_layers, width=config.bridge_width,
        heads=config.bridge_heads, tied_keys=config.tied_keys, state_mlp=config.state_mlp,
    )  # fmt: skip
    return count(config.decoder(), config.decoder().vocab_size, bridge, MAIA, {})


@torch.inference_mode()
def parts(model: QueenModel, batch: int, prompt: int, repeats: int = 16) -> dict[str, float]:
    """Milliseconds that all bridges take of a step: whole, and their feed-forward halves alone."""
    stepper = Side(model, True, batch, prompt, 1).stepper
    hidden = torch.randn(batch, model.config.shape().hidden)
    bridges = [layer.bridge for layer in stepper.layers if layer.bridge is not None]

    def whole() -> None:
        for bridge, held in zip(bridges, stepper.crosses, strict=True):
            stepper._cross_step(bridge, hidden, *held)

    def feed() -> None:
        for bridge in bridges:
            stepper._cross_feed(bridge, hidden)

    def attention() -> None:
        for keys, values in stepper.crosses:
            query = torch.zeros(keys.shape[0] * keys.shape[1], 1, keys.shape[2])
            scores = torch.bmm(query, keys.flatten(0, 1))
            torch.bmm(torch.softmax(scores, -1), values.flatten(0, 1))

    return {
        "bridges_ms": 1000 * _median(whole, repeats),
        "their_ffn_ms": 1000 * _median(feed, repeats),
        "their_attention_ms": 1000 * _median(attention, repeats),
    }


def _median(work: Callable[[], None], repeats: int) -> float:
    """Median processor seconds of a piece of work."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=[NAME, "mini"], choices=[NAME, "mini"])
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 64])
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "queen-cache")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    told: dict[str, Any] = {"machine": platform.processor() or platform.machine()}
    for name in options.models:
        model = build(name, options.cache)
        for batch in options.batches:
            row = measure(model, batch, options.prompt, options.steps)
            row |= parts(model, batch, options.prompt)
            told[f"{name}, batch {batch}"] = row
            print(
                f"{name:14} batch {batch:3}  " + "  ".join(f"{k} {v:.3g}" for k, v in row.items())
            )
    if options.json:
        print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
