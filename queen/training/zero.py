"""Training on DeepSpeed: ZeRO stages 0 to 3, with checkpoints that know no stage.

The engine works on a twin of the model, whose parameters it casts, flattens and divides as it
likes. What is saved and restored are whole float32 tensors by the parameters' names, the same
as the torch backend's, so that a run may go on with other ranks, another stage or no DeepSpeed.
"""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from queen.training.backend import (
    MakeGroups,
    precision,
    saved_buffers,
    trained,
)
from queen.training.checkpoint import matching
from queen.training.optimizers import state_of
from queen.training.settings import SettingsError, TrainSettings
from queen.training.world import World, free_port

MOMENTS = ("exp_avg", "exp_avg_sq")


class DeepSpeedBackend:
    """AdamW under a DeepSpeed engine, which is made when the first step needs it.

    Raises:
        SettingsError: the batch does not divide among the ranks, or the stage cannot hold
            weights in bf16.
    """

    def __init__(
        self, model: nn.Module, make_groups: MakeGroups, settings: TrainSettings, world: World
    ) -> None:
        _check(settings, world)
        self.given, self.make_groups = model, make_groups
        self.settings, self.world = settings, world
        self.model: Any = _twin(model)
        self.rates: list[float] = []

    def backward(self, loss: Callable[[], Tensor], total: float, last: bool = True) -> Tensor:
        engine = self.engine
        engine.set_gradient_accumulation_boundary(last)
        value: Tensor = engine(loss)
        engine.backward(value * (self.world.size / total), scale_wrt_gas=False)
        return value.detach()

    def step(self, lr_share: float) -> Tensor:
        for group, rate in zip(self.engine.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * lr_share
        norm = None if self.settings.zero else self._clip()
        self.engine.step()
        norm = self.engine.get_global_grad_norm() if norm is None else norm
        return torch.as_tensor(norm)

    @torch.no_grad()
    def model_tensors(self) -> dict[str, Tensor]:
        keep = self.world.first
        whole = {name: self._whole(each, keep=keep) for name, each in self._parameters.items()}
        return {**whole, **dict(saved_buffers(self.model))}

    @torch.no_grad()
    def optimizer_tensors(self) -> dict[str, Tensor]:
        steps = [state["step"] for state in self._base.state.values()]
        found = {}
        for name, parameter in self._parameters.items():
            found[f"step/{name}"] = steps[0].detach().float().cpu().clone()
            for kind in MOMENTS:
                found[f"{kind}/{name}"] = self._whole(parameter, kind, self.world.first)
        return found

    @torch.no_grad()
    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], files: tuple[Path, Path]
    ) -> None:
        assert "engine" not in self.__dict__, "restored before the first step"
        parameters = trained(self.model)
        targets = {**parameters, **dict(saved_buffers(self.model))}
        matching(model, targets, files[0])
        for name, target in targets.items():
            target.data = model[name].to(target.device, copy=True)
        self._set_states(
            {name: state_of(name, each, optimizer, files[1]) for name, each in parameters.items()}
        )

    @torch.no_grad()
    def finish(self) -> None:
        parameters, given = self._parameters, trained(self.given)
        for name, parameter in given.items():
            parameter.copy_(self._whole(parameters[name], keep=True))
        buffers = dict(saved_buffers(self.model))
        for name, buffer in saved_buffers(self.given):
            buffer.copy_(buffers[name])
        self.engine.destroy()
        del self.__dict__["engine"]

    @cached_property
    def engine(self) -> Any:
        """The engine; every rank must ask for it together."""
        deepspeed = _deepspeed()
        _join_alone(self.world)
        exact = {name: each.detach().clone() for name, each in self._masters()}
        floats = {n: b.clone() for n, b in self.model.named_buffers() if b.is_floating_point()}
        groups = self.make_groups(self.model)
        self.rates = [float(group["lr"]) for group in groups]
        base = torch.optim.AdamW(groups, lr=self.settings.lr, betas=self.settings.betas, fused=True)
        engine, *_ = deepspeed.initialize(
            model=_Evaluated(self.model, self.settings, self.world.device),
            optimizer=base,
            config=_config(self.settings, self.world),
        )
        self.__dict__["engine"] = engine
        for name, buffer in self.model.named_buffers():
            if name in floats:
                buffer.data = floats[name].to(self.world.device)
        for name, value in exact.items():
            self._set(self._parameters[name], value)
        self._seed_states()
        return engine

    @property
    def _parameters(self) -> dict[str, nn.Parameter]:
        return trained(self.model)

    @property
    def _base(self) -> Any:
        """Torch's optimizer inside the engine's."""
        return getattr(self.engine.optimizer, "optimizer", self.engine.optimizer)

    def _masters(self) -> Iterator[tuple[str, Tensor]]:
        """What the engine's own float32 copies must start from where it rounds the weights."""
        if self.settings.precision == "bf16_weights":
            yield from trained(self.model).items()

    def _clip(self) -> Tensor:
        """At stage 0 the engine clips and tells no norm: done here, on the summed gradients."""
        clip = self.settings.clip or float("inf")
        return nn.utils.clip_grad_norm_(self._parameters.values(), clip, foreach=True)

    def _whole(self, parameter: nn.Parameter, kind: str | None = None, keep: bool = True) -> Tensor:
        """A parameter, or a moment of it, put together from all ranks, on the CPU.

        Every rank must ask; those that do not keep it get an empty tensor.
        """
        if not self.settings.zero:
            whole = parameter if kind is None else self._base.state[parameter][kind]
            return whole.detach().float().cpu().clone()
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        found = (
            safe_get_full_fp32_param(parameter)
            if kind is None
            else safe_get_full_optimizer_state(parameter, kind)
        )
        shape = getattr(parameter, "ds_shape", parameter.shape)
        whole = found.detach().float().flatten()[: math.prod(shape)].view(shape)
        return whole.cpu() if keep else torch.empty(0)

    def _set_states(self, states: Mapping[str, Mapping[str, Tensor]]) -> None:
        steps = [state["step"] for state in states.values() if state]
        for flat in self._flats() if steps else ():
            self._base.state[flat]["step"].copy_(steps[0])
        for name, parameter in self._parameters.items():
            for kind in MOMENTS:
                if states[name]:
                    self._set(parameter, states[name][kind], kind)

    def _seed_states(self) -> None:
        """Empty moments, there before a first step makes them, and known to the engine."""
        for flat in self._flats():
            self._base.state[flat] = {
                "step": torch.zeros((), device=flat.device),
                **{kind: torch.zeros_like(flat, dtype=torch.float32) for kind in MOMENTS},
            }
        link = getattr(self.engine.optimizer, "_lazy_init_hp_params_optimizer_state", None)
        if link is not None:
            link()

    def _flats(self) -> list[Tensor]:
        """What torch's optimizer holds: flat float32 parts, or the parameters at stage 0."""
        if not self.settings.zero:
            return list(self._parameters.values())
        names = (
            "single_partition_of_fp32_groups", "fp32_groups_flat_partition",
            "fp32_partitioned_groups_flat",
        )  # fmt: skip
        return next(
            list(getattr(self.engine.optimizer, name))
            for name in names
            if hasattr(self.engine.optimizer, name)
        )

    def _set(self, parameter: nn.Parameter, value: Tensor, kind: str | None = None) -> None:
        """Put this rank's part of a whole tensor where the engine keeps it."""
        value = value.to(self.world.device, torch.float32)
        if not self.settings.zero:
            target = parameter if kind is None else self._base.state[parameter][kind]
            target.data.copy_(value)
            return
        from deepspeed import utils as tools

        if self.settings.zero < 3:
            if kind is None:
                tools.safe_set_full_fp32_param(parameter, value)
            else:
                tools.safe_set_full_optimizer_state(parameter, value, kind)
            return
        own = _own_part(value, parameter, self.world.rank)
        if kind is None:
            tools.safe_set_local_fp32_param(parameter, own)
        else:
            tools.safe_set_local_optimizer_state(parameter, own, kind)


class _Evaluated(nn.Module):
    """A module whose forward pass evaluates a loss of the model inside, as the engine wants it."""

    def __init__(self, model: nn.Module, settings: TrainSettings, device: torch.device) -> None:
        super().__init__()
        self.model, self.settings, self.device = model, settings, device

    def forward(self, loss: Callable[[], Tensor]) -> Tensor:
        with precision(self.settings, self.device):
            return loss()


def _own_part(value: Tensor, parameter: Any, rank: int) -> Tensor:
    """A rank's part of a tensor as stage 3 divides it: equal parts, the last ones padded."""
    size = parameter.ds_tensor.numel()
    part = value.flatten()[rank * size : (rank + 1) * size]
    return nn.functional.pad(part, (0, size - part.numel()))


def _twin(model: nn.Module) -> nn.Module:
    """A copy whose parameters are other objects on the same storage, gradient hooks included."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        twin: Any = nn.Parameter(parameter.detach(), requires_grad=parameter.requires_grad)
        for hook in (parameter._backward_hooks or {}).values():
            twin.register_hook(hook)
        memo[id(parameter)] = twin
    return copy.deepcopy(model, memo)


def _config(settings: TrainSettings, world: World) -> dict[str, Any]:
    """DeepSpeed's own settings; rates, warm-up and accumulation are ours."""
    on_gpu = world.device.type == "cuda"
    halves = settings.precision == "bf16_weights"
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": _micro_batches(settings, world),
        "gradient_clipping": settings.clip if settings.zero else 0.0,
        "zero_optimization": {"stage": settings.zero, "overlap_comm": on_gpu},
        "bf16": {"enabled": halves},
        "data_types": {"grad_accum_dtype": "fp32"},
        "steps_per_print": 10**9,
    }


def _micro_batches(settings: TrainSettings, world: World) -> int:
    own = settings.batch_size // world.size
    return math.ceil(own / (settings.micro_batch or own))


def _check(settings: TrainSettings, world: World) -> None:
    if settings.batch_size % world.size:
        raise SettingsError(
            f"a batch of {settings.batch_size} does not divide among {world.size} ranks",
            where="train.batch_size",
            remedy=f"take a multiple of {world.size}",
        )
    if settings.optimizer != "adamw":
        raise SettingsError(
            f"DeepSpeed runs with adamw here, not with {settings.optimizer}",
            where="train.optimizer",
            remedy="set train.optimizer=adamw, or train.backend=torch",
        )
    if settings.precision == "bf16_weights" and not settings.zero:
        raise SettingsError(
            "weights in bf16 need an optimizer that keeps its own in float32",
            where="train.zero",
            remedy="set train.zero=1 or more, or train.precision=bf16",
        )


def _deepspeed() -> Any:
    """DeepSpeed, imported where it is used: it takes seconds and must know its device."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DS_LOG_LEVEL", "warning")
    import deepspeed
    from deepspeed.utils.logging import set_log_level_from_string

    set_log_level_from_string("warning")
    # Else joining the ranks compiles an extension for minutes, or fails without a compiler.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def _join_alone(world: World) -> None:
    """A process group of one, which DeepSpeed wants where nobody else has made one.

    It stays: DeepSpeed remembers the first group for good.
    """
    if dist.is_initialized():
        return
    os.environ.setdefault("LOCAL_RANK", "0")
    kind = "nccl" if world.device.type == "cuda" else "gloo"
    dist.init_process_group(kind, f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
