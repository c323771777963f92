"""The encoder module: a body that gives the states, and the heads that read the last of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.multihead import NamedHeads, no_such_head
from queen.networks.lc0.planes import Planes


@dataclass
class Lc0Output:
    """What an Lc0 network says of B positions, all from the side to move's view.

    Attributes:
        states: e_0 ... e_N, each [B, 64, C], one token a square in a1..h8 order of the planes:
            the mover's view (see `real_squares`), in canonical input formats turned (`unturned`).
        policy: [B, 1858] raw logits, in the order of `moves.MOVES` (for canonical input formats
            on the turned board: see `moves.policy_over_legal`).
        wdl: [B, 3] probabilities of win, draw and loss, or None.
        value: [B, 1] in [-1, 1], of networks with a scalar value, or None.
        moves_left: [B, 1] estimated plies to the end, or None.
    """

    states: list[Tensor]
    policy: Tensor
    wdl: Tensor | None
    value: Tensor | None
    moves_left: Tensor | None

    @property
    def expected(self) -> Tensor:
        """The expected score in [0, 1]: [B]."""
        if self.wdl is not None:
            return self.wdl[:, 0] + self.wdl[:, 1] / 2
        assert self.value is not None
        return (self.value[:, 0] + 1) / 2


class Lc0Encoder(nn.Module):
    """An Lc0 network, frozen when built (`requires_grad_(True)` thaws it).

    Args:
        config: what it was built from.
        body: planes [B, 112, 8, 8] to the list of states.
        policy, value, moves_left: heads on the last state; value gives 3 or 1 raw outputs. Where
            a network has several of a kind they are `NamedHeads`.
    """

    def __init__(
        self,
        config: Lc0Config,
        body: nn.Module,
        policy: nn.Module,
        value: nn.Module,
        moves_left: nn.Module | None,
    ) -> None:
        super().__init__()
        self.config = config
        self.body, self.policy, self.value, self.moves_left = body, policy, value, moves_left

    @property
    def width(self) -> int:
        """Channels of a state's tokens."""
        return self.config.shape.width

    @property
    def n_states(self) -> int:
        """How many states there are: N + 1."""
        return self.config.shape.n_states

    @property
    def input_format(self) -> int:
        """The format `encode_planes` must be asked for."""
        return self.config.format.input

    def states(self, planes: Tensor | Planes) -> list[Tensor]:
        """The states alone, without the heads: each [B, 64, C]."""
        weight = next(self.body.parameters())
        found: list[Tensor] = self.body(torch.as_tensor(planes).to(weight.device, weight.dtype))
        return found

    @property
    def policy_heads(self) -> tuple[str, ...]:
        """Names of the policy heads, the usual one first; empty where there is one without."""
        return self.policy.names if isinstance(self.policy, NamedHeads) else ()

    @property
    def value_heads(self) -> tuple[str, ...]:
        """The same of the value heads."""
        return self.value.names if isinstance(self.value, NamedHeads) else ()

    def forward(
        self, planes: Tensor | Planes, policy_head: str = "", value_head: str = ""
    ) -> Lc0Output:
        """What the network says.

        Args:
            planes: [B, 112, 8, 8], a tensor or an array of `encode_planes`.
            policy_head, value_head: of a network that has several; the usual one by default.

        Raises NetError on a head that the network does not have.
        """
        states = self.states(planes)
        last = states[-1]
        raw = _answer(self.value, last, value_head)
        has_wdl = raw.shape[-1] == 3
        return Lc0Output(
            states=states,
            policy=_answer(self.policy, last, policy_head),
            wdl=raw.softmax(-1) if has_wdl else None,
            value=None if has_wdl else raw.tanh(),
            moves_left=None if self.moves_left is None else self.moves_left(last),
        )


def unturned(states: Tensor, order: NDArray[np.int64]) -> Tensor:
    """Tokens of a canonical input format in the order of the mover's view.

    Args:
        states: [B, n, 64, C], n states of each position.
        order: [B, 64], of `planes.turned_squares`.
    """
    count, several = states.shape[:2]
    first = 64 * torch.arange(count * several, device=states.device).view(count, several, 1)
    rows = first + torch.from_numpy(order).to(states.device)[:, None]
    return states.reshape(-1, states.shape[3]).index_select(0, rows.view(-1)).view_as(states)


def _answer(head: nn.Module, tokens: Tensor, name: str) -> Tensor:
    if name and not isinstance(head, NamedHeads):
        raise no_such_head(name, ())
    found: Tensor = head(tokens, name) if name else head(tokens)
    return found


@overload
def real_squares(states: Tensor, black_to_move: Tensor) -> Tensor: ...
@overload
def real_squares(states: Sequence[Tensor], black_to_move: Tensor) -> list[Tensor]: ...
def real_squares(states: Tensor | Sequence[Tensor], black_to_move: Tensor) -> Tensor | list[Tensor]:
    """Tokens of the mover's view in the order of the real squares a1..h8.

    Args:
        states: [B, 64, C], or several of them.
        black_to_move: [B] booleans; those positions' ranks are turned round.
    """
    if not isinstance(states, Tensor):
        return [real_squares(one, black_to_move) for one in states]
    black = torch.as_tensor(black_to_move, dtype=torch.bool, device=states.device)
    turned = states.view(len(states), 8, 8, states.shape[2]).flip(1).flatten(1, 2)
    return torch.where(black[:, None, None], turned, states)
