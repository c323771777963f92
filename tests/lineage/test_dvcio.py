"""DVC driven stage by stage, in a real repository with real artifacts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from toy_project import dvc, ran, snapshot

from queen.lineage import params, rounds, verdicts
from queen.lineage.dvcio import (
    Pipeline,
    PipelineError,
    StageFailedError,
    lock_as_dvc,
    locked_shards,
    reproduce,
)
from queen.lineage.verdicts import Judgement

ROUND = ["sample", "filter", "train", "evaluate"]


def walk_all(root: Path, target: str | None = None) -> list[str]:
    """Bring a target up to date as a flow does; returns what was done."""
    pipeline = Pipeline(root)
    with lock_as_dvc(root):
        return [
            name
            for name in pipeline.names(target)
            if pipeline.reasons([name])[name] and reproduce(root, name)
        ]


def misbehave(root: Path, **wishes: str) -> None:
    (root / "misbehave.json").write_text(json.dumps(wishes))


def test_rounds_are_walked_whole_and_after_their_parents(toy: Path) -> None:
    rounds.add_round(toy, "a0", parent="r1")
    rounds.add_round(toy, "b", parent="pawn1")
    names = Pipeline(toy).names()
    keys = ["r1", "a0", "b"]
    assert names == ["games", "pawn1", *(f"{s}@{k}" for k in keys for s in ROUND)]
    assert Pipeline(toy).names("filter@a0") == [
        "games",
        "pawn1",
        "sample@r1",
        "filter@r1",
        "train@r1",
        "sample@a0",
        "filter@a0",
    ]


def test_a_line_in_a_file_of_its_own_is_walked_only_when_named(toy: Path) -> None:
    usual = Pipeline(toy).names()
    (toy / "side").mkdir()
    (toy / "side" / "dvc.yaml").write_text(
        "stages:\n  bulk:\n    wdir: ..\n    cmd: mkdir data/bulk\n    deps: [data/games]\n"
        "    outs: [data/bulk]\n"
    )
    assert Pipeline(toy).names() == usual
    assert Pipeline(toy).names("bulk") == ["games", "bulk"]
    assert reproduce(toy, "games")
    assert reproduce(toy, "bulk")
    assert (toy / "data" / "bulk").is_dir()
    assert not reproduce(toy, "bulk")
    assert "bulk" in (toy / "side" / "dvc.lock").read_text()
    assert "bulk" not in (toy / "dvc.lock").read_text()


def test_an_unknown_stage_is_named_with_the_nearest(toy: Path) -> None:
    with pytest.raises(PipelineError, match="did you mean 'filter@r1'"):
        Pipeline(toy).names("filtre@r1")


def test_the_walk_says_what_is_stale_and_after_what(toy: Path) -> None:
    reproduce(toy, "games")
    steps = {step.name: step for step in Pipeline(toy).walk()}
    assert not steps["games"].stale
    assert steps["pawn1"].stale
    assert steps["pawn1"].after == ()
    assert set(steps["filter@r1"].after) == {"sample@r1", "pawn1"}
    params.configure(toy, ["games.count=5"])
    changed = {step.name: step for step in Pipeline(toy).walk("sample@r1")}
    assert changed["games"].reasons == ("deps: games modified",)
    assert changed["sample@r1"].after == ("games",)


@pytest.mark.e2e
def test_walking_and_dvc_repro_leave_the_same(toy: Path) -> None:
    rounds.add_round(toy, "r2", parent="r1", settings=["filter.max_loss=0.1"])
    dvc(toy, "repro", QUEEN_SENDER="none")
    by_dvc = snapshot(toy)
    assert len(ran(toy)) == 10
    (toy / "dvc.lock").unlink()
    (toy / "verdicts.json").unlink()
    _remove_outputs(toy)
    assert len(walk_all(toy)) == 10
    assert snapshot(toy) == by_dvc
    assert "up to date" in dvc(toy, "repro")
    assert walk_all(toy) == []


def _remove_outputs(root: Path) -> None:
    for folder in ("data", "models"):
        for path in (root / folder).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
    shutil.rmtree(root / ".dvc" / "cache", ignore_errors=True)
    shutil.rmtree(root / ".dvc" / "tmp", ignore_errors=True)
    (root / "ran.txt").unlink(missing_ok=True)


def test_a_changed_round_runs_its_own_steps_alone(toy: Path) -> None:
    walk_all(toy)
    ran(toy)
    rounds.add_round(toy, "r1b", parent="pawn1", like="r1", settings=["filter.max_loss=0.5"])
    assert walk_all(toy) == [f"{stage}@r1b" for stage in ROUND]


def test_a_refusal_and_a_crash_are_told_apart(toy: Path) -> None:
    reproduce(toy, "games")
    misbehave(toy, pawn1="refuse")
    with pytest.raises(StageFailedError) as refused:
        reproduce(toy, "pawn1")
    assert (refused.value.status, refused.value.crashed) == (2, False)
    misbehave(toy, pawn1="crash once")
    with pytest.raises(StageFailedError) as crashed:
        reproduce(toy, "pawn1")
    assert crashed.value.crashed
    assert reproduce(toy, "pawn1")


def test_a_judged_round_is_refused_under_plain_dvc_and_keeps_its_outputs(toy: Path) -> None:
    walk_all(toy)
    before = (toy / "data" / "filter" / "r1" / "rows.json").read_bytes()
    text = (toy / "params" / "rounds.yaml").read_text()
    (toy / "params" / "rounds.yaml").write_text(text.replace("max_loss: 0.0", "max_loss: 0.7"))
    said = dvc(toy, "repro", "filter@r1", check=False, QUEEN_SENDER="none")
    assert "has its verdict (better)" in said
    assert (toy / "data" / "filter" / "r1" / "rows.json").read_bytes() == before
    assert [s.name for s in Pipeline(toy).walk() if s.judged and s.stale] == ["filter@r1"]
    verdicts.reopen(toy, "r1")
    assert walk_all(toy) == ["filter@r1", "train@r1", "evaluate@r1"]
    assert verdicts.read_verdicts(toy).judged("r1")


@pytest.mark.e2e
def test_a_kill_between_the_verdict_and_the_lock_is_taken_up(toy: Path) -> None:
    """The evaluation is complete and its verdict written, but DVC's lock knows of neither."""
    walk_all(toy)
    lock = (toy / "dvc.lock").read_text()
    (toy / "dvc.lock").write_text(lock[: lock.index("  evaluate@r1:")])
    ran(toy)
    assert "evaluate@r1" in dvc(toy, "repro", QUEEN_SENDER="none")
    assert ran(toy) == []
    assert (toy / "dvc.lock").read_text() == lock


@pytest.mark.e2e
def test_dvcs_run_cache_is_seen_in_a_plan(toy: Path) -> None:
    walk_all(toy)
    params.configure(toy, ["games.count=5"])
    assert not Pipeline(toy).cached("games")
    reproduce(toy, "games")
    params.configure(toy, ["profile=smoke"])
    assert Pipeline(toy).cached("games")


def test_shards_of_locked_artifacts_are_found_without_the_workspace(toy: Path) -> None:
    walk_all(toy, "pawn1")
    assert locked_shards(toy) == {"games-shard", "pawn1-shard"}
    shutil.rmtree(toy / "data" / "games")
    assert locked_shards(toy) == {"games-shard", "pawn1-shard"}


def test_the_champion_of_no_round_keeps_stages_open(toy: Path) -> None:
    verdicts.record(toy, "pawn1", Judgement("h", "better", "x", "pawn"))
    assert not any(step.judged for step in Pipeline(toy).walk())
