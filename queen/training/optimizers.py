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

Group = dict[str, Any]
# What torch keeps of each parameter: by kind, whether it has the parameter's shape or is a scalar.
ADAMW = {"step": False, "exp_avg": True, "exp_avg_sq": True}
MUON = {"momentum_buffer": True}


class Optimizers:
    """Torch's optimizers of a run as one.

    Muon (Jordan et al. 2024) makes each matrix's momentum orthogonal before it is added; its
    rate is scaled by shape as Moonshot does, so that AdamW's rates and decay hold for it.

    Args:
        groups: each with `params`, `lr` and `weight_decay`; of these Muon takes the one whose
            `name` is MATRICES, if the settings ask for it.

    Raises:
        SettingsError: Muon is asked for, and no group has that name.
    """

    def __init__(self, groups: Sequence[Group], settings: TrainSettings) -> None:
        chosen = settings.optimizer == "muon"
        split: dict[bool, list[Group]] = {True: [], False: []}
        for group in groups:
            split[chosen and group.get("name") == MATRICES].append(group)
        muon, adamw = split[True], split[False]
        if chosen and not muon:
            raise SettingsError(
                "this network's groups name no matrices for Muon",
                where="training.optimizer",
                remedy="set training.optimizer=adamw",
            )
        self._all: list[tuple[torch.optim.Optimizer, dict[str, bool]]] = []
        if adamw:
            own = torch.optim.AdamW(adamw, lr=settings.lr, betas=settings.betas, fused=True)
            self._all.append((own, ADAMW))
        if muon:
            faster = [{**each, "lr": settings.muon_lr_factor * each["lr"]} for each in muon]
            scaled = torch.optim.Muon(faster, lr=settings.lr, adjust_lr_fn="match_rms_adamw")
            self._all.append((scaled, MUON))
        self._rates = [float(group["lr"]) for group in self._groups()]

    def step(self, lr_share: float) -> None:
        """Take a step at this share of the peak rates."""
        for group, rate in zip(self._groups(), self._rates, strict=True):
            group["lr"] = rate * lr_share
        for optimizer, _ in self._all:
            optimizer.step()

    def zero_grad(self) -> None:
        for optimizer, _ in self._all:
            optimizer.zero_grad(set_to_none=True)

    def tensors(self, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
        """The state by kind and name of the parameter."""
        return {
            f"{kind}/{name}": value
            for name, parameter in parameters.items()
            for optimizer, _ in self._all
            for kind, value in optimizer.state.get(parameter, {}).items()
        }

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

    def _groups(self) -> Iterator[Group]:
        for optimizer, _ in self._all:
            yield from optimizer.param_groups


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
