"""Flow of the stage `label`: let the engine score the distinct positions."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="label", flow_run_name="label")
def label_flow(upstream: bool = True) -> Walked:
    """Bring `label` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("label", upstream)
