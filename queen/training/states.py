"""The expert's states of a training set's positions: the same bits whatever came before.

An encoder's answer can differ in the last bit with the size of the batch it is asked in (seen
below 16 positions on a CPU), so a memory filled in the order of questions would make a resumed
run differ from an uninterrupted one. Here a position's state is either computed with all others,
in a fixed order, or with those of its own batch.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from queen.games.chess.position import Position
from queen.networks.expert import Expert
from queen.training.world import World

MIB = 2**20


class PositionStates:
    """States of a fixed list of positions.

    Args:
        expert: whose encoder is asked; its own memory is not used.
        positions: the list.
        visits: how many states will be asked for in all; a table pays where each is asked for
            more than once.
        table_mb: most MiB for a table of all of them.
        block: positions of one call while the table is filled.

    Attributes:
        tabled: whether there is a table.
    """

    def __init__(
        self,
        expert: Expert,
        positions: Sequence[Position],
        visits: int,
        table_mb: int,
        block: int = 256,
    ) -> None:
        self.expert = Expert(expert.encoder, expert.wanted, memory_mb=0, batch_size=block)
        self.positions = positions
        described = repr((self.expert.digest, self.expert.wanted))
        self.fingerprint = hashlib.sha256(described.encode()).hexdigest()
        size = len(positions) * len(expert.wanted) * 64 * expert.width * 2
        self.tabled = visits > len(positions) and size <= table_mb * MIB
        self.block = block

    @cached_property
    def table(self) -> Tensor:
        """[states, positions, 64, C + 1] float16; filled when first asked for."""
        table = torch.empty(self._shape, dtype=torch.float16)
        self._fill(table, range(0, len(self.positions), self.block))
        return table

    def share(self, world: World, file: Path) -> None:
        """Fill one table for all ranks, which stand on one machine; each computes its part.

        The file has no name any more once all have opened it: it goes when they end, however.
        Where the disk has no room for it, each rank keeps a table of its own.

        Args:
            file: where it may be made.
        """
        if not self.tabled:
            return
        if not world.agree(_reserved(file, self._shape) if world.first else 0):
            return
        table = torch.from_numpy(np.lib.format.open_memmap(file, "r+"))
        world.wait()
        if world.first:
            file.unlink()
        starts = range(0, len(self.positions), self.block)
        self._fill(table, starts[world.rank :: world.size])
        world.wait()
        self.table = table

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        return len(self.expert.wanted), len(self.positions), 64, self.expert.width

    def _fill(self, table: Tensor, starts: range) -> None:
        for start in starts:
            part = self.expert.states(self.positions[start : start + self.block])
            for slot, states in enumerate(part):
                table[slot, start : start + self.block] = states.cpu()

    def of(self, indices: NDArray[np.int64], device: torch.device) -> list[Tensor]:
        """[B, 64, C + 1] float32 for each state the expert gives of the positions at indices."""
        if self.tabled:
            rows = torch.from_numpy(indices)
            return [table.index_select(0, rows).to(device).float() for table in self.table]
        distinct, back = np.unique(indices, return_inverse=True)
        states = self.expert.states([self.positions[index] for index in distinct])
        order = torch.from_numpy(back).to(device)
        return [state.to(device).index_select(0, order) for state in states]


def _reserved(file: Path, shape: tuple[int, ...]) -> int:
    """Make a file for a float16 array with its room on the disk taken; 0 where there is none.

    A hole that cannot be filled later would end the process without a word.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.lib.format.open_memmap(file, "w+", np.float16, shape).flush()
        with file.open("r+b") as held:
            os.posix_fallocate(held.fileno(), 0, file.stat().st_size)
    except OSError:
        file.unlink(missing_ok=True)
        return 0
    return 1
