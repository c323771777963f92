"""Flow of the stage `filter`: keep what the engine finds no worse."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="filter", flow_run_name="filter@{key}")
def filter_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `filter` of the round `key` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date(f"filter@{key}", upstream)
