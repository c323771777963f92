"""What computes gradients and takes steps: torch here, DeepSpeed in `zero`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from queen.training.checkpoint import matching
from queen.training.optimizers import Group, Optimizers
from queen.training.settings import TrainSettings
from queen.training.world import World


class Backend(Protocol):
    """One optimizer step at a time on a model, by all ranks together.

    A step is: `backward` for each micro-batch, then `step`. All but `backward` on a torch
    backend must be called by every rank.

    Attributes:
        model: what losses are asked of; may be another object than the model that was given.
    """

    model: Any

    def backward(self, loss: Callable[[], Tensor], total: float, last: bool = True) -> Tensor:
        """Evaluate a micro-batch's summed loss, add its gradients; return the sum.

        Args:
            total: loss weight of the step's whole batch, by which gradients are divided.
            last: whether it is this rank's last of the step.
        """

    def step(self, lr_share: float) -> Tensor:
        """Clip, take a step at this share of the peak rate; return the gradient norm.

        Where the norm is not finite the torch backend changes nothing.
        """

    def model_tensors(self) -> dict[str, Tensor]:
        """Everything training changes in the model, by name, whole and in float32."""

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimizer's state, by kind and name of the parameter, whole."""

    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], files: tuple[Path, Path]
    ) -> None:
        """Set both from a checkpoint read from `files`.

        Raises:
            CheckpointError: names the file and the tensor that does not fit.
        """

    def finish(self) -> None:
        """Leave the model that was given as training made it, and let go of the rest."""


MakeGroups = Callable[[Any], list[Group]]


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, tied ones once."""
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


class TorchBackend:
    """Weights and optimizer in float32; bf16 by autocast.

    Several ranks add up their gradients once a step and then all take the same step.
    """

    def __init__(
        self,
        model: nn.Module,
        groups: Sequence[Group],
        settings: TrainSettings,
        world: World | None = None,
    ) -> None:
        self.model, self.settings, self.world = model, settings, world or World.here()
        self.parameters = trained(model)
        self.device = next(iter(self.parameters.values())).device
        self.optimizer = Optimizers(groups, settings, self.world)

    def backward(self, loss: Callable[[], Tensor], total: float, last: bool = True) -> Tensor:
        with self._precision():
            value = loss()
        (value / total).backward()  # type: ignore[no-untyped-call]
        return value.detach()

    def step(self, lr_share: float) -> Tensor:
        self._add_up_gradients()
        clip = self.settings.clip or float("inf")
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), clip, foreach=True)
        if bool(torch.isfinite(norm)):
            self.optimizer.step(lr_share)
        self.optimizer.zero_grad()
        return norm

    def model_tensors(self) -> dict[str, Tensor]:
        return {name: each.detach() for name, each in self._changing()}

    def optimizer_tensors(self) -> dict[str, Tensor]:
        return self.optimizer.tensors(self.parameters)

    @torch.no_grad()
    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], files: tuple[Path, Path]
    ) -> None:
        targets = dict(self._changing())
        matching(model, targets, files[0])
        for name, target in targets.items():
            target.copy_(model[name])
        self.optimizer.restore(self.parameters, optimizer, files[1])

    def finish(self) -> None:
        pass

    def _changing(self) -> Iterator[tuple[str, Tensor]]:
        """Trained parameters and the buffers that a saved model holds."""
        yield from self.parameters.items()
        yield from saved_buffers(self.model)

    def _add_up_gradients(self) -> None:
        """The sum of all ranks' gradients, in each of them."""
        if self.world.size == 1:
            return
        parameters = list(self.parameters.values())
        used = torch.tensor([float(each.grad is not None) for each in parameters])
        used = used.to(self.device)
        self.world.add_up([used])
        reached = [each for each, ranks in zip(parameters, used.tolist(), strict=True) if ranks]
        for each in reached:
            each.grad = torch.zeros_like(each) if each.grad is None else each.grad
        self.world.add_up([each.grad for each in reached if each.grad is not None])

    def _precision(self) -> AbstractContextManager[None]:
        return precision(self.settings, self.device)


@contextmanager
def precision(settings: TrainSettings, device: torch.device) -> Iterator[None]:
    """Inside it, a forward pass is computed as the settings say."""
    if settings.precision == "bf16":
        with torch.autocast(device.type, torch.bfloat16), Float32Attention():
            yield
    else:
        yield


def recomputing(settings: TrainSettings) -> dict[str, Any]:
    """How layers are computed anew in the backward pass: as their forward pass did.

    Torch brings autocast back by itself, our own mode it does not know.
    """
    if settings.precision != "bf16":
        return {"use_reentrant": False}
    return {"use_reentrant": False, "context_fn": _recomputing_in_float32}


def _recomputing_in_float32() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    return nullcontext(), Float32Attention()


def saved_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The buffers that a saved model holds."""
    saved = model.state_dict()
    for name, buffer in model.named_buffers():
        if name in saved:
            yield name, buffer


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
