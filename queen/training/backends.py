"""Which backend a run asks for. DeepSpeed is imported where a run wants it."""

from __future__ import annotations

from torch import nn

from queen.training.backend import Backend, MakeGroups, TorchBackend
from queen.training.settings import SettingsError, TrainSettings
from queen.training.world import World


def open_backend(
    model: nn.Module, make_groups: MakeGroups, settings: TrainSettings, world: World
) -> Backend:
    """The backend a run asks for.

    Args:
        make_groups: gives torch's parameter groups of a model, each with `params`, `lr` and
            `weight_decay`.

    Raises:
        SettingsError: settings that the backend cannot follow.
    """
    if settings.backend == "deepspeed":
        from queen.training.zero import DeepSpeedBackend

        return DeepSpeedBackend(model, make_groups, settings, world)
    if settings.precision == "bf16_weights":
        raise SettingsError(
            "the torch backend keeps weights in float32",
            where="train.precision",
            remedy="set train.precision=bf16, or train.backend=deepspeed",
        )
    return TorchBackend(model, make_groups(model), settings, world)
