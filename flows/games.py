"""Flow of the stage `games`: read, split and keep the games."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="games", flow_run_name="games")
def games_flow(upstream: bool = True) -> Walked:
    """Bring `games` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("games", upstream)
