"""What the bridges read of the positions of one list of requests: each position is read once.

Positions go through encoder and bridges some at a time, in the order of the requests, so that
what is computed together depends on the list alone: a text is the same whatever was written
before it, and in whichever process.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.generation.requests import Request
from queen.networks.bridge import Context
from queen.networks.queen import QueenModel

AHEAD = 32  # positions for each call of the encoder


class States(Protocol):
    """What decoding needs of an expert."""

    @property
    def digest(self) -> str:
        """Digest of the encoder's weights."""

    def states(self, positions: Sequence[Position]) -> list[Tensor]:
        """One [B, 64, C + 1] for each bridge, as `Expert.states` gives them."""


class Contexts:
    """Keys and values of the requests' positions, each kept until its last request has them.

    Args:
        model: its bridges read the states.
        expert: gives the states; None where the decoder writes alone.
        requests: everything that will be asked for, in about that order.
    """

    def __init__(
        self, model: QueenModel, expert: States | None, requests: Sequence[Request]
    ) -> None:
        self.model, self.expert = model, expert
        self.left = Counter(request.position for request in requests)
        self.waiting = deque(self.left)
        self.kept: dict[Position, list[Context]] = {}
        self.faults: dict[Position, str] = {}

    def fault(self, request: Request) -> str | None:
        """Why the request's position cannot be read, if it cannot."""
        if self.expert is None:
            return None
        while request.position not in self.kept and request.position not in self.faults:
            count = min(AHEAD, len(self.waiting))
            self._read([self.waiting.popleft() for _ in range(count)])
        return self.faults.get(request.position)

    def of(self, requests: Sequence[Request]) -> list[Context] | None:
        """For each bridge the context of the requests' positions, which have no fault."""
        if self.expert is None:
            return None
        rows = [self.kept[request.position] for request in requests]
        for request in requests:
            self.left[request.position] -= 1
            if not self.left[request.position]:
                del self.kept[request.position]
        return [
            Context(torch.stack([c.keys for c in parts]), torch.stack([c.values for c in parts]))
            for parts in zip(*rows, strict=True)
        ]

    def _read(self, positions: Sequence[Position]) -> None:
        """Read some positions together; where that fails each alone, so that one fails alone."""
        assert self.expert is not None
        try:
            states = self.expert.states(positions)
        except QueenError as error:
            if len(positions) == 1:
                self.faults[positions[0]] = str(error)
                return
            for position in positions:
                self._read([position])
            return
        found = self.model.context([part.to(self.model.device) for part in states])
        for row, position in enumerate(positions):
            self.kept[position] = [Context(part.keys[row], part.values[row]) for part in found]
