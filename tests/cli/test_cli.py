"""The command line: what it prints, what it refuses, how it ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from queen.cli import app
from queen.errors import QueenError
from queen.lineage import params, verdicts
from queen.lineage.dvcio import reproduce
from queen.lineage.state import open_state
from queen.lineage.store import ShardStore
from queen.lineage.tracking import last_run
from queen.lineage.verdicts import Judgement


def call(*arguments: str, answer: str = "") -> Result:
    """Run a command in the working folder; a QueenError comes out as it is."""
    result = CliRunner().invoke(app, list(arguments), input=answer)
    if isinstance(result.exception, QueenError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_help_imports_nothing_heavy() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "queen.cli", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {row.rsplit("|", 1)[-1].strip() for row in done.stderr.splitlines()}
    heavy = {"torch", "mlflow", "prefect", "dvc", "transformers", "pandas", "great_expectations"}
    assert not imported & heavy
    assert "configure" in done.stdout


def test_outside_a_project_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "queen.cli", "rounds"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no Queen project here" in done.stderr
    assert "Traceback" not in done.stderr


def test_configure_says_what_changed_in_params_and_rounds(toy: Path) -> None:
    said = call("configure", "filter.max_loss=0.05").stdout
    assert "round.filter.max_loss: 0.0 -> 0.05" in said
    assert "round r1: filter.max_loss: 0.0 -> 0.05" in said
    assert "nothing changed" in call("configure").stdout
    with pytest.raises(QueenError, match=r"'round\.filter\.max_loss'"):
        call("configure", "filter.max_los=1")


def test_configure_leaves_a_running_project_alone(toy: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from queen.lineage.lock import workspace\n"
    )
    program += "with workspace(Path.cwd(), what='queen run'): print(1, flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(QueenError, match="held by queen run"):
            call("configure", "seed=4")
        other.kill()
    assert params.read_params(toy)["seed"] == 1


def test_rounds_are_added_and_listed(toy: Path) -> None:
    call("round", "add", "r2", "--parent", "r1", "--set", "filter.max_loss=0.02", "--set", "seed=5")
    rows = json.loads(call("rounds", "--json").stdout)
    assert [(row["key"], row["parent"]) for row in rows] == [
        ("pawn", None),
        ("pawn1", "pawn"),
        ("r1", "pawn1"),
        ("r2", "r1"),
    ]
    assert [row["key"] for row in rows if row["champion"]] == ["pawn1"]
    values = params.read_yaml(toy / "params" / "rounds.yaml")["rounds"]["r2"]
    assert (values["seed"], values["filter"]) == (5, {"max_loss": 0.02})
    with pytest.raises(QueenError, match="unknown parent"):
        call("round", "add", "r3", "--parent", "r9")


def test_a_judged_round_is_shown_with_its_reason_and_cost(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/")
    (built / "verdicts.json").unlink()
    result = call("rounds", "--json")
    assert "verdicts taken up from evaluations: r1" in result.stderr
    rows = {row["key"]: row for row in json.loads(result.stdout)}
    assert rows["r1"]["verdict"] == "better"
    assert rows["r1"]["champion"]
    assert rows["r1"]["judged"]
    assert rows["r1"]["seconds"] > 0
    assert "r1: better: toy" in call("rounds").stdout


def test_reopen_and_rollback_speak_and_act(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9/")
    with pytest.raises(QueenError, match="has no verdict"):
        call("round", "reopen", "r1")
    verdicts.record(toy, "r1", Judgement("h", "worse", "because", "pawn1"))
    result = call("rollback")
    assert "r1 set aside" in result.stdout
    assert "`queen sync` will" in result.stderr
    call("round", "reopen", "r1")
    assert not verdicts.read_verdicts(toy).judged("r1")
    with pytest.raises(QueenError, match="nothing to roll back"):
        call("rollback")


def test_a_plan_of_a_fresh_project_runs_all_at_unknown_cost(toy: Path) -> None:
    planned = {row["name"]: row for row in json.loads(call("plan", "--json").stdout)}
    assert planned["games"]["action"] == "run"
    assert planned["games"]["seconds"] is None
    assert planned["pawn1"]["action"] == "run or restore"
    assert "6 that have not run yet" in call("plan").stdout


def test_a_plan_shows_cost_by_the_last_run(built: Path) -> None:
    call("configure", "seed=2")
    after = {row["name"]: row for row in json.loads(call("plan", "--json").stdout)}
    assert after["games"]["action"] == "run"
    last = last_run(open_state(built).root, "games")
    assert last is not None
    assert after["games"]["seconds"] == last["wall_s"]
    assert after["filter@r1"]["action"] == "judged"
    assert "stages would run" in call("plan").stdout


def test_verify_names_the_file_of_one_changed_byte(built: Path) -> None:
    assert call("verify").exit_code == 0
    path = built / "data" / "filter" / "r1" / "rows.json"
    path.chmod(0o644)
    content = bytearray(path.read_bytes())
    content[3] ^= 1
    path.write_bytes(content)
    result = call("verify")
    assert result.exit_code == 1
    assert "data/filter/r1: file rows.json has another hash than recorded" in result.stdout
    assert "data/filter/r1: is not what dvc.lock says of filter@r1" in result.stdout


def test_verify_sees_an_input_that_is_another_now(built: Path) -> None:
    call("configure", "games.count=8")
    reproduce(built, "games")
    result = call("verify")
    assert result.exit_code == 1
    assert "models/pawn1: was made from data/games" in result.stdout


def test_gc_asks_and_keeps_what_the_lock_refers_to(built: Path) -> None:
    store = ShardStore(open_state(built).shards)
    kept = store.put("games", "games-shard", lambda folder: (folder / "x").write_text("kept"))
    gone = store.put("games", "of no artifact", lambda folder: (folder / "x").write_text("gone"))
    assert "shards: 1" in call("gc", answer="n\n").stdout
    assert gone.exists()
    call("configure", "games.count=8")
    stale = call("gc", "--yes").stdout
    assert "kept for stages that are not up to date: games" in stale
    assert gone.exists()
    call("configure", "profile=smoke")
    assert "removed" in call("gc", answer="y\n").stdout
    assert kept.exists()
    assert not gone.exists()
    assert "nothing to remove" in call("gc").stdout


def test_gc_keeps_what_another_project_with_the_same_state_needs(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEEN_STATE", str(tmp_path / "shared"))
    other = tmp_path / "other"
    shutil.copytree(built, other)
    record = other / "data" / "games" / "record.json"
    record.chmod(0o644)
    record.write_text(record.read_text().replace("games-shard", "theirs"))
    store = ShardStore(open_state(built).shards)
    keys = ("games-shard", "theirs", "of no artifact")
    folders = [store.put("elsewhere", key, lambda folder: None) for key in keys]
    open_state(other)
    for project in (built, other):
        monkeypatch.chdir(project)
        assert "shards: 1 " in call("gc", answer="n\n").stdout
    monkeypatch.chdir(built)
    call("gc", "--yes")
    assert [folder.exists() for folder in folders] == [True, True, False]
    shutil.rmtree(other)
    said = call("gc", "--yes").stdout
    assert f"nothing is kept for {other}" in said
    assert [folder.exists() for folder in folders] == [True, False, False]


def test_gc_stops_where_another_project_cannot_be_read(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEEN_STATE", str(tmp_path / "shared"))
    other = tmp_path / "other"
    shutil.copytree(built, other)
    open_state(other)
    (other / "data" / "games" / "record.json").unlink()
    (other / "data" / "games" / "record.json").write_text("{")
    with pytest.raises(QueenError, match="cannot tell what this project needs") as caught:
        call("gc", "--yes")
    assert caught.value.where == str(other)


def test_gc_removes_unfinished_work_that_nobody_goes_on_with(built: Path) -> None:
    scratch = open_state(built).scratch
    old, new = scratch / "games" / "old", scratch / "games" / "new"
    for folder in (old, new):
        (folder / "step").mkdir(parents=True)
        (folder / "step" / "weights").write_text("half")
    for path in (old, *old.rglob("*")):
        os.utime(path, (time.time() - 90_000,) * 2)
    call("configure", "games.count=8")
    assert "unfinished work: 0" in call("gc", "--yes", "--all").stdout
    call("configure", "profile=smoke")
    assert "unfinished work: 1" in call("gc", "--yes").stdout
    assert (old.exists(), new.exists()) == (False, True)
    assert "removed" in call("gc", "--yes", "--all").stdout
    assert not new.exists()


def test_doctor_says_what_is_missing_and_how_to_get_it(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call("configure", "engine.command=no-such-engine")
    result = call("doctor", "--json")
    found = {row["what"]: row for row in json.loads(result.stdout)}
    assert result.exit_code == 1
    assert found["engine"]["state"] == "missing"
    assert found["engine"]["remedy"]
    assert found["games"]["state"] == "missing"
    assert found["python"]["state"] == "ok"
    assert found["torch"]["state"] == "ok"
    assert found["git repository"]["state"] == "ok"
    assert found["dvc repository"]["state"] == "ok"
    assert "no-such-engine" in call("doctor").stdout or "engine" in call("doctor").stdout


def test_run_on_an_up_to_date_project_starts_nothing(built: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "queen.cli", "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "nothing to do" in done.stderr
    imported = {row.rsplit("|", 1)[-1].strip() for row in done.stderr.splitlines()}
    assert not imported & {"prefect", "mlflow", "torch"}


def test_run_says_when_params_were_edited_and_not_configured(built: Path) -> None:
    path = built / "params" / "config.yaml"
    path.write_text(path.read_text().replace("count: 3", "count: 4"))
    assert "params/ says something else" in call("run").stderr


def test_run_refuses_a_target_that_is_none(toy: Path) -> None:
    with pytest.raises(QueenError, match="did you mean 'filter@r1'"):
        call("run", "filtr@r1")


def test_run_on_rounds_without_values_says_configure(toy: Path) -> None:
    (toy / "params" / "rounds.yaml").write_text("rounds: {r1: {parent: pawn1}}\n")
    with pytest.raises(QueenError, match="queen configure"):
        call("run")
