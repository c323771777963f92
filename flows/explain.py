"""Flow of the stage `explain`: let the model explain the roots."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="explain", flow_run_name="explain@{key}")
def explain_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `explain` of the round `key` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date(f"explain@{key}", upstream)
