"""Flow of the stage `value`: train the value network on labelled positions."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="value", flow_run_name="value")
def value_flow(upstream: bool = True) -> Walked:
    """Bring `value` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("value", upstream)
