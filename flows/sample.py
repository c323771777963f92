"""Flow of the stage `sample`: choose the roots of a round."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="sample", flow_run_name="sample@{key}")
def sample_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `sample` of the round `key` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date(f"sample@{key}", upstream)
