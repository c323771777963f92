"""The error of networks, apart from the networks: their libraries take seconds to import."""

from __future__ import annotations

from queen.errors import QueenError


class NetworkError(QueenError):
    """A network whose parts do not fit each other, or a part that does not exist."""
