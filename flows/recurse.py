"""Flow of the stage `recurse`: let the model explain the children."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="recurse", flow_run_name="recurse@{key}")
def recurse_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `recurse` of the round `key` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date(f"recurse@{key}", upstream)
