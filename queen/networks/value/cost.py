"""Parameters and operations of a value network, from its sizes alone; loads no network library."""

from __future__ import annotations

from queen.networks.value.settings import ValueSettings

SQUARES, PLANES, CLASSES = 64, 18, 103


def parameters(settings: ValueSettings) -> int:
    """How many there are: the module's own count, without building it."""
    width, inner = settings.width, settings.width * settings.ffn_factor
    stem = width * (PLANES * _kernel(settings) + 1)
    residual = 2 * (9 * width * width + 2 * width)
    attention = 4 * (width * width + width)
    feed_forward = 2 * width * inner + inner + width
    transformer = attention + feed_forward + 2 * 2 * width
    places = SQUARES * width if settings.transformer_blocks else 0
    kept = settings.head_channels
    head = 2 * width + kept * (width + 1) + width * (SQUARES * kept + 1) + CLASSES * (width + 1)
    blocks = settings.residual_blocks * residual + settings.transformer_blocks * transformer
    return stem + blocks + places + head


def forward_flops(settings: ValueSettings) -> float:
    """Operations of one position's forward pass: two for each product of matrices' entries.

    The zeros around the board count as squares of it; norms and activations are left out.
    """
    width, inner = settings.width, settings.width * settings.ffn_factor
    residual = 2 * 9 * width * width
    transformer = 4 * width * width + 2 * width * inner + 2 * SQUARES * width
    by_square = (
        PLANES * _kernel(settings) * width
        + settings.residual_blocks * residual
        + settings.transformer_blocks * transformer
        + 2 * settings.head_channels * width
    )
    return 2.0 * (SQUARES * by_square + CLASSES * width)


def _kernel(settings: ValueSettings) -> int:
    return 9 if settings.residual_blocks else 1
