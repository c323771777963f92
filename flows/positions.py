"""Flow of the stage `positions`: cut the games into positions."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="positions", flow_run_name="positions")
def positions_flow(upstream: bool = True) -> Walked:
    """Bring `positions` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("positions", upstream)
