"""The smoke profile end to end: what it makes, and that it is resumable and auditable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from smoke_project import Project

from queen.lineage.artifact import open_artifact

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
POSITION = "r1bqkb1r/pppp1ppp/2n2n2/4p2Q/2B1P3/8/PPPP1PPP/RNB1K1NR w KQkq - 4 4"
ROUND = ("sample", "explain", "recurse", "consolidate", "filter")


def record(project: Project, name: str) -> Any:
    return open_artifact(project.root / name).record


def contents(project: Project) -> dict[str, str]:
    """The content hash of every artifact, by name."""
    found = {}
    for path in sorted(project.root.glob("*/**/record.json")):
        if ".state" not in path.parts and path.parts[-3] != ".partial":
            artifact = open_artifact(path.parent)
            found[artifact.name] = artifact.content
    return found


def lock(project: Project) -> Any:
    return yaml.safe_load((project.root / "dvc.lock").read_text())


def test_something_is_kept_at_every_step(smoke: Project) -> None:
    assert record(smoke, "data/games").counts["kept"] >= 300
    assert record(smoke, "data/seeds").counts["kept"] >= 100
    assert record(smoke, "data/sample/r1").counts["kept"] >= 60
    explained = record(smoke, "data/explain/r1").counts
    assert explained["parsed"] > 0
    folded = record(smoke, "data/consolidate/r1")
    assert folded.counts["children_parsed"] > 0
    assert folded.figures["model_share"] > 0
    assert record(smoke, "data/filter/r1").counts["kept"] > 0
    judged = record(smoke, "data/evaluate/r1").counts
    assert (judged["positions"], judged["games"], judged["opponents"]) == (100, 32, 4)


def test_the_curriculum_was_learnt_beyond_the_majority_answer(smoke: Project) -> None:
    figures = record(smoke, "models/pawn").figures
    assert figures["heldout.static-current.macro"] > 0
    assert len([k for k in figures if k.startswith("heldout.")]) > 24


def test_models_are_hugging_face_folders_without_pickles(smoke: Project) -> None:
    for key in ("pawn", "pawn1", "r1"):
        names = {p.name for p in (smoke.root / "models" / key).iterdir()}
        assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= names
        assert not [n for n in names if n.endswith((".pt", ".bin", ".pkl"))]


def test_memory_stays_below_four_gibibytes(smoke: Project) -> None:
    peaks = [
        json.loads(p.read_text())["peak_mb"] for p in smoke.root.glob(".state/runs/*/*/run.json")
    ]
    assert len(peaks) >= 16
    assert max(peaks) < 4096


def test_an_unchanged_pipeline_runs_nothing(smoke: Project) -> None:
    before = sorted(smoke.root.glob(".state/runs/*/*/run.json"))
    smoke.queen("run")
    assert sorted(smoke.root.glob(".state/runs/*/*/run.json")) == before
    assert smoke.dvc("status", "-q", "dvc.yaml", check=False).returncode == 0


def test_dvc_repro_finds_nothing_to_do(smoke: Project) -> None:
    before = lock(smoke), contents(smoke)
    smoke.dvc("repro")
    assert (lock(smoke), contents(smoke)) == before


def test_pawn1_has_a_verdict_over_pawn(smoke: Project) -> None:
    verdicts = json.loads((smoke.root / "verdicts.json").read_text())
    assert verdicts["models"]["pawn1"]["verdict"] in ("better", "no evidence", "worse")
    assert verdicts["models"]["r1"]["parent"] == "pawn1"
    rows = json.loads(smoke.queen("rounds", "--json").stdout)
    assert {"pawn", "pawn1", "r1"} <= {row["key"] for row in rows}


def test_a_position_is_explained(smoke: Project) -> None:
    said = smoke.queen("explain", POSITION, "--json", check=False)
    told = json.loads(said.stdout)
    assert {"best_move", "line", "candidates", "prose", "model"} <= told.keys()
    assert told["line"][:1] in ([], [told["best_move"]])


def test_the_round_can_be_audited_and_verified(smoke: Project) -> None:
    smoke.queen("verify")
    smoke.queen("audit", "r1")
    rows = open_artifact(smoke.root / "data/filter/r1")
    import pyarrow.parquet as pq

    kept = [r for r in pq.read_table(rows.file("rows.parquet")).to_pylist() if not r["dropped"]]
    told = smoke.queen("audit", "r1", kept[0]["pid"]).stdout
    assert kept[0]["game_id"][:8] in told


def test_the_report_is_one_file_without_network(smoke: Project) -> None:
    smoke.queen("report")
    page = (smoke.root / "report.html").read_text()
    assert "<svg" in page
    assert 'src="http' not in page
    assert 'href="http' not in page.replace('href="http://www.w3.org', "")


def test_one_changed_byte_is_named(smoke: Project) -> None:
    path = smoke.root / "data" / "filter" / "r1" / "rows.parquet"
    whole = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    try:
        found = smoke.queen("verify", check=False)
        assert found.returncode == 1
        assert "data/filter/r1" in found.stdout + found.stderr
        assert "rows.parquet" in found.stdout + found.stderr
    finally:
        path.write_bytes(whole)


def test_a_judged_round_is_not_run_again(smoke: Project) -> None:
    path = smoke.root / "params" / "rounds.yaml"
    before = path.read_text()
    path.write_text(before.replace("max_loss: 0.0", "max_loss: 0.5"))
    try:
        refused = smoke.call(sys.executable, "-m", "stages", "filter@r1", check=False)
        assert refused.returncode == 2
        assert "reopen" in refused.stderr
    finally:
        path.write_text(before)


def test_a_round_like_another_finds_its_shards(smoke: Project) -> None:
    """Another filter: everything before it is assembled from the shards that are there."""
    changed = ("--set", "filter.max_loss=0.05")
    smoke.queen("round", "add", "r1b", "--parent", "pawn1", "--like", "r1", *changed)
    store = smoke.root / ".state" / "shards"
    before = {p for stage in ROUND[:-1] for p in (store / stage).iterdir()}
    for stage in ROUND:
        smoke.call(sys.executable, "-m", "stages", f"{stage}@r1b")
    assert {p for stage in ROUND[:-1] for p in (store / stage).iterdir()} == before
    found = contents(smoke)
    for stage in ROUND[:-1]:
        assert found[f"data/{stage}/r1b"] == found[f"data/{stage}/r1"]
    kept, fewer = (record(smoke, f"data/filter/{key}").counts["kept"] for key in ("r1b", "r1"))
    assert kept >= fewer


def test_killed_work_ends_with_the_same_bytes(smoke: Project) -> None:
    """Kill `filter` and `consolidate` in the middle of a fresh state; the content is the same."""
    wanted = contents(smoke)
    state = smoke.root.parent / "other-state"
    environment = {**smoke.environment, "QUEEN_STATE": str(state)}
    smoke.queen("round", "reopen", "r1")
    for stage in ("consolidate@r1", "filter@r1"):
        name = f"data/{stage.replace('@', '/')}"
        _forget(smoke.root / name)
        command = [sys.executable, "-m", "stages", stage]
        running = subprocess.Popen(
            command, cwd=smoke.root, env=environment, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(4.0)
        _kill(running)
        done = subprocess.run(
            command, cwd=smoke.root, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert open_artifact(smoke.root / name).content == wanted[name]


def _forget(folder: Path) -> None:
    (folder / "record.json").chmod(0o644)
    (folder / "record.json").unlink()


def _kill(running: subprocess.Popen[bytes]) -> None:
    """kill -9 of the process; its engines must be gone by themselves soon after."""
    try:
        children = psutil.Process(running.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
