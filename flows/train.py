"""Flow of the stage `train`: train the next model on what was kept."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="train", flow_run_name="train@{key}")
def train_flow(key: str, upstream: bool = True) -> Walked:
    """Bring `train` of the round `key` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date(f"train@{key}", upstream)
