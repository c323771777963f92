"""The expert's states of a training set's positions: the same bits whatever came before.

An encoder's answer can differ in the last bit with the size of the batch it is asked in (seen
below 16 positions on a CPU), so a memory filled in the order of questions would make a resumed
run differ from an uninterrupted one. Here a position's state is either computed with all others,
in a fixed order, or with those of its own batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from queen.games.chess.position import Position
from queen.networks.expert import Expert

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
    def table(self) -> list[Tensor]:
        """[positions, 64, C + 1] float16 for each state; filled when first asked for."""
        width, count = self.expert.width, len(self.positions)
        tables = [torch.empty(count, 64, width, dtype=torch.float16) for _ in self.expert.wanted]
        for start in range(0, count, self.block):
            part = self.expert.states(self.positions[start : start + self.block])
            for table, states in zip(tables, part, strict=True):
                table[start : start + self.block] = states.cpu()
        return tables

    def of(self, indices: NDArray[np.int64], device: torch.device) -> list[Tensor]:
        """[B, 64, C + 1] float32 for each state the expert gives of the positions at indices."""
        if self.tabled:
            rows = torch.from_numpy(indices)
            return [table.index_select(0, rows).to(device).float() for table in self.table]
        distinct, back = np.unique(indices, return_inverse=True)
        states = self.expert.states([self.positions[index] for index in distinct])
        order = torch.from_numpy(back).to(device)
        return [state.to(device).index_select(0, order) for state in states]
