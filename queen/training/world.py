"""The processes that train together: one, or several ranks that torch.distributed joins.

Whoever starts them (our own launcher, torchrun, the deepspeed launcher) says so in the
environment: RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor
from torch import distributed as dist

BUCKET = 1 << 24  # numbers of one all-reduce, so that its buffer stays at 64 MiB
PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class World:
    """Who this process is among those that train together.

    Attributes:
        rank: 0 is the one that writes and tells.
        size: how many there are.
        device: where this process computes.
    """

    rank: int
    size: int
    device: torch.device

    @classmethod
    def here(cls) -> World:
        """This process's place: of the ranks that are joined, or alone."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size(), own_device())
        return cls(0, 1, own_device())

    @property
    def first(self) -> bool:
        return self.rank == 0

    def gather(self, values: Sequence[float]) -> list[list[float]]:
        """Every rank's values, rank by rank."""
        if self.size == 1:
            return [list(values)]
        own = torch.tensor(values, dtype=torch.float64, device=self.device)
        every = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(every, own)
        return [each.tolist() for each in every]

    def agree(self, value: int) -> int:
        """Rank 0's value, for all."""
        if self.size == 1:
            return value
        told = torch.tensor([value], device=self.device)
        dist.broadcast(told, 0)
        return int(told)

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Put the ranks' sums into float32 tensors of equal shapes, in place.

        A few large messages: the order of additions, so the result, depends on sizes alone.
        """
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([each.flatten() for each in bucket])
            dist.all_reduce(flat)
            _lay_out(flat, bucket)

    def hand_round(self, tensors: Sequence[Tensor], owners: Sequence[int]) -> None:
        """Put what the owner of each float32 tensor holds into every rank's, in place.

        Args:
            owners: the rank whose values count, for each tensor.
        """
        if self.size == 1:
            return
        for rank in range(self.size):
            own = [each for each, owner in zip(tensors, owners, strict=True) if owner == rank]
            for bucket in _buckets(own):
                flat = torch.cat([each.flatten() for each in bucket])
                dist.broadcast(flat, rank)
                if rank != self.rank:
                    _lay_out(flat, bucket)

    def gather_bytes(self, own: Tensor) -> list[Tensor]:
        """Every rank's tensor of equal shape, rank by rank, on the CPU."""
        if self.size == 1:
            return [own.cpu()]
        here = own.to(self.device)
        every = [torch.empty_like(here) for _ in range(self.size)]
        dist.all_gather(every, here)
        return [each.cpu() for each in every]

    def same_machine(self) -> bool:
        """Whether all ranks stand on one machine, by the id that its kernel took at its start."""
        if self.size == 1:
            return True
        try:
            started = Path("/proc/sys/kernel/random/boot_id").read_text() + socket.gethostname()
        except OSError:
            started = secrets.token_hex()
        own = torch.tensor(list(hashlib.sha256(started.encode()).digest()), dtype=torch.uint8)
        return len({bytes(each.tolist()) for each in self.gather_bytes(own)}) == 1

    def wait(self) -> None:
        """Until every rank is here."""
        if self.size > 1:
            dist.barrier()


def own_device() -> torch.device:
    """This process's GPU by its local rank, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


def launched() -> bool:
    """Whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def joined() -> Iterator[World]:
    """Join the ranks that a launcher started, and leave them at the end; alone without one."""
    if not launched():
        yield World.here()
        return
    device = own_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    kind = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(kind, timeout=PATIENCE)
    try:
        yield World.here()
    finally:
        dist.destroy_process_group()


def _lay_out(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copy a flat run of numbers into the tensors it was joined from."""
    parts = torch.split(flat, [each.numel() for each in tensors])
    for each, part in zip(tensors, parts, strict=True):
        each.copy_(part.view_as(each))


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Runs of tensors of at most BUCKET numbers; a larger one stands alone."""
    bucket: list[Tensor] = []
    for each in tensors:
        if bucket and sum(held.numel() for held in bucket) + each.numel() > BUCKET:
            yield bucket
            bucket = []
        bucket.append(each)
    if bucket:
        yield bucket
