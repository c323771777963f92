"""What computes gradients and takes steps: torch in one process now, others behind one door."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from queen.training.checkpoint import matching
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
            saved = _state_of(name, parameter, optimizer, files[1])
            if saved:
                self.optimizer.state[parameter] = saved

    def _changing(self) -> Iterator[tuple[str, Tensor]]:
        """Trained parameters and the buffers that a saved model holds."""
        yield from self.parameters.items()
        saved = self.model.state_dict()
        for name, buffer in self.model.named_buffers():
            if name in saved:
                yield name, buffer

    @contextmanager
    def _precision(self) -> Iterator[None]:
        if self.settings.precision == "fp32":
            yield
        else:
            with torch.autocast(self.device.type, torch.bfloat16), Float32Attention():
                yield


class Float32Attention(TorchFunctionMode):
    """Inside it, attention on a CPU is computed in float32 though autocast says bf16.

    Torch's bf16 attention is slow backward on CPUs: 64 ms against 17 at [96, 4, 48, 32], which
    was half of a training step (benchmarks/train_mini.py). Other devices are left alone.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not F.scaled_dot_product_attention or args[0].device.type != "cpu":
            return func(*args, **kwargs)
        with torch.autocast("cpu", enabled=False):
            return func(*map(_float32, args), **{k: _float32(v) for k, v in kwargs.items()})


def _float32(value: Any) -> Any:
    """Floating tensors to float32; masks of booleans and all else as they are."""
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


def _state_of(
    name: str, parameter: nn.Parameter, saved: Mapping[str, Tensor], source: Path
) -> dict[str, Tensor]:
    """AdamW's state of one parameter; empty if it never had a gradient."""
    wanted = {"step": torch.tensor(0.0), "exp_avg": parameter, "exp_avg_sq": parameter}
    if not any(f"{kind}/{name}" in saved for kind in wanted):
        return {}
    wanted = {f"{kind}/{name}": like for kind, like in wanted.items()}
    found = {key: saved[key] for key in wanted if key in saved}
    matching(found, wanted, source)
    return {key.partition("/")[0]: each.to(parameter.device) for key, each in found.items()}


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
