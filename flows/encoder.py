"""Flow of the stage `encoder`: turn the expert's network into a checkpoint."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="encoder", flow_run_name="encoder")
def encoder_flow(upstream: bool = True) -> Walked:
    """Bring `encoder` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("encoder", upstream)
