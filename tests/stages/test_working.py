"""Several at one stage's shards: whoever dies costs nothing, the bytes are those of one."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from label_project import (
    bare_project,
    change,
    environment,
    files_of,
    hanging_engine,
    make_project,
)

from queen.engines.locate import find_engine
from queen.engines.uci import EngineStartError
from queen.errors import QueenError
from queen.lineage.artifact import open_artifact
from queen.lineage.remote import Remote
from queen.lineage.shared import SharedStore
from queen.lineage.store import ShardStore
from stages.base import Job, Machine, Shard, StageSpec
from stages.label import SPEC
from stages.preparing import make_plan, prepare
from stages.runner import run_stage
from stages.sharing import _offered, work_with_others
from stages.working import Worker, make_worker

WORK = [sys.executable, "-m", "queen.cli", "work"]


@pytest.fixture(scope="module")
def engine() -> str:
    try:
        return find_engine("stockfish")
    except EngineStartError as error:
        pytest.skip(error.what)


def until(what: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    """Wait for something a process is about to do; a test's own limit ends the waiting."""
    while not what():
        assert process.poll() is None, "it ended before"
        time.sleep(0.05)


@pytest.mark.e2e
def test_a_killed_run_and_a_killed_worker_leave_the_bytes_of_one_process(
    engine: str, tmp_path: Path
) -> None:
    """A run and a worker each hold a shard when they are killed; another worker and the next run
    end the work. Workers have neither inputs nor params: all they know comes through the store."""
    whole = run_stage("label", make_project(tmp_path / "alone"))
    project, store = make_project(tmp_path / "run"), str(tmp_path / "store")
    change(project, "machine", store=store)
    doomed, helper = bare_project(tmp_path / "doomed"), bare_project(tmp_path / "helper")
    hanging = hanging_engine(tmp_path / "bin" / "stockfish", engine, "position fen")
    path = os.pathsep.join([str(hanging.parent), os.environ["PATH"]])
    remote = Remote(store)

    def start(where: Path, *command: str, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, cwd=where, env=environment(where, **more))

    run = [sys.executable, "-m", "stages", "label"]
    first = [start(project, *run, PATH=path)]
    until(lambda: remote.names("leases/label"), first[0])
    first.append(start(doomed, *WORK, "label", "--store", store, PATH=path))
    until(lambda: len(remote.names("leases/label")) > 1, first[1])
    for process in first:
        process.kill()
        process.wait()
    assert len(remote.names("leases/label")) == 2
    assert remote.names("shards/label") == set()
    second = start(helper, *WORK, "--store", store, "--workers", "1")
    until(lambda: remote.names("shards/label"), second)
    third = start(project, *run)
    assert (second.wait(), third.wait()) == (0, 0)
    assert files_of(open_artifact(project / "data" / "label")) == files_of(whole)
    assert remote.names("offers") == remote.names("leases/label") == set()
    assert list((helper / ".state" / "shards" / "label").iterdir())


# -- without an engine: shards of plain text ------------------------------------------------


def test_runs_and_workers_share_a_store_in_memory(tmp_path: Path) -> None:
    """Two runs at once and what a third finds: each shard is worked once, all have every one."""
    url = f"memory://{secrets.token_hex(8)}"
    worked: list[str] = []

    def work(job: Job[Any], shard: Shard, out: Path) -> None:
        worked.append(shard.id)
        time.sleep(0.01)
        (out / "text").write_text(shard.id)

    spec = _texts(work)
    jobs = [_job(tmp_path / name, url) for name in ("a", "b", "c")]
    plans = [make_plan(spec, job) for job in jobs]
    assert plans[0] == plans[1] == plans[2]
    threads = [
        threading.Thread(target=work_with_others, args=(spec, job, plan, _shared(job, url)))
        for job, plan in zip(jobs[:2], plans, strict=False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work_with_others(spec, jobs[2], plans[2], _shared(jobs[2], url))
    assert sorted(worked) == [shard.id for shard in plans[0].shards]
    for job in jobs:
        store = ShardStore(job.state.shards)
        folders = [store.get("label", key) for key in plans[0].keys]
        texts = [(folder / "text").read_text() for folder in folders if folder]
        assert texts == [shard.id for shard in plans[0].shards]
    assert Remote(url).names("offers") == Remote(url).names("leases/label") == set()


def test_a_shard_that_fails_frees_its_lease_and_says_why(tmp_path: Path) -> None:
    url = f"memory://{secrets.token_hex(8)}"

    def refuse(job: Job[Any], shard: Shard, out: Path) -> None:
        raise QueenError("no", where=shard.id)

    job = _job(tmp_path / "a", url)
    spec = _texts(refuse)
    with pytest.raises(QueenError, match="no"):
        work_with_others(spec, job, make_plan(spec, job), _shared(job, url))
    assert Remote(url).names("offers") == Remote(url).names("leases/label") == set()


def _shared(job: Job[Any], url: str) -> SharedStore:
    return SharedStore(Remote(url), ShardStore(job.state.shards))


def _texts(work: Callable[[Job[Any], Shard, Path], None]) -> StageSpec:
    def shards(job: Job[Any]) -> Sequence[Shard]:
        return [Shard(f"{n:02d}", {"n": n}) for n in range(12)]

    return replace(SPEC, shards=shards, work=work, uses=())


def _job(root: Path, url: str) -> Job[Any]:
    project = make_project(root, games=1)
    change(project, "machine", store=url)
    return prepare(replace(SPEC, uses=()), None, project)


# -- what a worker refuses ------------------------------------------------------------------


def worker(project: Path, url: str, said: list[str]) -> Worker:
    return Worker(project, url, Machine(workers=1, lease_s=2.0), said.append)


def test_a_worker_declines_what_it_would_make_otherwise(engine: str, tmp_path: Path) -> None:
    project = make_project(tmp_path / "run", games=1)
    url = str(tmp_path / "store")
    job = prepare(SPEC, None, project)
    plan = make_plan(SPEC, job)
    said: list[str] = []
    with _offered(SPEC, job, plan, _shared(job, url)):
        helper = worker(bare_project(tmp_path / "helper"), url, said)
        helper.engine = {"options": {"Contempt": "5"}, "hash_mb": 2}
        assert helper.run("label") == 0
    assert "declined" in said[0]
    assert Remote(url).names("shards/label") == set()


def test_a_worker_without_an_offer_works_by_its_own_project(engine: str, tmp_path: Path) -> None:
    project, url = make_project(tmp_path / "run", games=1), str(tmp_path / "store")
    said: list[str] = []
    count = len(make_plan(SPEC, prepare(SPEC, None, project)).keys)
    assert worker(project, url, said).run("label") == count
    assert worker(project, url, said).run("label") == 0
    assert worker(project, url, said).run(None) == 0
    with pytest.raises(QueenError, match="params"):
        worker(bare_project(tmp_path / "bare"), url, said).run("label")


def test_a_worker_needs_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUEEN_STORE", raising=False)
    project = bare_project(tmp_path / "bare")
    with pytest.raises(QueenError, match="no shared store"):
        make_worker(project, "", 0, print)
    monkeypatch.setenv("QUEEN_STORE", str(tmp_path / "store"))
    made = make_worker(project, "", 3, print)
    assert (made.store, made.machine.workers) == (str(tmp_path / "store"), 3)
