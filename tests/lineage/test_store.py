"""Shards are kept under a key of all that matters, and only when whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from queen.errors import QueenError
from queen.lineage.store import ShardStore, shard_key


def test_a_finished_shard_is_found_again(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    assert store.get("filter", "k") is None
    store.put("filter", "k", lambda folder: (folder / "rows").write_text("abc"))
    found = store.get("filter", "k")
    assert found is not None
    assert (found / "rows").read_text() == "abc"
    assert not list(store.problems("filter", "k"))


def test_a_shard_whose_work_failed_leaves_nothing(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)

    def work(folder: Path) -> None:
        (folder / "rows").write_text("abc")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.put("filter", "k", work)
    assert store.get("filter", "k") is None
    assert list((tmp_path / "filter").iterdir()) == []


def test_a_cut_shard_counts_as_absent_and_a_changed_one_is_named(tmp_path: Path) -> None:
    store = ShardStore(tmp_path)
    folder = store.put("filter", "k", lambda f: (f / "rows").write_text("abc"))
    (folder / "rows").write_text("abd")
    assert list(store.problems("filter", "k")) == [
        "shard filter/k: file rows is missing or changed"
    ]
    (folder / "rows").write_text("ab")
    assert store.get("filter", "k") is None


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"files": []}', '{"files": {"rows": 3}}'])
def test_a_broken_manifest_counts_as_absent_and_is_named(tmp_path: Path, manifest: str) -> None:
    store = ShardStore(tmp_path)
    folder = store.put("filter", "k", lambda f: (f / "rows").write_text("abc"))
    (folder / "shard.json").write_text(manifest)
    assert store.get("filter", "k") is None
    assert list(store.problems("filter", "k")) == [
        "shard filter/k: its manifest is missing or broken"
    ]
    store.put("filter", "k", lambda f: (f / "rows").write_text("abc"))
    assert store.get("filter", "k") == folder


def test_keys_follow_every_part_and_refuse_what_is_no_json() -> None:
    base = {"stage": "filter", "params": {"a": 1}, "inputs": {"x": "h"}}
    assert shard_key(base) == shard_key(dict(reversed(base.items())))
    assert shard_key(base) != shard_key({**base, "params": {"a": 2}})
    with pytest.raises(QueenError):
        shard_key({"params": object()})
