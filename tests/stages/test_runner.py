"""The runner: what a shard used is known, and a full disk is an error that says what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from round_project import KEY, copy_of_round

from queen.engines.cache import SearchCache
from queen.lineage.artifact import open_artifact
from stages import runner


def test_every_search_is_known_by_the_shard_that_used_it(tmp_path: Path) -> None:
    """Without, `queen gc` could not tell which searches nothing refers to."""
    project = copy_of_round(tmp_path)
    with SearchCache(project / ".state" / "searches.sqlite") as cache:
        used = cache.labels()
        pruned = cache.prune(lambda label: label in used, dry_run=True)
    for name in ("data/evalset", f"data/filter/{KEY}"):
        assert set(open_artifact(project / name).record.shards) & used.keys(), name
    assert pruned.labels == 0


def test_a_full_disk_is_told_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(name: str, project: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "rows.parquet")

    monkeypatch.setattr(runner, "run_stage", full)
    assert runner.main(["games"]) == runner.STOPPED
    told = capsys.readouterr().err
    assert "rows.parquet: cannot write: No space left on device" in told
    assert "make room" in told
