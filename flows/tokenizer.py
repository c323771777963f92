"""Flow of the stage `tokenizer`: train the tokenizer on the project's own text."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, bring_up_to_date


@flow(name="tokenizer", flow_run_name="tokenizer")
def tokenizer_flow(upstream: bool = True) -> Walked:
    """Bring `tokenizer` up to date; with `upstream`, first all it stands on."""
    return bring_up_to_date("tokenizer", upstream)
