"""What a model will cost to train and to run: memory by ZeRO stage, arithmetic, hours.

Counts are exact, hours are estimates: they stand on a stated peak, a stated share of it that is
reached, and stated lengths of texts. Source of the memory of ZeRO's stages: Rajbhandari et al. 2020
(ZeRO, section 3): 2 bytes a parameter for bf16 weights, 2 for bf16 gradients, 12 for the optimizer
(float32 master weights and Adam's two moments); gradients and optimizer for what trains alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from queen.networks.counts import Counts

SQUARES = 64
WEIGHT, GRADIENT, OPTIMIZER = 2, 2, 12
ZERO_STAGES = (0, 1, 2, 3)
LOGIT = 10  # bytes of a target's logit: bf16, float32, and the gradient of that


@dataclass(frozen=True)
class Device:
    """One accelerator, as its maker states it.

    Attributes:
        name: for people.
        tflops: peak of dense bf16 products, in 10^12 operations a second.
        bandwidth_gb: of its memory, in 10^9 bytes a second.
        memory_gb: its size in 10^9 bytes.
    """

    name: str
    tflops: float
    bandwidth_gb: float
    memory_gb: float


@dataclass(frozen=True)
class Memory:
    """Bytes on one device that training holds whatever the batch."""

    weights: float
    gradients: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer


def memory(counts: Counts, trained: int, encoder: int, zero: int, devices: int) -> Memory:
    """Bytes on each device.

    ZeRO 1 shares the optimizer among the devices, 2 the gradients too, 3 the weights too, those
    that are frozen included. The encoder is whole on each: it only runs forward.

    Args:
        trained: parameters that train.
        encoder: parameters of the frozen encoder.
    """
    share = [devices if zero >= least else 1 for least in (3, 2, 1)]
    return Memory(
        weights=WEIGHT * (counts.total / share[0] + encoder),
        gradients=GRADIENT * trained / share[1],
        optimizer=OPTIMIZER * trained / share[2],
    )


def activations(counts: Counts, tokens: int, targets: int, *, checkpointing: bool) -> float:
    """Bytes that a forward pass over `tokens` keeps for its backward pass; an estimate.

    Without checkpointing, values kept of each token by a decoder layer of Llama's build: two norms
    (each its input in float32 and its unit in bf16), the inputs of its projections, queries, keys,
    values and what attention gives, and four of the feed-forward's width. By a bridge: the inputs
    of two norms, of three projections and of two gates, query and attention's output, twice the
    feed-forward's width. With checkpointing, each block's input, and one layer's and one bridge's
    values while it is computed again. In both, the logits of the targets.

    Args:
        tokens: of one micro-batch, padding included.
        targets: tokens whose logits are computed.
    """
    layer = 2 * (4 * counts.width + 3 * counts.heads_width + 2 * counts.kv_width + 4 * counts.ffn)
    layer += 2 * 4 * counts.width
    bridge = 2 * (6 * counts.width + 3 * counts.bridge_width + 2 * counts.bridge_ffn)
    if checkpointing:
        blocks = 2 * counts.width * (counts.layers + counts.bridges) + layer + bridge
    else:
        blocks = layer * counts.layers + bridge * counts.bridges
    return float(tokens * blocks + targets * LOGIT * counts.vocabulary)


def train_flops(
    counts: Counts,
    trained: int,
    encoder: int,
    tokens: float,
    positions: float,
    length: float,
    *,
    checkpointing: bool,
) -> float:
    """Operations of training on so many tokens.

    A product costs 2 operations a parameter forward, 2 for the gradient of its input and, where it
    trains, 2 for its own; checkpointing repeats the forward pass. The output head is counted on
    every token, though only answers need it: an upper bound.

    Args:
        positions: that the encoder and the bridges' readers look at, each 64 squares.
        length: mean length of a sequence, for self-attention.
    """
    forward = forward_flops(counts, length)
    readers = 2.0 * SQUARES * counts.readers
    moved = min(max(trained - counts.readers, 0), counts.each_token)
    a_token = forward * (3 if checkpointing else 2) + 2 * moved
    a_position = readers * (4 if checkpointing else 3) + 2.0 * SQUARES * encoder
    return tokens * a_token + positions * a_position


def forward_flops(counts: Counts, length: float) -> float:
    """Operations of one token's way through decoder and bridges, at a mean length."""
    attention = 2 * counts.layers * counts.heads_width * length  # causal: half of 4
    cross = 4 * counts.bridges * counts.bridge_width * SQUARES
    return 2.0 * counts.each_token + attention + cross


def decode_seconds(
    counts: Counts, device: Device, share: float, batch: int, tokens: float, length: float
) -> float:
    """Seconds of one device to write `tokens`, `batch` texts at a time; an estimate.

    A step reads all weights and the batch's keys and values, and computes a token for each text:
    the slower of the two by the device's figures (its roofline), over the share of it reached.

    Args:
        length: mean length of a text, its prompt included, while it grows.
    """
    kept = 2 * 2 * (counts.layers * counts.kv_width * length)
    kept += 2 * 2 * counts.bridges * SQUARES * counts.bridge_width
    reading = (WEIGHT * counts.total + batch * kept) / (device.bandwidth_gb * 1e9)
    computing = batch * forward_flops(counts, length) / (device.tflops * 1e12)
    return tokens / batch * max(reading, computing) / share


def compute_seconds(flops: float, device: Device, mfu: float) -> float:
    """Seconds of one device for so many operations at this share of its peak."""
    return flops / (device.tflops * 1e12 * mfu)
