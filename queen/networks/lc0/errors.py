"""What can be wrong with a network file."""

from __future__ import annotations

from queen.errors import QueenError


class NetError(QueenError):
    """A network file that is damaged, incomplete or none at all."""


class UnsupportedNet(NetError):  # noqa: N818
    """A sound network file of a kind that has no implementation here."""
