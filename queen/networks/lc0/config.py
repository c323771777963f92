"""An encoder's configuration: the file's format and the sizes of its parts, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from queen.networks.lc0.format import NetFormat


class Shape(Protocol):
    """The sizes of an architecture: a frozen dataclass that `asdict` makes fit for JSON."""

    @property
    def width(self) -> int:
        """Channels of a state's tokens."""

    @property
    def n_states(self) -> int:
        """Number of states e_0 ... e_N."""


@dataclass(frozen=True)
class Lc0Config:
    """What an encoder is built from, apart from its weights."""

    format: NetFormat
    shape: Shape

    def to_dict(self) -> dict[str, Any]:
        """As written to config.json."""
        shape: Any = self.shape
        sizes = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(shape).items()}
        return {"model_type": "lc0", "format": asdict(self.format), "shape": sizes}


def sizes_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """A shape's fields from JSON, lists as tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
