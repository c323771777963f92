"""Loading the networks a stage needs from its artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from queen.lineage.artifact import Artifact
from stages.base import Machine

if TYPE_CHECKING:
    from queen.generation.speaker import Speaker
    from queen.networks.expert import Expert


def load_expert(
    encoder: Artifact, wanted: Sequence[int], machine: Machine, role: str = "expert"
) -> Expert:
    """The frozen expert (or the human-move net, role `human`) with the states a bridge reads."""
    import torch

    from queen.networks.expert import Expert
    from queen.networks.lc0.load import load_encoder

    torch.set_num_threads(machine.threads)
    return Expert(load_encoder(encoder.path / role), wanted, memory_mb=machine.cache_mb)


def load_speaker(
    model: Artifact, encoder: Artifact, machine: Machine, batch_size: int = 64
) -> Speaker:
    """A model that explains, with its expert."""
    import torch

    from queen.generation.speaker import load_speaker as load

    torch.set_num_threads(machine.threads)
    return load(model.path, encoder.path / "expert", batch_size, machine.cache_mb)
