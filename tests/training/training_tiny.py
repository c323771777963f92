"""A small real task: learn next tokens of a fixed random Markov chain.

As a script, `python training_tiny.py WORK STEPS`, it trains and prints each finished step, to be
killed from outside.
"""

from __future__ import annotations

import hashlib
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.freezing import MATRICES
from queen.training.backend import plain_groups
from queen.training.loop import TrainSettings, train
from queen.training.optimizers import Group

WIDTH, SYMBOLS = 24, 11


class TinyNet(nn.Module):
    """Predicts the next symbol; dropout makes it depend on torch's generator."""

    def __init__(self, width: int = WIDTH, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.table = nn.Embedding(SYMBOLS, width)
        nn.init.normal_(self.table.weight, std=0.1)
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.inner = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, SYMBOLS, bias=False)
        self.head.weight = self.table.weight  # tied, as in language models

    def forward(self, symbols: Tensor) -> Tensor:
        hidden = self.table(symbols)
        return self.head(self.norm(hidden + self.inner(self.frozen(hidden))))


@dataclass(frozen=True)
class Pairs:
    """Symbols and the ones after them, [n] each."""

    now: Tensor
    after: Tensor

    @property
    def weight(self) -> float:
        return float(len(self.now))

    @property
    def tokens(self) -> int:
        return len(self.now)

    def split(self, size: int) -> list[Pairs]:
        return [Pairs(*p) for p in zip(self.now.split(size), self.after.split(size), strict=True)]

    def share(self, rank: int, ranks: int) -> Pairs:
        return Pairs(self.now[rank::ranks], self.after[rank::ranks])

    def tensors(self) -> dict[str, Tensor]:
        return {"now": self.now, "after": self.after}


class Chain:
    """The task. `poison` names a step whose loss is not finite."""

    def __init__(self, batch: int = 32, poison: int | None = None, name: str = "chain") -> None:
        self.size, self.poison, self.fingerprint = batch, poison, name
        self.rows = np.random.default_rng(5).dirichlet(np.full(SYMBOLS, 0.1), SYMBOLS)
        self.step = 0

    def groups(self, model: nn.Module, settings: TrainSettings) -> list[Group]:
        matrices, vectors = plain_groups(model, settings)
        return [{**matrices, "name": MATRICES}, vectors]

    def batch(self, step: int) -> Pairs:
        self.step = step
        rng = np.random.default_rng([9, step])
        now = rng.integers(0, SYMBOLS, self.size)
        reached = self.rows.cumsum(1)[now] < rng.random((self.size, 1))
        return Pairs(torch.from_numpy(now), torch.from_numpy(reached[:, :-1].sum(1)))

    def loss(self, model: nn.Module, batch: Pairs) -> Tensor:
        loss = F.cross_entropy(model(batch.now).float(), batch.after, reduction="sum")
        return loss * float("nan") if self.step == self.poison else loss

    def figures(self, model: TinyNet) -> dict[str, float]:
        return {"table_norm": float(model.table.weight.detach().norm())}


def tiny_settings(steps: int, **changes: object) -> TrainSettings:
    plain = {"lr": 1e-2, "batch_size": 32, "warmup_steps": 5, "threads": 1, "precision": "fp32"}
    kept = {"checkpoint_every_s": 0.0, "checkpoint_every": 10, "log_every": 10}
    return TrainSettings(steps=steps, **{**plain, **kept, **changes})  # type: ignore[arg-type]


def digest(model: nn.Module) -> str:
    state = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        state.update(name.encode() + tensor.numpy().tobytes())
    return state.hexdigest()


def main(work: str, steps: str) -> None:
    def say(done: int, total: int, note: str = "") -> None:
        print(done, flush=True)
        time.sleep(0.003)

    train(TinyNet(), Chain(), tiny_settings(int(steps)), work=Path(work), progress=say)


if __name__ == "__main__":
    main(*sys.argv[1:])
