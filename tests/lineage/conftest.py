"""The toy project for these tests."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pytest
from toy_project.fixtures import built, built_template, toy, toy_template

from queen.lineage.artifact import Record, describe_files, fresh_partial, publish

__all__ = ["built", "built_template", "toy", "toy_template"]


@pytest.fixture
def make_artifact() -> Callable[[Path, str, str], str]:
    """Makes a complete artifact of one file under a project; returns its content hash."""

    def make(root: Path, name: str, stage: str, text: str = "rows") -> str:
        folder = root / name
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = fresh_partial(folder)
        (partial / "rows.txt").write_text(text)
        record = Record(
            name=name, stage=stage, version=1, recipe=name, seed=0, params={"a": 1}, inputs=(),
            shards=(), files=describe_files(partial), counts={"rows": 1}, drops={}, figures={},
            identities={}, licences={},
        )  # fmt: skip
        return publish(partial, folder, record).content

    return make
