"""From a network file to an encoder, and encoders as folders in Hugging Face's layout."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from queen.networks.lc0.bodies import body_for
from queen.networks.lc0.config import Lc0Config, sizes_of
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.errors import NetError, UnsupportedNet
from queen.networks.lc0.format import NetFormat
from queen.networks.lc0.proto import Message, read_net
from queen.networks.lc0.weights import Weights

WEIGHTS_FILE, CONFIG_FILE = "model.safetensors", "config.json"


@dataclass(frozen=True)
class Lc0Net:
    """A network file, decoded: what to build and the float32 weights to load into it.

    Batch normalisation is folded into the convolutions, so the weights are not those of the file
    one for one.
    """

    config: Lc0Config
    state_dict: dict[str, Tensor]


def load_net(path: Path | str) -> Lc0Net:
    """Read a .pb or .pb.gz file of lc0.

    Warns of biases that the file does not have and that are taken as zero. Raises NetError naming
    file, field and remedy, UnsupportedNet naming the format of a sound file without
    implementation.
    """
    return net_of(read_net(Path(path)), str(path))


def net_of(net: Message, name: str) -> Lc0Net:
    """As `load_net`, from a decoded `Net`; errors call it by the name given."""
    if "weights" not in net:
        raise _without_weights(net, f"{name}, field weights")
    form = NetFormat.of(net)
    body = body_for(form, name)
    weights = Weights(net["weights"], name)
    shape, arrays = body.read(weights, form)
    if weights.absent:
        _warn_of_absent(name, weights.absent)
    state = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    return Lc0Net(Lc0Config(form, shape), state)


def build(net: Lc0Net) -> Lc0Encoder:
    """The encoder of a decoded network: float32, on the CPU, frozen, in evaluation mode."""
    state = {name: tensor.clone() for name, tensor in net.state_dict.items()}
    return _loaded(net.config, state, "the network")


def save_encoder(encoder: Lc0Encoder, folder: Path | str) -> None:
    """Write model.safetensors and, last, config.json; each whole or not at all."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.contiguous().cpu() for name, tensor in encoder.state_dict().items()}
    config = json.dumps(encoder.config.to_dict(), indent=2) + "\n"
    staged = folder / f".{WEIGHTS_FILE}.{os.getpid()}"
    save_file(state, staged, metadata={"format": "pt"})
    os.replace(staged, folder / WEIGHTS_FILE)
    staged.write_text(config)
    os.replace(staged, folder / CONFIG_FILE)


def load_encoder(folder: Path | str) -> Lc0Encoder:
    """Read what `save_encoder` wrote: frozen, in evaluation mode.

    Raises NetError naming the file at fault.
    """
    folder = Path(folder)
    config = _read_config(folder / CONFIG_FILE)
    try:
        state = load_file(folder / WEIGHTS_FILE)
    except (OSError, SafetensorError) as error:
        raise NetError(
            f"cannot be read: {error}",
            where=str(folder / WEIGHTS_FILE),
            remedy="make the encoder's folder again from its network file",
        ) from error
    return _loaded(config, state, str(folder / WEIGHTS_FILE))


def _warn_of_absent(name: str, absent: list[str]) -> None:
    first = ", ".join(absent[:3]) + (" ..." if len(absent) > 3 else "")
    warnings.warn(
        f"{name}: {len(absent)} missing biases are taken as zero: {first}",
        stacklevel=3,
    )


def _without_weights(net: Message, where: str) -> NetError:
    if "onnx_model" in net:
        remedy = "get the network in lc0's own format"
        return UnsupportedNet("holds an ONNX model and no weights", where=where, remedy=remedy)
    return NetError("missing: the file is cut short", where=where, remedy="get the file again")


def _loaded(config: Lc0Config, state: Mapping[str, Tensor], where: str) -> Lc0Encoder:
    with torch.device("meta"):  # no initial weights: they would draw from the global generator
        encoder = body_for(config.format, where).build(config)
    try:
        encoder.load_state_dict(dict(state), assign=True)
    except RuntimeError as error:
        raise NetError(
            f"weights of another shape than the configuration's: {error}",
            where=where,
            remedy="keep model.safetensors and config.json of one encoder together",
        ) from error
    return encoder.requires_grad_(False).eval()


def _read_config(path: Path) -> Lc0Config:
    remedy = "make the encoder's folder again from its network file"
    try:
        raw: dict[str, Any] = json.loads(path.read_text())
        form = NetFormat.from_dict(raw["format"], str(path))
        shape = body_for(form, str(path)).shape(**sizes_of(raw["shape"]))
    except OSError as error:
        raise NetError(
            f"cannot be read: {error.strerror}", where=str(path), remedy=remedy
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NetError(
            f"not an encoder's configuration: {error!r}", where=str(path), remedy=remedy
        ) from error
    return Lc0Config(form, shape)
