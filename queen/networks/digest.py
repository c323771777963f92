"""The identity of a network: a digest of all its weights."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def weights_digest(module: nn.Module) -> str:
    """SHA-256 over a module's state: names, types, shapes and bytes, in order of name."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()
