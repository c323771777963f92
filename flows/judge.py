"""Flow of the stage `judge`: evaluate a model that no round made (pawn, pawn1)."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="judge", flow_run_name="judge@{key}")
def judge_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `judge` of the model `key` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date(f"judge@{key}", upstream)
