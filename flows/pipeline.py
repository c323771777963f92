"""The flow above all others: everything that is stale, from games to the last round's verdict."""

from __future__ import annotations

from prefect import flow

from flows.walking import Walked, session, walk


@flow(name="pipeline", flow_run_name="pipeline")
def pipeline_flow(target: str | None = None) -> Walked:
    """Bring a target (`stage` or `stage@key`), or all stages and rounds, up to date."""
    with session(f"pipeline {target or ''}".strip()) as root:
        return walk(root, target)


if __name__ == "__main__":
    pipeline_flow.serve(name="served", description="The pipeline, served from this process.")
