"""What takes a step: AdamW alone, or Muon for the matrices and AdamW for the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from queen.networks.freezing import MATRICES
from queen.training.checkpoint import matching
from queen.training.settings import SettingsError, TrainSettings
from queen.training.world import World

Group = dict[str, Any]
# What torch keeps of each parameter: by kind, whether it has the parameter's shape or is a scalar.
ADAMW = {"step": False, "exp_avg": True, "exp_avg_sq": True}
MOMENTUM = "momentum_buffer"
MUON = {MOMENTUM: True}


class Optimizers:
    """Torch's optimizers of a run as one.

    Muon (Jordan et al. 2024) makes each matrix's momentum orthogonal before it is added; its
    rate is scaled by shape as Moonshot does, so that AdamW's rates and decay hold for it. At
    small batches that is much of a step, so several ranks share the matrices: each moves its
    own, then hands them round. No result depends on how many there are.

    Attributes:
        owners: the rank that moves each of Muon's matrices.

    Args:
        groups: each with `params`, `lr` and `weight_decay`; of these Muon takes the one whose
            `name` is MATRICES, if the settings ask for it.
        world: the ranks that call each method together; alone by default.

    Raises:
        SettingsError: Muon is asked for, and no group has that name.
    """

    def __init__(
        self, groups: Sequence[Group], settings: TrainSettings, world: World | None = None
    ) -> None:
        self._world = world or World.here()
        self._parameters = [each for group in groups for each in group["params"]]
        chosen = settings.optimizer == "muon"
        split: dict[bool, list[Group]] = {True: [], False: []}
        for group in groups:
            split[chosen and group.get("name") == MATRICES].append(group)
        muon, adamw = split[True], split[False]
        if chosen and not muon:
            raise SettingsError(
                "this network's groups name no matrices for Muon",
                where="train.optimizer",
                remedy="set train.optimizer=adamw",
            )
        self._all: list[tuple[torch.optim.Optimizer, dict[str, bool]]] = []
        if adamw:
            own = torch.optim.AdamW(adamw, lr=settings.lr, betas=settings.betas, fused=True)
            self._all.append((own, ADAMW))
        self.owners = _dealt([each for group in muon for each in group["params"]], self._world)
        if muon:
            scaled = torch.optim.Muon(
                [self._own_part(each, settings.muon_lr_factor) for each in muon],
                lr=settings.lr,
                adjust_lr_fn="match_rms_adamw",
            )
            for matrix in (each for group in scaled.param_groups for each in group["params"]):
                scaled.state[matrix][MOMENTUM] = torch.zeros_like(matrix)
            self._all.append((scaled, MUON))
        self._rates = [float(group["lr"]) for group in self._groups()]

    @torch.no_grad()
    def step(self, lr_share: float) -> None:
        """Take a step at this share of the peak rates."""
        for group, rate in zip(self._groups(), self._rates, strict=True):
            group["lr"] = rate * lr_share
        for optimizer, _ in self._all:
            optimizer.step()
        moved = {each: owner for each, owner in self.owners.items() if each.grad is not None}
        self._world.hand_round(list(moved), list(moved.values()))

    def zero_grad(self) -> None:
        """Let go of all gradients, those of matrices that other ranks move too."""
        for each in self._parameters:
            each.grad = None

    def tensors(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """The state by kind and name of the parameter, that of all ranks' matrices."""
        state = {
            f"{kind}/{name}": value
            for name, parameter in parameters.items()
            for optimizer, _ in self._all
            for kind, value in optimizer.state.get(parameter, {}).items()
        }
        if self._world.size > 1:
            matrices = {name: each for name, each in parameters.items() if each in self.owners}
            momenta = {
                f"{MOMENTUM}/{name}": torch.zeros_like(each) for name, each in matrices.items()
            }
            momenta.update((key, state[key].clone()) for key in momenta if key in state)
            owners = [self.owners[each] for each in matrices.values()]
            self._world.hand_round(list(momenta.values()), owners)
            state.update(momenta)
        return state

    def restore(
        self, parameters: Mapping[str, nn.Parameter], saved: Mapping[str, Tensor], source: Path
    ) -> None:
        """Set the state from a checkpoint's.

        Raises:
            CheckpointError: names the file and the tensor that does not fit.
        """
        names = {parameter: name for name, parameter in parameters.items()}
        for optimizer, kinds in self._all:
            for parameter in (each for group in optimizer.param_groups for each in group["params"]):
                state = state_of(names[parameter], parameter, saved, source, kinds)
                if state:
                    optimizer.state[parameter] = state

    def _own_part(self, group: Group, factor: float) -> Group:
        """Of a group of matrices those this rank moves, at Muon's rate."""
        own = [each for each in group["params"] if self.owners[each] == self._world.rank]
        return {**group, "params": own, "lr": factor * group["lr"]}

    def _groups(self) -> Iterator[Group]:
        for optimizer, _ in self._all:
            yield from optimizer.param_groups


def _dealt(matrices: Sequence[nn.Parameter], world: World) -> dict[nn.Parameter, int]:
    """The rank that moves each matrix, so that all have about as much to do."""
    work = [0] * world.size
    owners: dict[int, int] = {}
    for index in sorted(range(len(matrices)), key=lambda i: (-_cost(matrices[i]), i)):
        owners[index] = work.index(min(work))
        work[owners[index]] += _cost(matrices[index])
    return {each: owners[index] for index, each in enumerate(matrices)}


def _cost(matrix: nn.Parameter) -> int:
    """Products of numbers in one of Muon's iterations, up to a factor."""
    short, long = sorted(matrix.shape)
    return int(short * short * (2 * long + short))


def state_of(
    name: str,
    parameter: nn.Parameter,
    saved: Mapping[str, Tensor],
    source: Path,
    kinds: Mapping[str, bool] = ADAMW,
) -> dict[str, Tensor]:
    """The saved state of one parameter; empty if it never had a gradient.

    Args:
        kinds: what is kept of it, and whether in its shape or as a scalar.
    """
    wanted = {
        f"{kind}/{name}": parameter if shaped else torch.tensor(0.0)
        for kind, shaped in kinds.items()
    }
    if not any(key in saved for key in wanted):
        return {}
    found = {key: saved[key] for key in wanted if key in saved}
    matching(found, wanted, source)
    return {key.partition("/")[0]: each.to(parameter.device) for key, each in found.items()}
