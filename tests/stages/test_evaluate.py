"""Evaluation: what is compared is comparable, and what could not be written has its own reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from round_project import KEY, NODES, TeacherSpeaks, copy_of_round

from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge
from queen.engines.pool import Analyser
from queen.errors import QueenError
from queen.generation.decode import Completion, Sampling
from queen.generation.speaker import Asked
from queen.lineage.artifact import Artifact, open_artifact
from queen.lineage.verdicts import FILE
from stages import evaluate
from stages.base import EngineParams, Job, Machine, engine_settings
from stages.preparing import prepare
from stages.registry import find_stage
from stages.runner import run_stage

EVALUATION: dict[str, Any] = {
    "games": 8,
    "opening_plies": [2, 2],
    "max_plies": 8,
    "adjudicate_nodes": 50,
    "judge": NODES,
    "bootstrap": 50,
    "opponents": {
        "random": {"kind": "random", "rating": 300},
        "material": {"kind": "material", "rating": 800},
        "one": {"kind": "engine", "nodes": 1, "rating": 1200, "options": {"Skill Level": 0}},
        "ten": {"kind": "engine", "nodes": 10, "rating": 1400},
        "absent": {"kind": "engine", "command": "no-such-engine", "rating": 1500},
    },
}


class Faltering(TeacherSpeaks):
    """The teacher, who cannot write about the first position he is asked about."""

    def explain(
        self, asked: Sequence[Asked], sampling: Sampling, legal: str = "none"
    ) -> list[Completion]:
        said = super().explain(asked, sampling, legal)
        return [Completion(said[0].id, "", error="the prompt is too long"), *said[1:]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A round whose models were evaluated by the stage itself, the teacher answering for them."""
    root = copy_of_round(tmp_path_factory.mktemp("evaluated"))
    (root / FILE).unlink()
    params = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump({**params, "evaluation": EVALUATION}))
    set_round(root, EVALUATION)
    settings = engine_settings(EngineParams(hash_mb=1), Machine(workers=1))
    with Analyser(settings) as analyser, pytest.MonkeyPatch.context() as patch:
        judge = MoveJudge(analyser, Limit(nodes=400), None, 0.1, 0.0)
        patch.setattr(evaluate, "load_speaker", lambda *_: Faltering(judge))
        for stage in ("judge@pawn", "judge@pawn1", f"evaluate@{KEY}"):
            run_stage(stage, root)
    return root


def set_round(root: Path, values: dict[str, Any]) -> None:
    path = root / "params" / "rounds.yaml"
    rounds = yaml.safe_load(path.read_text())
    rounds["rounds"][KEY]["evaluate"] = values
    path.write_text(yaml.safe_dump(rounds))


def job_of(root: Path) -> Job[evaluate.Params]:
    spec, key = find_stage(f"evaluate@{KEY}")
    return prepare(spec, key, root)


def test_like_evaluations_are_compared(project: Path) -> None:
    found = open_artifact(project / f"data/evaluate/{KEY}")
    assert (found.path / evaluate.VERDICT).is_file()
    assert found.record.counts["games"] == 8
    assert found.record.identities["speaker"] == Faltering.identity


def test_opponents_that_are_not_installed_are_counted(project: Path) -> None:
    counts = open_artifact(project / f"data/evaluate/{KEY}").record.counts
    assert (counts["opponents"], counts["opponents_missing"]) == (4, 1)


def test_what_could_not_be_written_is_an_error_and_not_unfinished(project: Path) -> None:
    found = open_artifact(project / f"data/evaluate/{KEY}")
    assert found.record.drops["unparsed.error"] == 1
    assert found.record.drops["unparsed.unfinished"] > 0


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"judge": {**NODES, "nodes": 500}}, r"differ in judge: .*'nodes': 400.*'nodes': 500"),
        (
            {"opponents": {**EVALUATION["opponents"], "absent": {"kind": "random", "rating": 9}}},
            "differ in opponents",
        ),
    ],
)
def test_other_budgets_and_opponents_are_not_compared(
    project: Path, changed: dict[str, Any], told: str
) -> None:
    set_round(project, {**EVALUATION, **changed})
    try:
        with pytest.raises(QueenError, match=told) as caught:
            evaluate.shards(job_of(project))
    finally:
        set_round(project, EVALUATION)
    assert caught.value.where == f"rounds.{KEY}.evaluate"
    assert "judge@pawn1" in caught.value.remedy


def test_another_evaluation_set_is_not_compared(project: Path) -> None:
    job = job_of(project)
    before = job.inputs["before"]
    inputs = tuple(
        replace(entry, content="0" * 64) if entry.role == "evalset" else entry
        for entry in before.record.inputs
    )
    other = Artifact(before.path, replace(before.record, inputs=inputs))
    with pytest.raises(QueenError, match=r"differ in the evaluation set: \['000000000000'\]"):
        evaluate.require_comparable(replace(job, inputs={**job.inputs, "before": other}))


def test_another_engine_is_not_compared(project: Path) -> None:
    job = replace(job_of(project), identities={"engine": {"name": "Another"}})
    with pytest.raises(QueenError, match=r"differ in the engine: .*Another"):
        evaluate.require_comparable(job)
