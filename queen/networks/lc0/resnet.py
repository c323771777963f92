"""SE-ResNets (Maia and other networks with a convolutional body) as encoders.

The states are the input block's output and each residual block's, as 64 square tokens:
e_0 ... e_6 for Maia. Source: LC0 file format, "CNN body".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from queen.networks.lc0.attention_policy import AttentionPolicy, PolicyShape
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.format import (
    POLICY_ATTENTION,
    POLICY_CONVOLUTION,
    POLICY_DENSE,
    VALUE_WDL,
    NetFormat,
)
from queen.networks.lc0.heads import ConvolutionPolicy, DensePolicy, ScalarHead
from queen.networks.lc0.layers import (
    Activation,
    State,
    activation,
    as_tokens,
    conv,
    prefixed,
    read_conv,
)
from queen.networks.lc0.planes import PLANES
from queen.networks.lc0.weights import Weights


@dataclass(frozen=True)
class ResNetShape:
    """The sizes of an SE-ResNet; 0 where a part is absent.

    Attributes:
        width: filters of the body.
        squeeze: for each block the hidden width of its squeeze-and-excitation unit.
        policy: outputs of the policy's first layer (convolution, or the attention's embedding).
        policy_depth: of an attention policy's queries and keys.
        policy_layers, policy_heads, policy_layer_depth, policy_hidden: its encoder layers.
        value_planes, value_hidden: the value head's convolution and first dense layer.
        moves_left_planes, moves_left_hidden: the same of the moves-left head.
    """

    width: int
    squeeze: tuple[int, ...]
    policy: int
    policy_depth: int
    policy_layers: int
    policy_heads: int
    policy_layer_depth: int
    policy_hidden: int
    value_planes: int
    value_hidden: int
    moves_left_planes: int
    moves_left_hidden: int

    @property
    def n_states(self) -> int:
        """The input block's and one for each residual block."""
        return len(self.squeeze) + 1


class SqueezeExcite(nn.Module):
    """The squeeze-and-excitation unit of lc0: a gate and a bias for each channel."""

    def __init__(self, width: int, hidden: int, act: Activation) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Linear(width, hidden), nn.Linear(hidden, 2 * width)
        self.act = act

    def forward(self, image: Tensor) -> Tensor:
        gate, bias = self.excite(self.act(self.squeeze(image.mean((2, 3))))).chunk(2, 1)
        return torch.addcmul(bias[..., None, None], gate.sigmoid()[..., None, None], image)


class Residual(nn.Module):
    """act(SE(conv2(act(conv1(x)))) + x), without SE where hidden is 0."""

    def __init__(self, width: int, hidden: int, act: Activation) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv(width, width, 3), conv(width, width, 3)
        self.se = SqueezeExcite(width, hidden, act) if hidden else nn.Identity()
        self.act = act

    def forward(self, image: Tensor) -> Tensor:
        return self.act(self.se(self.conv2(self.act(self.conv1(image)))).add_(image))

    @staticmethod
    def read(weights: Weights, width: int) -> State:
        state = prefixed("conv1", read_conv(weights, "conv1", width, 3, width))
        state |= prefixed("conv2", read_conv(weights, "conv2", width, 3, width))
        if weights.has("se"):
            se = weights.part("se")
            squeeze = se.array("w1", -1, width)
            hidden = len(squeeze)
            state |= {"se.squeeze.weight": squeeze, "se.squeeze.bias": se.array("b1", hidden)}
            state |= {"se.excite.weight": se.array("w2", 2 * width, hidden)}
            state |= {"se.excite.bias": se.array("b2", 2 * width)}
        return state


class ResNetBody(nn.Module):
    """Planes [B, 112, 8, 8] to the states, each [B, 64, width]."""

    def __init__(self, width: int, squeeze: tuple[int, ...], act: Activation) -> None:
        super().__init__()
        self.input = conv(PLANES, width, 3)
        self.blocks = nn.ModuleList(Residual(width, hidden, act) for hidden in squeeze)
        self.act = act

    def forward(self, planes: Tensor) -> list[Tensor]:
        image = self.act(self.input(planes.contiguous(memory_format=torch.channels_last)))
        states = [as_tokens(image)]
        for block in self.blocks:
            image = block(image)
            states.append(as_tokens(image))
        return states


def read_resnet(weights: Weights, form: NetFormat) -> tuple[ResNetShape, State]:
    """The sizes and the folded weights of a file. Raises NetError naming a field at fault."""
    state = prefixed("body.input", read_conv(weights, "input", PLANES, 3))
    width = len(state["body.input.bias"])
    blocks = [Residual.read(block, width) for block in weights.parts("residual")]
    for i, block in enumerate(blocks):
        state |= prefixed(f"body.blocks.{i}", block)
    sizes, policy = _read_policy(weights, form, width)
    value = ScalarHead.read(weights, "value", "val", width, _value_outputs(form))
    moves_left: State = {}
    if form.moves_left:
        moves_left = ScalarHead.read(weights, "moves_left", "mov", width, 1)
    state |= prefixed("policy", policy) | prefixed("value", value)
    state |= prefixed("moves_left", moves_left)
    return ResNetShape(
        width=width,
        squeeze=tuple(_size(block, "se.squeeze.bias") for block in blocks),
        policy=sizes.width,
        policy_depth=sizes.depth,
        policy_layers=sizes.layers,
        policy_heads=sizes.heads,
        policy_layer_depth=sizes.layer_depth,
        policy_hidden=sizes.hidden,
        value_planes=_size(value, "conv.bias"),
        value_hidden=_size(value, "hidden.bias"),
        moves_left_planes=_size(moves_left, "conv.bias"),
        moves_left_hidden=_size(moves_left, "hidden.bias"),
    ), state


def build_resnet(config: Lc0Config) -> Lc0Encoder:
    """An encoder of the configured sizes, weights not yet loaded."""
    shape, form = config.shape, config.format
    assert isinstance(shape, ResNetShape)
    act, outputs = activation(form.default_activation), _value_outputs(form)
    value = ScalarHead(shape.width, shape.value_planes, shape.value_hidden, outputs, act, False)
    moves_left = None
    if form.moves_left:
        planes, hidden = shape.moves_left_planes, shape.moves_left_hidden
        moves_left = ScalarHead(shape.width, planes, hidden, 1, act, True)
    body = ResNetBody(shape.width, shape.squeeze, act)
    return Lc0Encoder(config, body, _policy(shape, form, act), value, moves_left)


def _read_policy(weights: Weights, form: NetFormat, width: int) -> tuple[PolicyShape, State]:
    """A convolutional policy's `width` is the number of its first layer's planes."""
    if form.policy == POLICY_ATTENTION:
        return AttentionPolicy.read(weights, width)
    head = DensePolicy if form.policy == POLICY_DENSE else ConvolutionPolicy
    state = head.read(weights, width)
    return PolicyShape(_size(state, "first.bias"), 0), state


def _policy(shape: ResNetShape, form: NetFormat, act: Activation) -> nn.Module:
    if form.policy == POLICY_DENSE:
        return DensePolicy(shape.width, shape.policy, act)
    if form.policy == POLICY_CONVOLUTION:
        return ConvolutionPolicy(shape.width, shape.policy, act)
    sizes = PolicyShape(
        width=shape.policy,
        depth=shape.policy_depth,
        layers=shape.policy_layers,
        heads=shape.policy_heads,
        layer_depth=shape.policy_layer_depth,
        hidden=shape.policy_hidden,
    )
    return AttentionPolicy(shape.width, sizes, F.selu, F.selu)


def _value_outputs(form: NetFormat) -> int:
    return 3 if form.value == VALUE_WDL else 1


def _size(state: State, name: str) -> int:
    return len(state[name]) if name in state else 0
