"""Run records first, MLflow second; real MLflow in SQLite."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from queen.lineage import syncing, tracking, verdicts
from queen.lineage.mlflow_store import MlflowStore
from queen.lineage.server import free_port
from queen.lineage.syncing import send_outbox, sync
from queen.lineage.tracking import Input, Output, Tracker, last_run, read_run, run_folders
from queen.lineage.verdicts import Judgement

CONTENT = "ab" * 32


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow store: making one takes seconds, so it is made once and copied."""
    state = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        MlflowStore.open(state)
    return state / "mlflow.db"


@pytest.fixture
def state(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("QUEEN_SENDER", "none")
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "mlflow.db").write_bytes(database.read_bytes())
    return folder


def finished(root: Path, state: Path, stage: str, key: str | None, name: str, content: str) -> Path:
    with Tracker(root, state).run(
        stage, key, params={"a": {"b": 1}}, inputs=[Input("data/games", CONTENT)]
    ) as run:
        run.log(0, {"loss": 2.0, "odd name (x)": 1.0})
        run.log(1, {"loss": 1.0})
        run.finish("done", [Output(name, content)], {"kept": 3.0})
    return run.folder


def test_a_run_is_on_disk_before_and_after(tmp_path: Path, state: Path) -> None:
    run = Tracker(tmp_path, state).run("filter", "r1", params={"max_loss": 0.0})
    assert read_run(run.folder)["status"] == "running"
    run.log(5, {"x": 1.0})
    run.finish("done", [Output("data/filter/r1", CONTENT)], {"kept": 2.0})
    run.finish("failed", error="too late")
    values = read_run(run.folder)
    assert (values["status"], values["figures"], values["key"]) == ("done", {"kept": 2.0}, "r1")
    assert values["wall_s"] >= 0
    assert values["cpu_s"] >= 0
    assert values["peak_mb"] > 1
    assert tracking.figure_rows(run.folder)[0]["figures"] == {"x": 1.0}
    assert last_run(state, "filter", "r1") == values
    assert last_run(state, "filter", "r2") == values
    assert last_run(state, "train", "r1") is None


def test_an_exception_ends_a_run_as_failed(tmp_path: Path, state: Path) -> None:
    with pytest.raises(ValueError, match="no luck"), Tracker(tmp_path, state).run("games"):
        raise ValueError("no luck")
    (folder,) = run_folders(state)
    assert read_run(folder)["error"] == "ValueError: no luck"


def test_a_run_whose_process_died_counts_as_killed(tmp_path: Path, state: Path) -> None:
    run = Tracker(tmp_path, state).run("games")
    values = json.loads((run.folder / "run.json").read_text())
    (run.folder / "run.json").write_text(json.dumps({**values, "pid": 2**22 + 1}))
    assert read_run(run.folder)["status"] == "killed"


def test_runs_reach_mlflow_whole_and_once(tmp_path: Path, state: Path) -> None:
    folder = finished(tmp_path, state, "filter", "r1", "data/filter/r1", CONTENT)
    assert send_outbox(tmp_path, state) == ""
    assert tracking.announced(state) == []
    (folder / "mlflow.json").unlink()
    tracking.announce(state, folder)
    assert send_outbox(tmp_path, state) == ""
    store = MlflowStore.open(state)
    (run,) = store.find(CONTENT)
    assert run.info.run_name == "filter@r1"
    assert run.info.status == "FINISHED"
    assert run.data.params == {"a.b": "1"}
    assert run.data.metrics["kept"] == 3.0
    assert run.data.metrics["odd name _x_"] == 1.0
    assert run.data.tags["artifact"] == "data/filter/r1"
    (dataset,) = run.inputs.dataset_inputs
    assert dataset.dataset.name == "data/games"
    assert {tag.key: tag.value for tag in dataset.tags}["content"] == CONTENT


def test_a_running_run_is_sent_as_far_as_it_is(tmp_path: Path, state: Path) -> None:
    run = Tracker(tmp_path, state).run("train", "r1")
    run.log(0, {"loss": 2.0})
    run._flush()
    assert send_outbox(tmp_path, state) == ""
    assert len(tracking.announced(state)) == 1
    run.log(1, {"loss": 1.0})
    run.finish("done", [Output("models/r1", "cd" * 32)])
    assert send_outbox(tmp_path, state) == ""
    store = MlflowStore.open(state)
    (sent,) = store.find("cd" * 32)
    history = store.client.get_metric_history(sent.info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(0, 2.0), (1, 1.0)]


def test_models_become_versions_and_the_alias_follows_the_champion(
    tmp_path: Path, state: Path
) -> None:
    finished(tmp_path, state, "pawn1", None, "models/pawn1", "11" * 32)
    finished(tmp_path, state, "train", "r1", "models/r1", "22" * 32)
    assert send_outbox(tmp_path, state) == ""
    store = MlflowStore.open(state)
    assert [v.tags["round"] for v in store.versions()] == ["pawn1", "r1"]
    assert all(v.source.startswith("dvc:///models/") for v in store.versions())
    assert store.champion() == "pawn1"
    verdicts.record(tmp_path, "r1", Judgement("22" * 32, "better", "because", "pawn1"))
    assert syncing.follow_verdicts(tmp_path, state) == ""
    assert store.champion() == "r1"
    assert store.versions()[1].tags["verdict"] == "better"
    verdicts.rollback(tmp_path)
    assert syncing.follow_verdicts(tmp_path, state) == ""
    assert store.champion() == "pawn1"
    assert len(store.versions()) == 2


def test_an_unreachable_store_keeps_everything_for_later(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/")
    finished(tmp_path, state, "filter", "r1", "data/filter/r1", CONTENT)
    started = time.monotonic()
    assert send_outbox(tmp_path, state) != ""
    assert time.monotonic() - started < 20
    assert len(tracking.announced(state)) == 1
    with pytest.raises(syncing.TrackingError, match=r"127\.0\.0\.1"):
        sync(tmp_path, state)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert sync(tmp_path, state).sent == 1
    assert sync(tmp_path, state).sent == 0
    assert len(MlflowStore.open(state).find(CONTENT)) == 1


@pytest.mark.e2e
def test_a_server_over_http_takes_the_same(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its registry refuses plain paths as a source; what SQLite has, sync brings to it."""
    finished(tmp_path, state, "train", "r1", "models/r1", "22" * 32)
    assert send_outbox(tmp_path, state) == ""
    verdicts.record(tmp_path, "r1", Judgement("22" * 32, "better", "because", "pawn1"))
    uri = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "mlflow", "server", "--port", uri.rpartition(":")[2]]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}", "--workers", "1"]
    own = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    server = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **own}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        deadline = time.monotonic() + 120
        while not healthy(uri):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        done = sync(tmp_path, state)
        assert (done.uri, done.sent, done.versions, done.champion) == (uri, 1, ("r1",), "r1")
        (version,) = MlflowStore.open(state).versions()
        assert version.source == f"dvc:///models/r1?content={'22' * 32}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def healthy(uri: str) -> bool:
    try:
        with urllib.request.urlopen(f"{uri}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_sync_fills_the_lineage_of_what_dvc_restored(
    toy: Path, state: Path, make_artifact: Callable[[Path, str, str], str]
) -> None:
    content = make_artifact(toy, "models/r1", "train")
    done = sync(toy, state)
    assert done.filled == ("models/r1",)
    assert done.versions == ("r1",)
    (run,) = MlflowStore.open(state).find(content)
    assert run.data.tags["origin"] == "restored from DVC"
    assert run.info.status == "FINISHED"
    assert sync(toy, state).filled == ()


@pytest.mark.e2e
def test_a_sender_carries_figures_and_ends_with_its_run(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QUEEN_SENDER")
    monkeypatch.setattr(tracking, "OWN_DRAIN_S", 60.0)
    finished(tmp_path, state, "filter", "r1", "data/filter/r1", CONTENT)
    assert tracking.announced(state) == []
    assert len(MlflowStore.open(state).find(CONTENT)) == 1
