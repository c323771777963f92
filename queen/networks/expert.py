"""The silent expert: a frozen encoder asked for states and policies, which remembers its answers.

Source: METHOD section 1. Lc0 turns the board to the side to move, and in some input formats
further; here squares are real ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from queen.games.chess.position import Position
from queen.networks.digest import weights_digest
from queen.networks.errors import NetworkError
from queen.networks.lc0.encoder import Lc0Encoder, real_squares, unturned
from queen.networks.lc0.history import Histories
from queen.networks.lc0.moves import MOVES, policy_over_legal
from queen.networks.lc0.planes import encode_histories, turned_squares
from queen.networks.lc0.transform import is_canonical

SQUARES = 64
_HALF_MAX = torch.finfo(torch.float16).max


class Expert:
    """A frozen encoder behind a memory of bounded size; the least recently used leaves first.

    States are kept, and given, as float16 holds them, whether they were remembered or not, so that
    an answer does not depend on what was asked before.

    Args:
        encoder: frozen and put into evaluation mode; may stand on any device.
        wanted: which states e_i to give, in this order.
        memory_mb: bound of the memory in MiB, in the encoder's device memory; 0 for none.
        batch_size: positions for each call of the encoder.

    Attributes:
        digest: of the encoder's weights.
        width: of a state: the encoder's and one more.
        calls: positions that went through the encoder so far.
    """

    def __init__(
        self, encoder: Lc0Encoder, wanted: Sequence[int], memory_mb: int, batch_size: int = 256
    ) -> None:
        self.encoder = encoder.requires_grad_(False).eval()
        self.wanted, self.batch_size = tuple(wanted), batch_size
        if not self.wanted or not all(0 <= i < encoder.n_states for i in self.wanted):
            raise NetworkError(
                f"states {list(self.wanted)} of an encoder that has {encoder.n_states}",
                remedy=f"name states from 0 to {encoder.n_states - 1}",
            )
        self.width = encoder.width + 1
        self.device = next(encoder.parameters()).device
        self.digest = weights_digest(encoder)
        self.calls = 0
        self._histories = Histories()
        size = 2 * (len(self.wanted) * SQUARES * self.width) + 4 * len(MOVES)
        self._memory = _Memory(memory_mb * 2**20 // size)

    def on(self, device: torch.device) -> Expert:
        """This expert with its encoder on a device; one that was elsewhere loses its memory."""
        if device != self.device:
            self.encoder.to(device)
            self.device = device
            self._memory = _Memory(self._memory.room)
        return self

    def states(self, positions: Sequence[Position]) -> list[Tensor]:
        """[B, 64, C + 1] float32 for each wanted state, squares in the order a1..h8.

        The last channel is 1 where White is to move and -1 where Black is: an encoder that turns
        the board says which pieces are the mover's, and not what colour they have.

        Raises PositionError on an illegal position.
        """
        rows, _ = self._ask(positions)
        return list(rows.float().unbind(1))

    def policy(self, positions: Sequence[Position]) -> list[dict[str, float]]:
        """Probability of each legal move by UCI; empty where the game is over."""
        _, logits = self._ask(positions)
        form = self.encoder.input_format
        return [
            _softmax(policy_over_legal(row, self._histories.of(position).board, form))
            for row, position in zip(logits.cpu(), positions, strict=True)
        ]

    def _ask(self, positions: Sequence[Position]) -> tuple[Tensor, Tensor]:
        """States [B, wanted, 64, C] in float16 and policy logits [B, 1858]."""
        states = torch.empty(
            len(positions), len(self.wanted), SQUARES, self.width,
            dtype=torch.float16, device=self.device,
        )  # fmt: skip
        logits = torch.empty(len(positions), len(MOVES), device=self.device)
        unknown: dict[Position, list[int]] = {}
        for row, position in enumerate(positions):
            known = self._memory.get(position)
            if known is None:
                unknown.setdefault(position, []).append(row)
            else:
                states[row], logits[row] = known
        fresh = list(unknown)
        for start in range(0, len(fresh), self.batch_size):
            part = fresh[start : start + self.batch_size]
            for position, state, policy in zip(part, *self._run(part), strict=True):
                states[unknown[position]], logits[unknown[position]] = state, policy
                self._memory.put(position, state, policy)
        return states, logits

    @torch.inference_mode()
    def _run(self, positions: Sequence[Position]) -> tuple[Tensor, Tensor]:
        histories = [self._histories.of(position) for position in positions]
        black = torch.tensor([not history.board.turn for history in histories])
        planes = encode_histories(histories, self.encoder.input_format)
        with torch.autocast(
            self.device.type, enabled=False
        ):  # the same states in training as after
            output = self.encoder(planes)
        size = len(positions), len(self.wanted), SQUARES, self.encoder.width
        wanted = torch.empty(size, dtype=torch.float16, device=self.device)
        for slot, index in enumerate(self.wanted):
            wanted[:, slot] = output.states[index].clamp(-_HALF_MAX, _HALF_MAX)
        if is_canonical(self.encoder.input_format):
            wanted = unturned(wanted, turned_squares(histories, self.encoder.input_format))
        real = real_squares(wanted.flatten(0, 1), black.repeat_interleave(len(self.wanted)))
        self.calls += len(positions)
        halves = wanted.new_empty(*wanted.shape[:3], self.width)
        halves[..., :-1] = real.view_as(wanted)
        halves[..., -1] = (1 - 2 * black.to(halves)).view(-1, 1, 1)
        return halves, output.policy.float()


class _Memory:
    """Positions' answers, at most `room` of them."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.kept: OrderedDict[Position, tuple[Tensor, Tensor]] = OrderedDict()

    def get(self, position: Position) -> tuple[Tensor, Tensor] | None:
        found = self.kept.get(position)
        if found is not None:
            self.kept.move_to_end(position)
        return found

    def put(self, position: Position, state: Tensor, policy: Tensor) -> None:
        if not self.room:
            return
        self.kept[position] = state.clone(), policy.clone()
        if len(self.kept) > self.room:
            self.kept.popitem(last=False)


def _softmax(logits: dict[str, float]) -> dict[str, float]:
    if not logits:
        return {}
    values = np.array(list(logits.values()), np.float64)
    weights = np.exp(values - values.max())
    return dict(zip(logits, (weights / weights.sum()).tolist(), strict=True))
