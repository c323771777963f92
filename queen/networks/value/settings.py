"""What a value network is built from, as plain values; importing this loads no network library."""

from __future__ import annotations

from dataclasses import dataclass

from queen.networks.errors import NetworkError

HEAD_CHANNELS = 8


@dataclass(frozen=True)
class ValueSettings:
    """Sizes of a value network: residual blocks first, then transformer blocks, either may be 0.

    With both it is the hybrid of METHOD section 2, with one of them a ResNet or a ViT. The
    defaults are the hybrid at 79 M parameters; that all blocks share one width is ours: the
    source gives the blocks and the count, and with 512 they meet.

    Attributes:
        width: channels of every block.
        residual_blocks: of two 3x3 convolutions each.
        transformer_blocks: over the 64 squares.
        heads: of each attention.
        ffn_factor: inner width of the transformers' feed-forward halves over `width`.
        groups: of the group normalisation in residual blocks. Not batch normalisation: a result
            must not depend on how a batch is divided among ranks.
    """

    width: int = 512
    residual_blocks: int = 6
    transformer_blocks: int = 16
    heads: int = 16
    ffn_factor: int = 4
    groups: int = 4

    def __post_init__(self) -> None:
        if self.residual_blocks < 0 or self.transformer_blocks < 0 or not self.blocks:
            raise _unfit("blocks", "give at least one residual or transformer block")
        for name, used in (("heads", self.transformer_blocks), ("groups", self.residual_blocks)):
            parts = getattr(self, name)
            if used and (parts < 1 or self.width % parts):
                raise _unfit(name, f"give a divisor of the width, {self.width}")
        if self.width < 1 or self.ffn_factor < 1:
            raise _unfit("width", "give sizes of at least 1")

    @property
    def blocks(self) -> int:
        return self.residual_blocks + self.transformer_blocks

    @property
    def head_channels(self) -> int:
        """Channels of each square that the head reads.

        Fewer than eight are a narrow place through which small networks learn slowly.
        """
        return max(HEAD_CHANNELS, self.width // 16)

    @property
    def kind(self) -> str:
        """`hybrid`, `resnet` or `vit`."""
        if not self.transformer_blocks:
            return "resnet"
        return "hybrid" if self.residual_blocks else "vit"


def _unfit(field: str, remedy: str) -> NetworkError:
    return NetworkError("sizes that make no network", where=f"network.{field}", remedy=remedy)
