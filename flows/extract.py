"""Flow of the stage `extract`: every position of large game archives."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="extract", flow_run_name="extract")
def extract_flow(upstream: bool = True) -> Walked:
    """Bring `extract` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("extract", upstream)
