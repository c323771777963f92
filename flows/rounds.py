"""The flow of one round: its seven steps, and before them whatever they stand on."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, session, walk
from queen.lineage.params import STEPS
from queen.lineage.rounds import round_values


@flow(name="round", flow_run_name="round {key}")
def round_flow(key: str) -> Walked:
    """Sample, explain, recurse, consolidate, filter, train and evaluate the round `key`."""
    with session(f"round {key}") as root:
        round_values(root, key)
        return walk(root, f"{STEPS[-1]}@{key}")
