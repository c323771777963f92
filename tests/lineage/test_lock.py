"""One run at a time, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from queen.lineage.lock import TOKEN, BusyError, holder, stage_guard, workspace

ROOT = Path(__file__).parents[2]
DRIVER = """
import subprocess, sys, time
from pathlib import Path
from queen.lineage.lock import workspace
with workspace(Path.cwd(), what="the driver"):
    print("held", flush=True)
    if sys.argv[1] != "-":
        child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
        print(child.pid, flush=True)
    time.sleep(60)
"""
STAGE = """
import time
from pathlib import Path
from queen.lineage.lock import stage_guard
with stage_guard(Path.cwd(), stage="filter@r1"):
    Path("working.txt").write_text("yes")
    time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (TOKEN, "QUEEN_NO_WAIT", "DVC_STAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def start(place: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a Python program in the workspace; whatever still runs is ended afterwards."""
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", *arguments]
        environment = {**os.environ, **more}
        process = subprocess.Popen(
            command, cwd=place, env=environment, stdout=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()


def wait_for(what: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_second_run_leaves_or_waits(
    place: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    first = start(DRIVER, "-")
    assert line(first) == "held"
    words = rf"the driver \(process {first.pid}"
    with pytest.raises(BusyError, match=words), workspace(place, what="second", wait=False):
        pass
    held = holder(place)
    assert held is not None
    assert held["what"] == "the driver"
    second = start(DRIVER, "-")
    time.sleep(0.5)
    first.kill()
    assert line(second) == "held"
    assert second.poll() is None


def test_the_lock_is_free_after_its_holder_was_killed(
    place: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    first = start(DRIVER, "-")
    assert line(first) == "held"
    first.kill()
    first.wait()
    with workspace(place, what="next", wait=False):
        pass
    assert holder(place) is None


def test_a_stage_works_under_its_drivers_lock_but_not_beside_a_strangers(
    place: Path, start: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with workspace(place, what="driver"):
        with workspace(place, what="nested", wait=False):
            pass
        start(STAGE)
        wait_for((place / "working.txt").is_file)
    assert TOKEN not in os.environ
    monkeypatch.setenv("QUEEN_NO_WAIT", "1")
    with pytest.raises(BusyError), stage_guard(place, stage="another"):
        pass


def test_a_stage_whose_driver_is_gone_does_not_start(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, "a token of a dead driver")
    with pytest.raises(BusyError, match="is gone"), stage_guard(place, stage="filter@r1"):
        pass


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_a_stage_ends_when_its_driver_is_killed(
    place: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    driver = start(DRIVER, STAGE)
    assert line(driver) == "held"
    child = int(line(driver))
    wait_for((place / "working.txt").is_file)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_for(lambda: gone(child))


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_a_stage_ends_when_its_dvc_is_killed(
    place: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    parent = "import subprocess, sys, time\n"
    parent += "p = subprocess.Popen(['/bin/sh', '-c', sys.executable + ' stage.py; true'])\n"
    parent += "time.sleep(60)\n"
    (place / "stage.py").write_text(
        "import os\nopen('pid.txt','w').write(str(os.getpid()))\n" + STAGE
    )
    dvc = start(parent, DVC_STAGE="filter@r1")
    wait_for((place / "working.txt").is_file)
    child = int((place / "pid.txt").read_text())
    dvc.kill()
    dvc.wait()
    wait_for(lambda: gone(child))
