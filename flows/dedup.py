"""Flow of the stage `dedup`: each position once."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="dedup", flow_run_name="dedup")
def dedup_flow(upstream: bool = True) -> Walked:
    """Bring `dedup` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("dedup", upstream)
