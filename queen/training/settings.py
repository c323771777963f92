"""The knobs of a training run, and the learning rate of each step."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from queen.errors import QueenError

SCHEDULES = ("cosine", "linear", "constant")
PRECISIONS = ("bf16", "fp32", "bf16_weights")
BACKENDS = ("torch", "deepspeed")
OPTIMIZERS = ("adamw", "muon")

_NO_EFFECT_ON_WEIGHTS = (
    "threads",
    "backend",
    "zero",
    "packing",
    "gradient_checkpointing",
    "peak_tflops",
    "checkpoint_every_s",
    "checkpoint_every",
    "log_every",
)


class SettingsError(QueenError):
    """A training setting out of its range."""


@dataclass(frozen=True)
class TrainSettings:
    """How a network is trained. Defaults are those found for the small from-scratch decoder.

    Attributes:
        steps: optimizer steps of the whole run.
        batch_size: examples of a step.
        micro_batch: examples of one forward pass; 0 takes the batch whole. Gradients of a
            step's micro-batches are summed, so this changes memory and rounding only.
        optimizer: adamw, or muon for the matrices and AdamW for the rest (torch backend only).
        lr: peak learning rate.
        muon_lr_factor: factor on it for the matrices that Muon takes.
        gate_lr_factor: factor on it for gates: from 0 they hardly open in a short run
            otherwise (METHOD section 1, ours).
        warmup_steps: linear rise from 0.
        weight_decay: decoupled, on matrices only.
        betas: AdamW's.
        clip: largest gradient norm; 0 for none.
        schedule: what follows the warm-up: cosine, linear (both down to `min_lr_share` of
            the peak) or constant.
        precision: bf16 (autocast, weights and optimizer in float32), fp32, or bf16_weights
            (DeepSpeed's: weights in bf16, the optimizer's own in float32; half the memory).
        megabatch: steps whose examples are sorted by length together (see `sampling`).
        checkpoint_every_s: seconds between checkpoints; 0 for none by time.
        checkpoint_every: steps between checkpoints; 0 for none by steps.
        log_every: steps between figures.
        seed: of the data order and of torch's generator.
        threads: torch's threads; the last bit of a result can depend on it.
        backend: torch, or deepspeed.
        zero: ZeRO stage of DeepSpeed: 0 divides nothing among the ranks, 1 the optimizer's
            state, 2 gradients too, 3 weights too.
        packing: sequences end to end in place of padded ones; the same loss up to rounding.
        gradient_checkpointing: compute layers anew in the backward pass: less memory, a third
            more work.
        peak_tflops: what a rank's device can do at most, in TFLOP/s, for the share of it that
            is used (MFU); 0 takes a known GPU's own and says nothing of others.
    """

    steps: int
    batch_size: int = 96
    micro_batch: int = 32
    optimizer: str = "adamw"
    lr: float = 2e-3
    muon_lr_factor: float = 1.0
    gate_lr_factor: float = 10.0
    warmup_steps: int = 50
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    schedule: str = "cosine"
    min_lr_share: float = 0.0
    precision: str = "bf16"
    megabatch: int = 1
    checkpoint_every_s: float = 60.0
    checkpoint_every: int = 0
    log_every: int = 20
    seed: int = 0
    threads: int = 2
    backend: str = "torch"
    zero: int = 0
    packing: bool = False
    gradient_checkpointing: bool = False
    peak_tflops: float = 0.0

    def __post_init__(self) -> None:
        for name, kinds in (
            ("schedule", SCHEDULES), ("precision", PRECISIONS), ("backend", BACKENDS),
            ("optimizer", OPTIMIZERS),
        ):  # fmt: skip
            if getattr(self, name) not in kinds:
                raise _out_of_range(name, getattr(self, name), f"one of {', '.join(kinds)}")
        for name in ("steps", "batch_size", "megabatch", "log_every", "threads"):
            if getattr(self, name) < 1:
                raise _out_of_range(name, getattr(self, name), "at least 1")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not (value >= 0 and math.isfinite(value)):
                raise _out_of_range(field.name, value, "finite and not negative")
        if self.zero > 3:
            raise _out_of_range("zero", self.zero, "0, 1, 2 or 3")
        if not (len(self.betas) == 2 and all(0 <= beta < 1 for beta in self.betas)):
            raise _out_of_range("betas", self.betas, "two numbers in [0, 1)")

    def lr_share(self, step: int) -> float:
        """Share of the peak rate at a step (from 0)."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        falling = {
            "cosine": (1 + math.cos(math.pi * min(1.0, done))) / 2,
            "linear": 1 - min(1.0, done),
            "constant": 1.0,
        }[self.schedule]
        return self.min_lr_share + (1 - self.min_lr_share) * falling

    def fingerprint(self) -> dict[str, Any]:
        """The settings that decide the trained weights, as JSON values."""
        kept = {k: v for k, v in asdict(self).items() if k not in _NO_EFFECT_ON_WEIGHTS}
        return dict(json.loads(json.dumps(kept)))


def _out_of_range(name: str, value: object, allowed: str) -> SettingsError:
    return SettingsError(
        f"{value!r} is out of range", where=f"training.{name}", remedy=f"give {allowed}"
    )
