"""Flow of the stage `pawn`: train the curriculum into the decoder."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="pawn", flow_run_name="pawn")
def pawn_flow(upstream: bool = True) -> Walked:
    """Bring `pawn` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("pawn", upstream)
