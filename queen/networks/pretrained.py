"""A decoder that is trained already: found by name, path or hub id, checked, and loaded.

What `queen fetch` brings as GGUF is converted once, beside it in the cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queen.networks.errors import NetworkError
from queen.networks.fetch import PACKAGES, fetch, sha256_of

CONFIG = "config.json"
_KEPT = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")


def locate_decoder(source: str, project: Path, downloads: Path) -> Path:
    """The Hugging Face folder of a decoder; fetched and converted where that is needed.

    Args:
        source: see `queen.networks.settings.PretrainedSettings`; a path may be relative to the
            project.
        downloads: the cache.

    Raises:
        NetworkError, FetchError: it cannot be had; says what to do.
    """
    if source in PACKAGES:
        return _converted(fetch(source, downloads), downloads)
    path = Path(source) if Path(source).is_absolute() else project / source
    if path.is_file():
        return _converted(path, downloads)
    if path.is_dir():
        return _whole(path)
    return _from_hub(source)


def load_config(folder: Path, shape: Mapping[str, Any]) -> Any:
    """The decoder's config, checked against the shape that is expected of it."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, error) from error
    for name, wanted in shape.items():
        found = getattr(config, name, None)
        if found != wanted:
            raise NetworkError(
                f"{name} is {found!r}, decoder.shape says {wanted!r}",
                where=str(folder / CONFIG),
                remedy="name the model that the params are for, or correct decoder.shape",
            )
    return config


def load_decoder(folder: Path, shape: Mapping[str, Any]) -> Any:
    """The decoder with float32 weights, in evaluation mode."""
    import torch
    from transformers import AutoModelForCausalLM

    load_config(folder, shape)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(folder), local_files_only=True, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError) as error:
        raise _unreadable(folder, error) from error
    return model.eval()


def folder_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a decoder's files."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _KEPT for path in folder.glob(pattern)}):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()


def _converted(file: Path, downloads: Path) -> Path:
    """The folder a GGUF file was converted to, named by its content."""
    from queen.networks.gguf import convert

    folder = downloads / f"{file.stem}-{sha256_of(file)[:12]}"
    if not (folder / CONFIG).is_file():
        convert(file, folder)
    return folder


def _whole(folder: Path) -> Path:
    for name in (CONFIG, "tokenizer.json"):
        if not (folder / name).is_file():
            raise NetworkError(
                f"{name} is missing",
                where=str(folder),
                remedy="name a Hugging Face folder: config.json, tokenizer.json, *.safetensors",
            )
    return folder


def _from_hub(source: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return _whole(Path(snapshot_download(source, allow_patterns=list(_KEPT))))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise NetworkError(
            f"neither a folder, a GGUF file, nor to be had from the hub: {reason}",
            where=f"decoder.source {source}",
            remedy=f"give the path of a Hugging Face folder, or one of: {', '.join(PACKAGES)}"
            "; a hub id needs its files in the local cache, or a network and HF_HUB_OFFLINE unset",
        ) from error


def _unreadable(folder: Path, error: Exception) -> NetworkError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return NetworkError(
        f"not a decoder: {reason}", where=str(folder), remedy="copy or convert it again"
    )
