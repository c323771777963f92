"""What games against other engines share: who an engine is, when a game is looked at."""

from __future__ import annotations

from queen.engines.analysis import EngineIdentity
from queen.engines.pool import Analyser
from stages.base import EngineParams, Machine, engine_settings

CHECK_EVERY = 20  # plies between looks for a decided game


def identity_of(command: str, engine: EngineParams) -> EngineIdentity:
    """Who an opponent's program is, by starting it with the project's own time limit.

    Raises EngineStartError where it cannot be started.
    """
    params = EngineParams(command=command, timeout_s=engine.timeout_s)
    with Analyser(engine_settings(params, Machine(workers=1))) as analyser:
        return analyser.identity
