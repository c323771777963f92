"""Lc0 network files and their forward pass.

The public names stand here and are imported when first used, so that importing the package costs
nothing:

    net = load_net("maia-1900.pb.gz")
    encoder = build(net)
    output = encoder(encode_planes(positions, encoder.input_format))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queen.networks.lc0.config import Lc0Config
    from queen.networks.lc0.encoder import Lc0Encoder, Lc0Output, real_squares
    from queen.networks.lc0.errors import NetError, UnsupportedNet
    from queen.networks.lc0.load import Lc0Net, build, load_encoder, load_net, save_encoder
    from queen.networks.lc0.moves import MOVES, legal_indices, move_index, policy_over_legal
    from queen.networks.lc0.planes import black_to_move, encode_planes

_HOMES = {
    "config": ("Lc0Config",),
    "encoder": ("Lc0Encoder", "Lc0Output", "real_squares"),
    "errors": ("NetError", "UnsupportedNet"),
    "load": ("Lc0Net", "build", "load_encoder", "load_net", "save_encoder"),
    "moves": ("MOVES", "legal_indices", "move_index", "policy_over_legal"),
    "planes": ("black_to_move", "encode_planes"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "MOVES",
    "Lc0Config",
    "Lc0Encoder",
    "Lc0Net",
    "Lc0Output",
    "NetError",
    "UnsupportedNet",
    "black_to_move",
    "build",
    "encode_planes",
    "legal_indices",
    "load_encoder",
    "load_net",
    "move_index",
    "policy_over_legal",
    "real_squares",
    "save_encoder",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
