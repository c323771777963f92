"""How fast a run is and what it takes: tokens a second, share of the peak, memory.

What a run counts is tokens unless its task says otherwise (`unit`).
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any, Protocol, runtime_checkable

import torch

from queen.training.settings import TrainSettings
from queen.training.world import World

MIB = 2**20


@runtime_checkable
class Measured(Protocol):
    """A task that knows what a batch costs."""

    def flops(self, model: Any, batch: Any) -> float:
        """Floating-point operations of a step on it, padding not counted."""


def unit_of(task: Any) -> str:
    """What a task's batches count: tokens, or what it names."""
    return str(getattr(task, "unit", "tokens"))


class Meter:
    """Counts what steps did since it was last read."""

    def __init__(self, settings: TrainSettings, world: World, unit: str = "tokens") -> None:
        self.world, self.unit = world, unit
        self.peak = (settings.peak_tflops * 1e12 or _known_peak(world.device)) * world.size
        self.tokens, self.operations, self.since = 0, 0.0, time.monotonic()
        self.used = 0.0

    def count(self, task: Any, model: Any, batch: Any) -> None:
        """A step on this batch (of all ranks) is done."""
        self.tokens += batch.tokens
        if self.peak and isinstance(task, Measured):
            self.operations += task.flops(model, batch)

    def read(self) -> dict[str, float]:
        """Figures since the last reading; every rank must ask."""
        now = time.monotonic()
        seconds = max(1e-9, now - self.since)
        memory = max(own for (own,) in self.world.gather([_memory_mb(self.world.device)]))
        figures = {f"{self.unit}_per_s": self.tokens / seconds, "memory_mb": memory}
        if self.operations:
            self.used = self.operations / seconds / self.peak
            figures["mfu"] = self.used
        self.tokens, self.operations, self.since = 0, 0.0, now
        return figures

    def note(self) -> str:
        """The share of the peak and the memory, for a progress line."""
        share = f", MFU {self.used:.1%}" if self.used else ""
        return f"{share}, {_memory_mb(self.world.device):,.0f} MiB"


def _memory_mb(device: torch.device) -> float:
    """Most memory this rank took so far, in MiB: of its GPU, or of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / MIB
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB


def _known_peak(device: torch.device) -> float:
    """Peak operations a second in bf16 of a GPU we know, else 0. Makers' data sheets, dense."""
    if device.type != "cuda":
        return 0.0
    name = torch.cuda.get_device_name(device)
    return next((peak * 1e12 for known, peak in _PEAKS if known in name), 0.0)


_PEAKS = (
    ("B200", 2250.0), ("H200", 989.0), ("H100 PCIe", 756.0), ("H100", 989.0), ("A100", 312.0),
    ("L40S", 362.0), ("L4", 121.0), ("A10", 125.0), ("RTX 4090", 165.0), ("RTX 3090", 71.0),
)  # fmt: skip
