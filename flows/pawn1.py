"""Flow of the stage `pawn1`: train the seeds into PAWN."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="pawn1", flow_run_name="pawn1")
def pawn1_flow(upstream: bool = True) -> Walked:
    """Bring `pawn1` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("pawn1", upstream)
