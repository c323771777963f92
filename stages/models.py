"""Loading the networks a stage needs from its artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queen.generation.loading import Loading
from queen.generation.speaker import Speaker
from queen.lineage.artifact import Artifact, read_json, write_json
from stages.base import Job, Machine

if TYPE_CHECKING:
    from queen.networks.expert import Expert

SPEAKER = "speaker.json"
_kept: tuple[tuple[object, ...], Speaker] | None = None


def load_expert(
    encoder: Artifact, wanted: Sequence[int], machine: Machine, role: str = "expert"
) -> Expert:
    """The frozen expert (or the human-move net, role `human`) with the states a bridge reads."""
    import torch

    from queen.networks.expert import Expert
    from queen.networks.lc0.load import load_encoder

    torch.set_num_threads(machine.threads)
    return Expert(load_encoder(encoder.path / role), wanted, memory_mb=machine.cache_mb)


def bridged_expert(job: Job[Any], states: Sequence[int]) -> Expert | None:
    """The expert whose states a model's bridges read; None for a model that has no bridge."""
    return load_expert(job.inputs["encoder"], states, job.machine) if states else None


def load_speaker(job: Job[Any], model: Artifact, batch_size: int) -> Speaker:
    """A model that explains, with its expert; the last one is kept, for a stage's shards share it.

    With `machine.generators` other than 1 it writes in processes of its own, which end with this
    one, or when another is asked for.
    """
    global _kept
    machine, encoder = job.machine, job.inputs["encoder"]
    parts = (model.path, model.content, encoder.path, encoder.content)
    wanted = (*parts, batch_size, job.generation, machine.generators, machine.threads)
    if _kept is not None and _kept[0] == wanted:
        return _kept[1]
    if _kept is not None:
        _kept[1].close()
    _kept = (wanted, _loaded(job, model, batch_size))
    return _kept[1]


@contextmanager
def another_speaker(job: Job[Any], model: Artifact, batch_size: int) -> Iterator[Speaker]:
    """A second model that explains, beside the one that is kept."""
    speaker = _loaded(job, model, batch_size)
    try:
        yield speaker
    finally:
        speaker.close()


def write_identity(out: Path, speaker: Speaker) -> None:
    """Write beside a shard's rows who wrote its texts."""
    write_json(out / SPEAKER, speaker.identity)


def speaker_of(folders: Sequence[Path]) -> dict[str, Any]:
    """Who wrote the texts of all shards, for the record; several if they did not agree."""
    found: list[dict[str, str]] = []
    for folder in folders:
        told = read_json(folder / SPEAKER)
        if told not in found:
            found.append(told)
    if not found:
        return {}
    return {"speaker": found[0] if len(found) == 1 else {"several": found}}


def _loaded(job: Job[Any], model: Artifact, batch_size: int) -> Speaker:
    from queen.generation.loading import load_speaker as load

    machine, encoder = job.machine, job.inputs["encoder"].path / "expert"
    loading = Loading(model.path, encoder, batch_size, job.generation.precision)
    if machine.generators != 1:
        return load(replace(loading, threads=1), machine.generators)
    import torch

    torch.set_num_threads(machine.threads)
    return load(loading)
