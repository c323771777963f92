"""From a model's folder to what writes with it: in this process, or in several."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from queen.generation.pool import GeneratorPool
from queen.generation.speaker import Speaker
from queen.networks.settings import reads_fen

if TYPE_CHECKING:
    import torch

    from queen.generation.decode import Generator

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class Loading:
    """What to load and how.

    Attributes:
        model: folder in Hugging Face's format, its tokenizer beside it.
        encoder: folder of the encoder it was trained on; not looked at for a model without bridges.
        batch_size: texts decoded together.
        precision: of weights and caches; `auto` is bfloat16 on a GPU, float32 elsewhere.
        threads: torch's, in each process of a pool; 0 leaves them as they are.
    """

    model: Path
    encoder: Path
    batch_size: int = 64
    precision: Precision = "auto"
    threads: int = 0


def load_generator(loading: Loading, number: int = 0) -> Generator:
    """A generator in this process, on the `number`th GPU (counted round) where there is one.

    The weights are digested as they are on disk, before they are moved or rounded. The expert
    remembers nothing: what is computed together must not hang on what was asked before.
    """
    import torch

    from queen.generation.decode import Generator
    from queen.language.tokenizer import load_tokenizer
    from queen.networks.digest import weights_digest
    from queen.networks.expert import Expert
    from queen.networks.lc0.load import load_encoder
    from queen.networks.queen import QueenModel

    if loading.threads:
        torch.set_num_threads(loading.threads)
    device = _place(number)
    dtype = _number_type(loading.precision, device)
    net = QueenModel.from_pretrained(loading.model).eval()
    digest = weights_digest(net)
    net = net.to(device) if device.type == "cpu" else net.to(device, dtype)
    expert = None
    if not net.config.reads_fen:
        encoder = load_encoder(loading.encoder).to(device)
        expert = Expert(encoder, net.config.bridge_states, memory_mb=0)
    tokenizer = load_tokenizer(loading.model)
    return Generator(net, tokenizer, expert, loading.batch_size, dtype, digest=digest)


def load_speaker(loading: Loading, generators: int = 1) -> Speaker:
    """A speaker whose texts are written in this process, or in so many of their own.

    Args:
        loading: what to load and how.
        generators: 1 for this process alone; 0 for a process on each GPU, or else on each core.
    """
    fen_text = reads_fen(loading.model)
    if generators == 1:
        return Speaker(load_generator(loading), fen_text)
    count = generators or processes()
    make = functools.partial(load_generator, loading)
    return Speaker(GeneratorPool(make, count, loading.batch_size), fen_text)


def processes() -> int:
    """How many processes can write at once here: one for each GPU, or else for each core."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.device_count()
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _place(number: int) -> torch.device:
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda", number % torch.cuda.device_count())
    return torch.device("cpu")


def _number_type(precision: Precision, device: torch.device) -> torch.dtype:
    import torch

    if precision == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return torch.float32 if precision == "float32" else torch.bfloat16
