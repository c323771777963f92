"""What a network file is, and what it says of a position, in plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from queen.games.chess.position import Position
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.encoder import Lc0Encoder
from queen.networks.lc0.load import build, load_net, weights_digest
from queen.networks.lc0.moves import policy_over_legal
from queen.networks.lc0.planes import encode_planes


def describe(path: Path | str, position: Position | None = None, top: int = 5) -> dict[str, Any]:
    """A network and, where a position is given, its opinion, fit for JSON.

    Args:
        path: a .pb or .pb.gz file.
        position: with the moves that led to it, where they are known.
        top: how many moves to name.

    Returns keys `file`, `format` (names), `sizes`, `states` (their number), `width` (channels of
    a token), `parameters`, `digest` (of the loaded weights), `opinion` (see `opinion_of`, None
    without a position). Raises NetError or UnsupportedNet on the file, PositionError on the
    position.
    """
    encoder = build(load_net(path))
    return {
        "file": str(path),
        "format": encoder.config.format.names(),
        "sizes": _sizes(encoder.config),
        "states": encoder.n_states,
        "width": encoder.width,
        "parameters": sum(weight.numel() for weight in encoder.parameters()),
        "digest": weights_digest(encoder),
        "opinion": None if position is None else opinion_of(encoder, position, top),
    }


def opinion_of(encoder: Lc0Encoder, position: Position, top: int = 5) -> dict[str, Any]:
    """Keys `fen`, `moves` (pairs of UCI and probability among the legal moves, best first),
    `wdl` and `value` (one of them None), `expected` (score in [0, 1]) and `moves_left`, all for
    the side to move.
    """
    with torch.inference_mode():
        output = encoder(encode_planes([position], encoder.input_format))
    logits = policy_over_legal(output.policy[0], position.board())
    shares = torch.tensor(list(logits.values())).softmax(0).tolist() if logits else []
    ranked = sorted(zip(logits, shares, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return {
        "fen": position.fen,
        "moves": ranked[:top],
        "wdl": None if output.wdl is None else output.wdl[0].tolist(),
        "value": None if output.value is None else output.value[0, 0].item(),
        "expected": output.expected[0].item(),
        "moves_left": None if output.moves_left is None else output.moves_left[0, 0].item(),
    }


def _sizes(config: Lc0Config) -> dict[str, Any]:
    """The sizes of the parts that are there."""
    sizes: dict[str, Any] = config.to_dict()["shape"]
    return {name: size for name, size in sizes.items() if size}
