"""What computes gradients and takes steps: torch in one process now, others behind one door."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from queen.training.checkpoint import CheckpointError, matching
from queen.training.settings import SettingsError, TrainSettings


class Backend(Protocol):
    """One optimizer step at a time on a model.

    A step is: `backward` for each micro-batch, then `step`.
    """

    def backward(self, loss: Callable[[], Tensor], total: float) -> Tensor:
        """Evaluate a micro-batch's summed loss, add its gradients; return the sum.

        Args:
            total: loss weight of the step's whole batch, by which gradients are divided.
        """

    def step(self, lr_share: float) -> Tensor:
        """Clip, take a step at this share of the peak rate; return the gradient norm.

        Nothing is changed where the norm is not finite.
        """

    def model_tensors(self) -> dict[str, Tensor]:
        """Everything training changes in the model, by name."""

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state, by name."""

    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], files: tuple[Path, Path]
    ) -> None:
        """Set both from a checkpoint read from `files`.

        Raises:
            CheckpointError: names the file and the tensor that does not fit.
        """


Group = dict[str, Any]


def open_backend(model: nn.Module, groups: Sequence[Group], settings: TrainSettings) -> Backend:
    """The backend a run asks for.

    Args:
        groups: torch's parameter groups, each with `params`, `lr` and `weight_decay`.

    Raises:
        SettingsError: it is not built yet.
    """
    if settings.backend == "torch":
        return TorchBackend(model, groups, settings)
    raise SettingsError(
        f"the {settings.backend} backend is not built yet",
        where="training.backend",
        remedy="set training.backend=torch (one process, CPU or one GPU)",
    )


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, tied ones once."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


class TorchBackend:
    """AdamW in float32 in this process; bf16 by autocast, so weights stay float32."""

    def __init__(self, model: nn.Module, groups: Sequence[Group], settings: TrainSettings) -> None:
        self.model, self.settings = model, settings
        self.parameters = trained(model)
        self.device = next(iter(self.parameters.values())).device
        self.optimizer = torch.optim.AdamW(groups, lr=settings.lr, betas=settings.betas, fused=True)
        self.rates = [float(group["lr"]) for group in self.optimizer.param_groups]

    def backward(self, loss: Callable[[], Tensor], total: float) -> Tensor:
        with self._precision():
            value = loss()
        (value / total).backward()  # type: ignore[no-untyped-call]
        return value.detach()

    def step(self, lr_share: float) -> Tensor:
        clip = self.settings.clip or float("inf")
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), clip, foreach=True)
        if bool(torch.isfinite(norm)):
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                group["lr"] = rate * lr_share
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def model_tensors(self) -> dict[str, Tensor]:
        return {name: each.detach() for name, each in self._changing()}

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return {
            f"{kind}/{name}": value
            for name, parameter in self.parameters.items()
            for kind, value in self.optimizer.state[parameter].items()
        }

    @torch.no_grad()
    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], files: tuple[Path, Path]
    ) -> None:
        targets = dict(self._changing())
        matching(model, targets, files[0])
        for name, target in targets.items():
            target.copy_(model[name])
        for name, parameter in self.parameters.items():
            self.optimizer.state[parameter] = {
                "step": self._saved(optimizer, f"step/{name}", torch.tensor(0.0), files[1]),
                "exp_avg": self._saved(optimizer, f"exp_avg/{name}", parameter, files[1]),
                "exp_avg_sq": self._saved(optimizer, f"exp_avg_sq/{name}", parameter, files[1]),
            }

    def _saved(
        self, tensors: Mapping[str, Tensor], name: str, like: Tensor, source: Path
    ) -> Tensor:
        if name not in tensors:
            raise CheckpointError(
                f"tensor {name!r} is missing from the file",
                where=str(source),
                remedy=f"remove {source.parent} to start afresh",
            )
        matching({name: tensors[name]}, {name: like}, source)
        return tensors[name].to(self.device)

    def _changing(self) -> Iterator[tuple[str, Tensor]]:
        """Trained parameters and the buffers that a saved model holds."""
        yield from self.parameters.items()
        saved = self.model.state_dict()
        for name, buffer in self.model.named_buffers():
            if name in saved:
                yield name, buffer

    def _precision(self) -> AbstractContextManager[object]:
        if self.settings.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)


def plain_groups(model: nn.Module, settings: TrainSettings) -> list[Group]:
    """Parameter groups of any network: matrices with weight decay, vectors without."""
    matrices = [each for each in trained(model).values() if each.dim() > 1]
    vectors = [each for each in trained(model).values() if each.dim() < 2]
    decays = ((matrices, settings.weight_decay), (vectors, 0.0))
    return [
        {"params": members, "lr": settings.lr, "weight_decay": decay}
        for members, decay in decays
        if members
    ]
