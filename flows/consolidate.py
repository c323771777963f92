"""Flow of the stage `consolidate`: fold the children's explanations into the root's."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="consolidate", flow_run_name="consolidate@{key}")
def consolidate_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `consolidate` of the round `key` up to date; `upstream`: first all it stands on."""
    return bring_up_to_date(f"consolidate@{key}", upstream)
