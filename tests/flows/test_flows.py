"""Whole runs through real Prefect, DVC and MLflow, on the toy project."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from toy_project import REPOSITORY, dvc, environment, ran, run, snapshot

from queen.lineage import rounds, tracking, verdicts
from queen.lineage.mlflow_store import MlflowStore
from queen.lineage.server import prefect_server

pytestmark = pytest.mark.e2e
ALL = ["games", "pawn1", *(f"{s}@r1" for s in ("sample", "filter", "train", "evaluate"))]


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Prefect server for the session."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("PREFECT_"):
                patch.delenv(name)
        patch.setenv("PYTHONPATH", str(REPOSITORY))
        with prefect_server(tmp_path_factory.mktemp("prefect")) as url:
            yield url


@pytest.fixture
def queen(toy: Path, api: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the queen command in the toy project against the session's server."""

    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "queen.cli", *arguments]
        own = {"PREFECT_API_URL": api, "QUEEN_SENDER": "none", **more}
        return run(toy, *command, check=False, **own)

    return call


def misbehave(root: Path, name: str, wish: str) -> None:
    (root / "misbehave.json").write_text(json.dumps({name: wish}))


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def test_a_run_and_dvc_repro_leave_the_same(
    toy: Path, tmp_path: Path, queen: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    rounds.add_round(toy, "r2", parent="r1", settings=["filter.max_loss=0.1"])
    other = tmp_path / "by dvc"
    shutil.copytree(toy, other)
    done = queen("run")
    assert done.returncode == 0, done.stderr
    assert ran(toy) == [*ALL, *(f"{s}@r2" for s in ("sample", "filter", "train", "evaluate"))]
    dvc(other, "repro", QUEEN_SENDER="none")
    assert snapshot(toy) == snapshot(other)
    assert (toy / "verdicts.json").read_text().count('"better"') == 2
    assert "up to date" in dvc(toy, "repro")
    started = time.monotonic()
    assert "nothing to do" in queen("run").stderr
    assert time.monotonic() - started < 20
    assert ran(toy) == []


def test_one_stage_and_a_round_run_with_what_they_stand_on(
    toy: Path, queen: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert queen("run", "filter@r1").returncode == 0
    assert ran(toy) == ALL[:4]
    assert queen("run", "r1").returncode == 0
    assert ran(toy) == ALL[4:]


def test_a_crash_is_retried_and_a_refusal_is_not(
    toy: Path, queen: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    misbehave(toy, "games", "crash once")
    done = queen("run", "games")
    assert done.returncode == 0, done.stderr
    assert ran(toy) == ["games", "games"]
    misbehave(toy, "pawn1", "refuse")
    refused = queen("run")
    assert refused.returncode == 1
    assert "the gate failed" in refused.stderr
    assert "pawn1" in refused.stderr.splitlines()[-2]
    assert "Traceback" not in refused.stderr
    assert ran(toy) == ["pawn1"]


def test_a_worse_round_stops_the_pipeline_until_it_is_rolled_back(
    toy: Path, queen: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    rounds.add_round(toy, "r2", parent="r1", settings=["train.outcome=worse"])
    rounds.add_round(toy, "r3", parent="r1", settings=["train.outcome=no evidence"])
    stopped = queen("run")
    assert stopped.returncode == 3, stopped.stderr
    assert "the round r2 is worse" in stopped.stderr
    assert not any(name.endswith("@r3") for name in ran(toy))
    assert queen("run").returncode == 3
    back, on = queen("rollback"), queen("run")
    assert (back.returncode, on.returncode) == (0, 0), back.stderr + on.stderr
    assert ran(toy) == [f"{s}@r3" for s in ("sample", "filter", "train", "evaluate")]
    found = verdicts.read_verdicts(toy)
    assert found.champion == "r1"
    assert [j.verdict for j in found.models.values()] == ["better", "worse", "no evidence"]


def test_what_dvcs_run_cache_restores_gets_its_lineage(
    toy: Path, queen: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """DVC restores base stages; it keeps no runs of rounds, whose outputs persist."""
    assert queen("run").returncode == 0
    assert len(ran(toy)) == len(ALL)
    for name in ("verdicts.json", "dvc.lock"):
        (toy / name).unlink()
    for path in (*toy.glob("data/*"), *toy.glob("models/*"), toy / ".state"):
        if path.is_dir():
            shutil.rmtree(path)
    assert queen("run").returncode == 0
    assert ran(toy) == ALL[2:]
    runs = [tracking.read_run(folder) for folder in tracking.run_folders(toy / ".state")]
    status = {tracking.run_name(r["stage"], r["key"]): r["status"] for r in runs}
    assert status == {name: "restored" if name in ALL[:2] else "done" for name in ALL}


def test_a_judged_round_is_skipped_with_a_word(
    toy: Path, queen: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    assert queen("run").returncode == 0
    ran(toy)
    assert queen("configure", "games.count=5").returncode == 0
    done = queen("run")
    assert done.returncode == 0
    assert "the round r1 has its verdict and is left alone" in done.stderr
    assert ran(toy) == ["games", "pawn1"]


def test_two_runs_at_once_queue_or_leave(toy: Path, api: str) -> None:
    misbehave(toy, "games", "sleep 6")
    own = environment(PREFECT_API_URL=api, QUEEN_SENDER="none")
    command = [sys.executable, "-m", "queen.cli", "run", "games"]
    first = subprocess.Popen(command, cwd=toy, env=own)
    until((toy / "asleep.txt").is_file)
    leaving = run(toy, *command, "--no-wait", check=False, PREFECT_API_URL=api)
    assert leaving.returncode == 1
    assert "the workspace is held by queen run" in leaving.stderr
    waiting = run(toy, *command, check=False, PREFECT_API_URL=api)
    assert first.wait() == 0
    assert waiting.returncode == 0
    assert "waiting for queen run" in waiting.stderr
    assert "nothing to do" in waiting.stderr
    assert ran(toy) == ["games"]


def test_a_killed_run_leaves_no_process_and_is_taken_up(toy: Path) -> None:
    """With a server of its own, and MLflow's sender: all of it ends after kill -9."""
    misbehave(toy, "sample@r1", "sleep 120")
    command = [sys.executable, "-m", "queen.cli", "run"]
    own = environment(QUEEN_STATE=str(toy / ".state"))
    driver = subprocess.Popen(command, cwd=toy, env=own)
    until((toy / "asleep.txt").is_file, 180)
    family = psutil.Process(driver.pid).children(recursive=True)
    info = json.loads((toy / ".state" / "prefect" / "server.json").read_text())
    family += [psutil.Process(info[name]) for name in ("pid", "supervisor")]
    assert len(family) >= 4
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    until(lambda: not any(_lives(process) for process in family))
    (toy / "misbehave.json").unlink()
    again = run(toy, *command, check=False, QUEEN_STATE=str(toy / ".state"))
    assert again.returncode == 0, again.stderr
    assert ran(toy) == [*ALL[:3], *ALL[2:]]
    assert "up to date" in dvc(toy, "repro")
    _mlflow_has_everything(toy)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _mlflow_has_everything(root: Path) -> None:
    state = root / ".state"
    until(lambda: tracking.announced(state) == [])
    store = MlflowStore.open(state)
    runs = store.client.search_runs([store.experiment])
    names = sorted(run.info.run_name for run in runs if run.info.status == "FINISHED")
    assert names == sorted(ALL)
    assert [r.info.run_name for r in runs if r.info.status == "KILLED"] == ["sample@r1"]
    assert all(run.data.tags["prefect.flow_run"] for run in runs)
    assert store.champion() == "r1"


def test_a_deployment_leaves_the_same_as_dvc(toy: Path, tmp_path: Path, api: str) -> None:
    other = tmp_path / "by dvc"
    shutil.copytree(toy, other)
    shutil.copy(REPOSITORY / "prefect.yaml", toy)
    own = {"PREFECT_API_URL": api, "QUEEN_SENDER": "none"}
    prefect = [sys.executable, "-m", "prefect"]
    run(toy, *prefect, "work-pool", "create", "queen", "--type", "process", **own)
    run(toy, *prefect, "--no-prompt", "deploy", "--all", **own)
    run(toy, *prefect, "deployment", "run", "round/local", "--param", "key=r1", **own)
    worker = [*prefect, "worker", "start", "--pool", "queen", "--run-once"]
    done = run(toy, *worker, **own)
    assert ran(toy) == ALL, done.stdout + done.stderr
    dvc(other, "repro", QUEEN_SENDER="none")
    assert snapshot(toy) == snapshot(other)


def test_every_stage_of_the_project_has_its_flow_and_deployment() -> None:
    import yaml

    from flows.walking import stage_flow
    from stages.registry import NAMES

    text = (REPOSITORY / "prefect.yaml").read_text()
    entries = {d["entrypoint"] for d in yaml.safe_load(text)["deployments"]}
    assert entries == {
        "flows.pipeline.pipeline_flow",
        "flows.rounds.round_flow",
        *(f"flows.{name}.{name}_flow" for name in NAMES),
    }
    assert {stage_flow(name).name for name in NAMES} == set(NAMES)
