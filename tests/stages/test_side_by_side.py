"""Shards worked by several processes: the same bytes, and errors that say what to do."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from round_project import copy_of_data

from queen.errors import QueenError
from queen.lineage.artifact import Artifact
from stages import questions
from stages.base import Job
from stages.consolidate import SPEC as CONSOLIDATE
from stages.preparing import make_plan, prepare
from stages.registry import find_stage
from stages.runner import run_stage
from stages.seeds import SPEC as SEEDS
from stages.side_by_side import work_side_by_side

STAGES = ("static-current", "dynamic-current", "static-future", "dynamic-future")


def project(folder: Path, shards: int) -> Path:
    """A project about to ask questions: a shard for each stage and split, eight in all."""
    root = copy_of_data(folder)
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["machine"]["shards"] = shards
    params["questions"] = {"positions": dict.fromkeys(STAGES, 8), "heldout": 3}
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    return root


def refuse(*_: object) -> None:
    raise AssertionError("worked in the stage's own process")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return run_stage("questions", project(tmp_path_factory.mktemp("alone"), 1))


def test_two_processes_make_what_one_makes(
    alone: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(questions.SPEC, work=refuse)
    monkeypatch.setattr("stages.runner.find_stage", lambda name: (spec, None))
    made = run_stage("questions", project(tmp_path, 2))
    assert len(made.record.shards) == 8
    assert made.content == alone.content
    assert made.record.shards == alone.record.shards


def test_few_shards_are_worked_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five shards are too few for two processes to be worth their start."""
    spec = replace(questions.SPEC, work=refuse, shards=lambda job: questions.SPEC.shards(job)[:5])
    monkeypatch.setattr("stages.runner.find_stage", lambda name: (spec, None))
    with pytest.raises(AssertionError, match="own process"):
        run_stage("questions", project(tmp_path, 2))


class Deadly:
    """Ends the process that is sent it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (1,)


def ready(root: Path) -> Job[Any]:
    spec, key = find_stage("questions")
    return prepare(spec, key, root)


def test_a_process_that_dies_is_told_with_its_remedy(tmp_path: Path) -> None:
    job = ready(project(tmp_path, 2))
    plan = make_plan(questions.SPEC, job)
    deadly: Any = Deadly()
    with pytest.raises(QueenError, match="a process that worked a shard died") as told:
        work_side_by_side(questions.SPEC, replace(job, engine=deadly), plan)
    assert "questions" in told.value.where
    assert "machine.shards" in told.value.remedy


def test_what_a_shard_raises_is_raised_here(tmp_path: Path) -> None:
    job = ready(project(tmp_path, 2))
    plan = make_plan(questions.SPEC, job)
    (job.inputs["evalset"].path / "rows.parquet").write_bytes(b"no table")
    with pytest.raises(pa.ArrowInvalid, match=r"evalset.*rows\.parquet"):
        work_side_by_side(questions.SPEC, job, plan)


def test_who_asks_an_endpoint_counts_its_budget_in_one_process() -> None:
    for spec, section in ((CONSOLIDATE, "consolidate"), (SEEDS, "seeds")):
        params = yaml.safe_load((Path(__file__).parents[2] / "params.yaml").read_text())
        raw = params[section] if section in params else params["round"][section]
        if section == "seeds":
            local = spec.read_params({**raw, "teacher": params["teacher"]})
            asking = replace(local, teacher=replace(local.teacher, kind="frontier"))
        else:
            local = spec.read_params(raw)
            asking = replace(local, consolidator="llm")
        assert spec.side_by_side(local)
        assert not spec.side_by_side(asking)
