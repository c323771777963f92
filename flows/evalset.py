"""Flow of the stage `evalset`: choose and label the positions that evaluations use."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="evalset", flow_run_name="evalset")
def evalset_flow(upstream: bool = True) -> Walked:
    """Bring `evalset` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("evalset", upstream)
