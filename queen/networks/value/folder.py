"""Value networks as folders: model.safetensors and config.json."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from queen.networks.errors import NetworkError
from queen.networks.value.network import ValueNet
from queen.networks.value.settings import ValueSettings

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"
MODEL_TYPE = "queen-value"
_REMEDY = "give the folder of a value network, or make it again: `queen run value`"


def save_value(net: ValueNet, folder: Path | str) -> None:
    """Write model.safetensors and, last, config.json; each whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.contiguous().cpu() for name, tensor in net.state_dict().items()}
    config = {"model_type": MODEL_TYPE, "network": asdict(net.settings)}
    staged = folder / f".{WEIGHTS_FILE}.{os.getpid()}"
    save_file(state, staged, metadata={"format": "pt"})
    os.replace(staged, folder / WEIGHTS_FILE)
    staged.write_text(json.dumps(config, indent=2) + "\n")
    os.replace(staged, folder / CONFIG_FILE)


def load_value(folder: Path | str, device: str | torch.device = "cpu") -> ValueNet:
    """Read what `save_value` wrote: frozen, in evaluation mode, on a device.

    Raises NetworkError naming the file at fault.
    """
    folder = Path(folder)
    settings = _read_config(folder / CONFIG_FILE)
    with torch.device("meta"):
        net = ValueNet(settings)
    file = folder / WEIGHTS_FILE
    try:
        net.load_state_dict(load_file(file), assign=True)
    except (OSError, SafetensorError, RuntimeError) as error:
        raise NetworkError(
            f"weights that cannot be read: {error}", where=str(file), remedy=_REMEDY
        ) from error
    return net.requires_grad_(False).eval().to(device)


def is_value(folder: Path | str) -> bool:
    """Whether a folder says that it holds a value network."""
    try:
        raw = json.loads((Path(folder) / CONFIG_FILE).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and raw.get("model_type") == MODEL_TYPE


def _read_config(path: Path) -> ValueSettings:
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        if raw["model_type"] != MODEL_TYPE:
            raise ValueError(f"model_type {raw['model_type']!r}")
        return ValueSettings(**raw["network"])
    except OSError as error:
        raise NetworkError(
            f"cannot be read: {error.strerror}", where=str(path), remedy=_REMEDY
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise NetworkError(
            f"not a value network's configuration: {error!r}", where=str(path), remedy=_REMEDY
        ) from error
