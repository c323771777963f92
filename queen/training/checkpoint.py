"""Checkpoints of a running training: folders that are whole or not there.

A checkpoint is a folder `checkpoint-<step>` with the trained tensors (model.safetensors), the
optimizer's and the run's own (optimizer.safetensors), and state.json with the sizes and hashes
of both. It is written beside its place, flushed to disk and renamed, and the one before it is
removed only then: killed or out of space at any moment, the last one is still whole.

All tensors are whole, by the names of the model's parameters, however many ranks and whatever
backend trained them. For a Hugging Face model the folder is one of its format too: config.json
stands beside the weights, and frozen weights, written once, are a second part of them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import xxhash
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from queen.errors import QueenError
from queen.training.world import World

FORMAT = 1
_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_PREFIX, _UNFINISHED = "checkpoint-", ".unfinished-"
_TRAINED_PART, _FROZEN_PART = (f"model-0000{part}-of-00002.safetensors" for part in (1, 2))
_FROZEN, _CONFIG, _INDEX = "frozen.safetensors", "config.json", "model.safetensors.index.json"


class CheckpointError(QueenError):
    """A checkpoint that cannot be written, read, or gone on from."""


@dataclass(frozen=True)
class Checkpoint:
    """What a training goes on from.

    Attributes:
        step: optimizer steps done.
        model: trained tensors by name.
        optimizer: the optimizer's tensors and the run's own, by name.
        state: JSON values: settings, task, counts.
        folder: where it was read from.
        frozen: the model's other weights by name, for Hugging Face's format.
        config: the text of its config.json; empty for a model that has none.
    """

    step: int
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]
    state: Mapping[str, Any]
    folder: Path = Path()
    frozen: Mapping[str, Tensor] = field(default_factory=dict)
    config: str = ""


def save(work: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under `work` and remove those before it.

    Raises:
        CheckpointError: the disk is full or not writable; older checkpoints are untouched.
    """
    target = work / f"{_PREFIX}{checkpoint.step:09d}"
    unfinished = work / f"{_UNFINISHED}{target.name}"
    try:
        _write(unfinished, checkpoint, work / _FROZEN)
        if target.exists():
            shutil.rmtree(target)
        os.replace(unfinished, target)
        _flush(work)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise CheckpointError(
            f"the checkpoint could not be written: {error}",
            where=str(target),
            remedy="free space on that disk and run again: it goes on from the checkpoint before",
        ) from error
    _remove_all_but(work, target)
    return target


def latest(work: Path) -> Checkpoint | None:
    """The newest checkpoint under `work`, or None.

    Raises:
        CheckpointError: it is not what was written (a file is missing, cut or altered).
    """
    _remove_unfinished(work)
    folders = sorted(work.glob(f"{_PREFIX}*"))
    if not folders:
        (work / _FROZEN).unlink(missing_ok=True)  # of another run, perhaps
    return _read(folders[-1]) if folders else None


def matching(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], source: Path) -> None:
    """Check that tensors read from `source` are those wanted, by name, shape and dtype.

    Raises:
        CheckpointError: names the file and the first tensor that differs.
    """
    for name in sorted(set(found) | set(wanted)):
        have, want = found.get(name), wanted.get(name)
        if have is None or want is None:
            what = "is missing from the file" if have is None else "is not in the model"
        elif have.shape != want.shape or have.dtype != want.dtype:
            what = f"is {_kind(have)} in the file and {_kind(want)} in the model"
        else:
            continue
        raise CheckpointError(
            f"tensor {name!r} {what}",
            where=str(source),
            remedy="go on with the model it was made for, or remove the folder to start afresh",
        )


def model_file(folder: Path) -> Path:
    """The file of the trained tensors in a checkpoint's folder."""
    part = folder / _TRAINED_PART
    return part if part.exists() else folder / _MODEL


def optimizer_file(folder: Path) -> Path:
    """The file of the optimizer's tensors in a checkpoint's folder."""
    return folder / _OPTIMIZER


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a safetensors file and flush it to disk."""
    plain = {name: _plain(tensor) for name, tensor in sorted(tensors.items())}
    save_file(plain, path, metadata={"format": "pt"})
    _flush(path)


def _write(folder: Path, checkpoint: Checkpoint, frozen: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = _TRAINED_PART if checkpoint.frozen else _MODEL
    save_tensors(folder / model, checkpoint.model)
    save_tensors(folder / _OPTIMIZER, checkpoint.optimizer)
    if checkpoint.config:
        _write_text(folder / _CONFIG, checkpoint.config)
    if checkpoint.frozen:
        _add_frozen(folder, checkpoint, frozen)
    record = {
        "format": FORMAT,
        "step": checkpoint.step,
        "files": {name: _description(folder / name) for name in (model, _OPTIMIZER)},
        **checkpoint.state,
    }
    _write_text(folder / _STATE, json.dumps(record, indent=1, sort_keys=True) + "\n")
    _flush(folder)


def _add_frozen(folder: Path, checkpoint: Checkpoint, kept: Path) -> None:
    """The frozen weights as a second part of the model: a link to a file written once."""
    if not kept.exists():
        partial = kept.with_suffix(".partial")
        save_tensors(partial, checkpoint.frozen)
        os.replace(partial, kept)
    try:
        os.link(kept, folder / _FROZEN_PART)
    except OSError:
        shutil.copyfile(kept, folder / _FROZEN_PART)
    parts = {_TRAINED_PART: checkpoint.model, _FROZEN_PART: checkpoint.frozen}
    places = {name: part for part, tensors in parts.items() for name in tensors}
    size = sum(each.nbytes for tensors in parts.values() for each in tensors.values())
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
    _write_text(folder / _INDEX, json.dumps(index, indent=1) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    _flush(path)


def _read(folder: Path) -> Checkpoint:
    record = _record(folder / _STATE)
    for name, written in record["files"].items():
        path = folder / name
        if not path.is_file() or _description(path) != written:
            raise CheckpointError(
                "the file is missing or not what was written",
                where=str(path),
                remedy=f"remove {folder} to start the training afresh",
            )
    return Checkpoint(
        step=record["step"],
        model=load_file(model_file(folder)),
        optimizer=load_file(folder / _OPTIMIZER),
        state=record,
        folder=folder,
    )


def _record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
        complete = record["format"] == FORMAT and {"step", "files"} <= set(record)
    except (OSError, ValueError, KeyError, TypeError):
        complete = False
    if not complete:
        raise CheckpointError(
            f"not the state of a checkpoint of format {FORMAT}",
            where=str(path),
            remedy=f"remove {path.parent} to start the training afresh",
        )
    return dict(record)


def _description(path: Path) -> dict[str, Any]:
    digest = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return {"bytes": path.stat().st_size, "xxh3_128": digest.hexdigest()}


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu").contiguous()


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_unfinished(work: Path) -> None:
    for folder in work.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _remove_all_but(work: Path, keep: Path) -> None:
    """Remove older checkpoints; renamed first, so that none is ever half there."""
    for folder in work.glob(f"{_PREFIX}*"):
        if folder != keep:
            doomed = work / f"{_UNFINISHED}{folder.name}"
            os.replace(folder, doomed)
            shutil.rmtree(doomed, ignore_errors=True)


def generator_state(world: World) -> dict[str, Tensor]:
    """State of all ranks' torch generators as tensors by name; every rank must ask."""
    states = {"generator/cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["generator/cuda"] = torch.cuda.get_rng_state()
    return {
        _of_rank(name, rank): each
        for name, state in states.items()
        for rank, each in enumerate(world.gather_bytes(state))
    }


def restore_generators(states: Mapping[str, Tensor], world: World, seed: int) -> None:
    """Set torch's generators to this rank's saved states; one this machine lacks is passed over.

    A rank that was not there when they were saved begins from `seed`.
    """
    cpu, cuda = (_of_rank(f"generator/{kind}", world.rank) for kind in ("cpu", "cuda"))
    if cpu not in states:
        torch.manual_seed(seed)
        return
    torch.set_rng_state(states[cpu])
    if cuda in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states[cuda])


def _of_rank(name: str, rank: int) -> str:
    return f"{name}/{rank}" if rank else name
