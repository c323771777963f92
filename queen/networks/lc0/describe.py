"""What a network is, and what it says of a position, in plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from queen.games.chess.position import Position
from queen.networks.digest import weights_digest
from queen.networks.lc0.attention_body import AttentionShape
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.load import build, load_encoder, load_net
from queen.networks.lc0.moves import policy_over_legal
from queen.networks.lc0.planes import encode_planes


def read_encoder(path: Path | str) -> Lc0Encoder:
    """From a .pb or .pb.gz file, or a folder of `save_encoder`. Raises NetError on either."""
    return load_encoder(path) if Path(path).is_dir() else build(load_net(path))


def describe(encoder: Lc0Encoder) -> dict[str, Any]:
    """A network in values fit for JSON.

    Returns keys `format` (names), `blocks` (residual blocks or encoder layers), `width` (channels
    of a token), `states` (their number), `heads` (names of the policy, value and moves-left
    heads), `attention_heads` (of each encoder layer, 0 where there are none), `parameters`,
    `sizes`, `digest` (of the loaded weights).
    """
    shape = encoder.config.shape
    form = encoder.config.format.names()
    return {
        "format": form,
        "blocks": encoder.n_states - 1,
        "width": encoder.width,
        "states": encoder.n_states,
        "heads": {
            "policy": list(encoder.policy_heads or (form["policy"],)),
            "value": list(encoder.value_heads or (form["value"],)),
            "moves_left": encoder.moves_left is not None,
        },
        "attention_heads": shape.layer.heads if isinstance(shape, AttentionShape) else 0,
        "parameters": sum(weight.numel() for weight in encoder.parameters()),
        "sizes": _sizes(encoder.config),
        "digest": weights_digest(encoder),
    }


def opinion_of(
    encoder: Lc0Encoder, position: Position, policy_head: str = "", value_head: str = ""
) -> dict[str, Any]:
    """What a network says of a position, with the moves that led to it where they are known.

    Returns keys `policy` (logit of each legal move by UCI, best first), `shares` (their softmax),
    `wdl` or `value` (whichever the network has), `expected` (score in [0, 1]) and `moves_left`
    (plies, None without such a head), all for the side to move. Raises NetError on a head that is
    not there, PositionError on an illegal position.
    """
    with torch.inference_mode():
        planes = encode_planes([position], encoder.input_format)
        output = encoder(planes, policy_head, value_head)
    logits = policy_over_legal(output.policy[0], position.board(), encoder.input_format)
    policy = dict(sorted(logits.items(), key=lambda pair: (-pair[1], pair[0])))
    shares = torch.tensor(list(policy.values()), dtype=torch.float64).softmax(0).tolist()
    value = (
        {"value": output.value[0, 0].item()}
        if output.value is not None
        else {"wdl": output.wdl[0].tolist() if output.wdl is not None else None}
    )
    left = None if output.moves_left is None else output.moves_left[0, 0].item()
    return {
        "policy": policy,
        "shares": dict(zip(policy, shares, strict=True)),
        **value,
        "expected": output.expected[0].item(),
        "moves_left": left,
    }


def _sizes(config: Lc0Config) -> dict[str, Any]:
    """The sizes of the parts that are there."""
    sizes: dict[str, Any] = config.to_dict()["shape"]
    return {name: size for name, size in sizes.items() if size}
