"""The value network: residual blocks, then transformer blocks, over the 64 squares of a board.

Source: METHOD section 2 (6 ResNet and 16 transformer blocks, 79 M parameters, 103 logits). The
hybrid, a pure ResNet and a pure ViT are one module with other numbers of blocks; norms, learned
positions and the head are ours and the same for all. The head keeps a few channels of each square
apart, as Lc0's do: their mean over the board hardly tells two positions from one another.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.value.labels import CLASSES, expected_score, worth
from queen.networks.value.planes import CLOCK, CLOCK_LIMIT, PLANES, planes_of
from queen.networks.value.settings import ValueSettings

SQUARES = 64
BATCH = 1024
COSINES = 6


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with group normalisation, added to what came in."""

    def __init__(self, settings: ValueSettings) -> None:
        super().__init__()
        width, groups = settings.width, settings.groups
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(groups, width)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(groups, width)

    def forward(self, image: Tensor) -> Tensor:
        """[B, width, 8, 8] to the same."""
        change = F.relu(self.first_norm(self.first(image)))
        return F.relu(image + self.second_norm(self.second(change)))


class TransformerBlock(nn.Module):
    """Attention among the squares, then a feed-forward half, each behind a norm."""

    def __init__(self, settings: ValueSettings) -> None:
        super().__init__()
        width, inner = settings.width, settings.width * settings.ffn_factor
        self.heads = settings.heads
        self.norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ffn_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, 64, width] to the same."""
        count, squares, width = tokens.shape
        mixed = self.queries_keys_values(self.norm(tokens))
        split = mixed.view(count, squares, 3, self.heads, width // self.heads)
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(queries, keys, values)
        tokens = tokens + self.out(read.transpose(1, 2).reshape(count, squares, width))
        changed: Tensor = tokens + self.down(F.gelu(self.up(self.ffn_norm(tokens))))
        return changed


class ValueNet(nn.Module):
    """Logits of a position's expected score, from the side to move.

    Args:
        settings: its sizes. Weights are those torch gives; `new_value` makes a start of its own.
    """

    def __init__(self, settings: ValueSettings) -> None:
        super().__init__()
        self.settings, width = settings, settings.width
        kernel = 3 if settings.residual_blocks else 1
        self.stem = nn.Conv2d(PLANES, width, kernel, padding=kernel // 2)
        residual = range(settings.residual_blocks)
        self.residual = nn.Sequential(*(ResidualBlock(settings) for _ in residual))
        transformer = range(settings.transformer_blocks)
        self.transformer = nn.Sequential(*(TransformerBlock(settings) for _ in transformer))
        self.places = nn.Parameter(torch.zeros(SQUARES, width)) if transformer else None
        self.norm = nn.LayerNorm(width)
        self.squares = nn.Linear(width, settings.head_channels)
        self.hidden = nn.Linear(SQUARES * settings.head_channels, width)
        self.out = nn.Linear(width, CLASSES)

    @property
    def device(self) -> torch.device:
        return self.out.weight.device

    def forward(self, planes: Tensor) -> Tensor:
        """Logits [B, 103] of `planes_of`'s planes [B, 18, 8, 8]."""
        scale = torch.ones(PLANES, device=planes.device)
        scale[CLOCK] = 1 / CLOCK_LIMIT
        image = planes.float() * scale[:, None, None]
        image = self.stem(image.contiguous(memory_format=torch.channels_last))
        image = self.residual(F.relu(image) if len(self.residual) else image)
        tokens = image.flatten(2).transpose(1, 2)
        if self.places is not None:
            tokens = self.transformer(tokens + self.places)
        read = F.gelu(self.squares(self.norm(tokens))).flatten(1)
        logits: Tensor = self.out(F.gelu(self.hidden(read)))
        return logits

    @torch.inference_mode()
    def logits(
        self,
        packed: NDArray[np.uint8],
        halfmove: NDArray[np.integer],
        *,
        batch_size: int = BATCH,
        bf16: bool = False,
    ) -> Tensor:
        """Logits [n, 103] in float32 on the CPU; see `expected`."""
        positions = torch.from_numpy(np.array(packed, np.uint8))
        clocks = torch.from_numpy(np.array(halfmove, np.int64))
        found = torch.empty(len(packed), CLASSES)
        precision = torch.autocast(self.device.type, torch.bfloat16) if bf16 else nullcontext()
        for start in range(0, len(packed), batch_size):
            span = slice(start, start + batch_size)
            planes = planes_of(positions[span].to(self.device), clocks[span].to(self.device))
            with precision:
                found[span] = self(planes).float().cpu()
        return found

    def expected(
        self,
        packed: NDArray[np.uint8],
        halfmove: NDArray[np.integer],
        *,
        batch_size: int = BATCH,
        bf16: bool = False,
    ) -> NDArray[np.float32]:
        """Expected score [n] in [0, 1] of the side to move.

        Args:
            packed: [n, 36] positions, see `queen.positions.packed`.
            halfmove: [n] clocks of the fifty-move rule.
            batch_size: positions of one forward pass.
            bf16: compute in bfloat16 where that is quicker than float32.
        """
        found = self.logits(packed, halfmove, batch_size=batch_size, bf16=bf16)
        return expected_score(found).numpy()


def new_value(settings: ValueSettings, seed: int) -> ValueNet:
    """A network with start weights that depend on the seed alone.

    Matrices start at 1/sqrt(fan-in), those before a ReLU at sqrt(2) times that, those that write
    to a residual stream smaller by sqrt(2 * blocks). The last one is smooth over the classes'
    worth, see `_smooth`.
    """
    with torch.device("meta"):
        net = ValueNet(settings)
    net.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    _initialise(net, generator)
    return net


@torch.no_grad()
def _initialise(net: ValueNet, generator: torch.Generator) -> None:
    small = 1 / math.sqrt(2 * net.settings.blocks)
    for name, module in net.named_modules():
        kind = name.rpartition(".")[2]
        if isinstance(module, nn.Linear | nn.Conv2d):
            factor = math.sqrt(2) if isinstance(module, nn.Conv2d) else 1.0
            factor *= small if kind in ("down", "out") and module is not net.out else 1.0
            module.weight.normal_(
                0, factor / math.sqrt(module.weight[0].numel()), generator=generator
            )
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.LayerNorm | nn.GroupNorm):
            module.weight.fill_(small if kind == "second_norm" else 1.0)
            module.bias.zero_()
    if net.places is not None:
        net.places.normal_(0, 0.02, generator=generator)
    net.out.weight.copy_(_smooth(net.settings.width, generator))


def _smooth(width: int, generator: torch.Generator) -> Tensor:
    """A start [103, width] for the last matrix in which classes of like worth have like rows.

    Each column is a few slow cosines over the expected score. So from the first step on one hidden
    unit moves the whole distribution up or down, where 103 unrelated rows must each be learnt from
    the few positions of its class: from small unrelated ones a small network did not know after
    40,000 positions which side is ahead (benchmarks/value_networks.py). Ours.
    """
    number = torch.arange(1, COSINES + 1)
    slow = torch.cos(math.pi * number * worth()[:, None]) / number
    return slow @ torch.randn(COSINES, width, generator=generator) / math.sqrt(width)
