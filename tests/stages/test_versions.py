"""Somebody has said of every change of code what it means for a stage's outputs."""

from __future__ import annotations

from stages.versions import stale


def test_every_stage_was_settled_after_its_code_changed() -> None:
    assert stale() == [], "say `queen version STAGE --bump` or `--same` for each"
