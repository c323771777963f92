"""`small` on the device that is here: training for a while, then generation.

    python benchmarks/small.py PROJECT [--minutes 3] [--batch 64] [--micro 32] [--train-all]
                               [--peak-tflops 0] [--texts 64]

SmolLM2-135M-Instruct with the bridges of the `small` profile over maia-1900, its decoder frozen
unless `--train-all`, learns the seeds and the curriculum of PROJECT, a folder in which `queen run`
has been in any profile; then it explains positions of its evaluation set. Told are tokens a
second, model FLOPs' share of the device's peak (MFU; a known GPU's own peak, else `--peak-tflops`,
else none), memory, and tokens written a second, moves held to legal ones and free. The device is
the first GPU, or the CPU with `--threads`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from smollm2 import STATES, bridged

from queen.generation.loading import Loading, load_speaker
from queen.generation.requests import Sampling
from queen.generation.speaker import Asked
from queen.language.questions.bank import stages
from queen.networks.build import EncoderInfo
from queen.networks.expert import Expert
from queen.networks.lc0.load import load_encoder
from queen.networks.queen import QueenModel, freeze
from queen.training.settings import TrainSettings
from queen.training.sft import fine_tune
from queen.training.world import own_device
from stages.positions import position_of
from stages.questions import conversations
from stages.training import explanation_examples, parts, question_examples

CACHE = Path(tempfile.gettempdir()) / "queen-benchmarks"


class EnoughError(Exception):
    """The time for training is over."""


def assembled(encoder: Path) -> tuple[QueenModel, Any, Expert]:
    """The model of the `small` profile, its tokenizer and its expert."""
    expert = Expert(load_encoder(encoder), STATES, memory_mb=256)
    info = EncoderInfo("maia-1900", expert.digest, expert.encoder.n_states, expert.encoder.width)
    model, tokenizer = bridged(STATES, 0.0, info, CACHE)
    return model, tokenizer, expert


def trained(model: QueenModel, tokenizer: Any, expert: Expert, options: Any) -> dict[str, Any]:
    """What training told of each ten steps, as medians, the first of them left out."""
    project = options.project
    seeds = pq.read_table(project / "data/seeds/rows.parquet").to_pylist()
    asked = conversations(project / "data/questions/rows.parquet", "train", stages())
    named = {
        "seeds": (explanation_examples(row for row in seeds if not row["dropped"]), 0.7),
        "curriculum": (question_examples(asked), 0.3),
    }
    mixture = parts(tokenizer, 1024, named)
    settings = TrainSettings(
        steps=1_000_000, batch_size=options.batch, micro_batch=options.micro, lr=5e-4,
        gate_lr_factor=10.0, precision="bf16", packing=True, threads=options.threads,
        log_every=options.log_every, peak_tflops=options.peak_tflops, checkpoint_every_s=1e9,
    )  # fmt: skip
    told: list[dict[str, float]] = []
    begun = time.monotonic()

    def stop_in_time(done: int, total: int, note: str = "") -> None:
        if told and time.monotonic() - begun > 60 * options.minutes:
            raise EnoughError

    with tempfile.TemporaryDirectory() as work, contextlib.suppress(EnoughError):
        fine_tune(
            model, expert, mixture, settings, work=Path(work) / "run",
            sink=lambda step, figures: told.append({"step": step, **figures}),
            progress=stop_in_time,
        )  # fmt: skip
    steady = told[1:] or told
    kinds = [name for name in steady[0] if not name.startswith("gate/")]
    return {
        "steps": told[-1]["step"],
        **{name: round(statistics.median(row[name] for row in steady), 4) for name in kinds[1:]},
        "loss, first and last": [round(told[0]["loss"], 3), round(told[-1]["loss"], 3)],
    }


def written(model: QueenModel, tokenizer: Any, options: Any) -> dict[str, Any]:
    """Tokens written a second, held to legal moves and free."""
    rows = pq.read_table(options.project / "data/evalset/rows.parquet").slice(0, options.texts)
    asked = [
        Asked(row["pid"], position_of(row), None, number)
        for number, row in enumerate(rows.to_pylist())
    ]
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        loading = Loading(
            Path(folder), options.project / "models/encoder/expert", options.texts,
            threads=options.threads,
        )  # fmt: skip
        speaker = load_speaker(loading)
        speaker.explain(asked[:2], Sampling(max_new_tokens=8), "moves")  # warm
        for legal in ("moves", "none"):
            begun = time.monotonic()
            said = list(speaker.explain(asked, Sampling(max_new_tokens=options.longest), legal))
            spent = time.monotonic() - begun
            tokens = sum(len(tokenizer(each.text)["input_ids"]) for each in said)
            found[f"legal: {legal}"] = {"texts": len(said), "tokens/s": round(tokens / spent, 1)}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("project", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--micro", type=int, default=32)
    parser.add_argument("--train-all", action="store_true", help="the decoder too")
    parser.add_argument("--peak-tflops", type=float, default=0.0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--longest", type=int, default=256, help="tokens of a text at most")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    model, tokenizer, expert = assembled(options.project / "models/encoder/expert")
    if not options.train_all:
        freeze(model, ("decoder",))
    report = {
        "device": str(own_device()),
        "torch": torch.__version__,
        "parameters": sum(each.numel() for each in model.parameters()),
        "trained": sum(each.numel() for each in model.parameters() if each.requires_grad),
        "training": trained(model, tokenizer, expert, options),
        "generation": written(model, tokenizer, options),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
