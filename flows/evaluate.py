"""Flow of the stage `evaluate`: play, measure and judge the new model."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="evaluate", flow_run_name="evaluate@{key}")
def evaluate_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `evaluate` of the round `key` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date(f"evaluate@{key}", upstream)
