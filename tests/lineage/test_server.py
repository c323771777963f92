"""The local Prefect server: shared, reused, and gone with its last client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queen.lineage.server import _info, prefect_server, running, server_folder

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]
CLIENT = """
import sys, time
from pathlib import Path
from queen.lineage.server import prefect_server
with prefect_server(Path(sys.argv[1])) as url:
    print(url, flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("PREFECT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "state"


@pytest.fixture
def client(state: Path) -> Iterator[Callable[[float], tuple[subprocess.Popen[str], str]]]:
    """Starts a process that uses the server for so many seconds; gives it and the URL."""
    running: list[subprocess.Popen[str]] = []

    def begin(seconds: float) -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, "-c", CLIENT, str(state), str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield begin
    for process in running:
        process.kill()
        process.wait()


def until(what: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_named_server_is_used_and_none_started(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://somewhere:4200/api")
    with prefect_server(state) as url:
        assert url == "http://somewhere:4200/api"
    assert not (state / "prefect" / "server.json").exists()


def test_clients_share_one_server_that_ends_with_the_last(
    state: Path, client: Callable[[float], tuple[subprocess.Popen[str], str]]
) -> None:
    first, url = client(120)
    info = _info(server_folder(state))
    assert info is not None
    with prefect_server(state) as same:
        assert same == url
        first.send_signal(signal.SIGKILL)
        first.wait()
        time.sleep(1.5)
        assert running(state) == info
    assert running(state) is None
    until(lambda: dead(info["pid"]) and dead(info["supervisor"]))


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end the server")
def test_no_orphan_after_any_kill(
    state: Path, client: Callable[[float], tuple[subprocess.Popen[str], str]]
) -> None:
    first, url = client(120)
    info = _info(server_folder(state))
    assert info is not None
    os.kill(info["supervisor"], signal.SIGKILL)
    until(lambda: dead(info["pid"]))
    second, other = client(120)
    assert other != url
    latest = _info(server_folder(state))
    assert latest is not None
    second.kill()
    first.kill()
    until(lambda: dead(latest["pid"]) and dead(latest["supervisor"]))
    assert not (state / "prefect" / "server.json").exists()
