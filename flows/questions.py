"""Flow of the stage `questions`: ask the curriculum's questions and answer them from the rules."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="questions", flow_run_name="questions")
def questions_flow(upstream: bool = True) -> Walked:
    """Bring `questions` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("questions", upstream)
