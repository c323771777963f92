"""The value network: 18 planes of a position in, its expected score in 101 buckets out.

    net = load_value("models/value", device="cuda")
    net.expected(packed, halfmove)          # of the side to move, in [0, 1]

`settings` are its sizes, `planes` its input, `labels` its output and loss, `network` the module,
`folder` how it is saved and loaded. Importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queen.networks.value.folder import load_value, save_value
    from queen.networks.value.network import ValueNet, new_value

_HOME = {
    "load_value": "folder",
    "save_value": "folder",
    "ValueNet": "network",
    "new_value": "network",
}

__all__ = ["ValueNet", "load_value", "new_value", "save_value"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
