"""Flow of the stage `seeds`: let the teacher explain the seed positions."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="seeds", flow_run_name="seeds")
def seeds_flow(upstream: bool = True) -> Walked:
    """Bring `seeds` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("seeds", upstream)
