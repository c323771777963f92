"""What happened, once and in two places: run records in the state folder, then MLflow.

A stage writes run.json and its figures to the state folder; a small process beside it (the
sender) carries them to MLflow, so a stage spends no time on MLflow and does not notice when it
cannot be reached. What could not be sent waits in the outbox for the next run or `queen sync`.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from queen.lineage.artifact import read_json, write_json

SENDER = "QUEEN_SENDER"
FLOW_RUN = "QUEEN_FLOW_RUN"
RUN_FILE = "run.json"
FIGURES_FILE = "figures.jsonl"
DONE = ("done", "cached", "restored")
BUFFER_S = 2.0
DRAIN_S = 60.0
OWN_DRAIN_S = 2.0


@dataclass(frozen=True)
class Input:
    """An artifact that a run read: its name and content hash."""

    name: str
    digest: str


@dataclass(frozen=True)
class Output:
    """An artifact that a run wrote: its name and content hash."""

    name: str
    digest: str


class Tracker:
    """Opens runs of stages.

    Args:
        root: the project.
        state: the state folder.
    """

    def __init__(self, root: Path, state: Path) -> None:
        self.root, self.state = root, state

    def run(
        self,
        stage: str,
        key: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        inputs: Sequence[Input] = (),
        tags: Mapping[str, str] | None = None,
    ) -> StageRun:
        """Open a run; use it as a context manager, so that an exception ends it as failed."""
        values = {
            "stage": stage,
            "key": key,
            "params": dict(params or {}),
            "inputs": [asdict(entry) for entry in inputs],
            "tags": dict(tags or {}),
        }
        return StageRun(self.root, self.state, values)


class StageRun:
    """One execution of a stage, on disk from its first moment."""

    def __init__(
        self, root: Path, state: Path, values: Mapping[str, Any], *, send: bool = True
    ) -> None:
        # Microseconds, so that the names of two runs within a second are in order of time.
        self.id = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(3)}"
        self.name = run_name(values["stage"], values["key"])
        self.folder = state / "runs" / self.name / self.id
        self.folder.mkdir(parents=True)
        self._started = time.monotonic()
        self._cpu = _cpu_seconds()
        self._rows: list[str] = []
        self._flushed = time.monotonic()
        self._values = {
            **values,
            "id": self.id,
            "status": "running",
            "started": time.time(),
            "pid": os.getpid(),
            "project": str(root),
            **_surroundings(root),
        }
        self._write()
        announce(state, self.folder)
        self._sender = contextlib.ExitStack()
        if send:
            self._sender.enter_context(sender(root, state, patience_s=OWN_DRAIN_S))

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Keep figures of one step; cheap, written every two seconds."""
        row = {"step": step, "time": time.time(), "figures": dict(figures)}
        self._rows.append(json.dumps(row))
        if time.monotonic() - self._flushed >= BUFFER_S:
            self._flush()

    def finish(
        self,
        status: str,
        outputs: Sequence[Output] = (),
        figures: Mapping[str, float] | None = None,
        error: str = "",
    ) -> None:
        """End the run: done, cached, failed or refused. A second call changes nothing."""
        if self._values["status"] != "running":
            return
        self._flush()
        self._values.update(
            status=status,
            ended=time.time(),
            wall_s=round(time.monotonic() - self._started, 3),
            cpu_s=round(_cpu_seconds() - self._cpu, 3),
            peak_mb=round(_peak_mb(), 1),
            outputs=[asdict(entry) for entry in outputs],
            figures=dict(figures or {}),
            error=error,
        )
        self._write()
        self._sender.close()

    def __enter__(self) -> StageRun:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.finish("failed", error=f"{type(error).__name__}: {error}")
        else:
            self.finish("done")

    def _flush(self) -> None:
        if self._rows:
            with (self.folder / FIGURES_FILE).open("a", encoding="utf-8") as stream:
                stream.write("".join(row + "\n" for row in self._rows))
            self._rows.clear()
        self._flushed = time.monotonic()

    def _write(self) -> None:
        write_json(self.folder / RUN_FILE, self._values)


def run_name(stage: str, key: str | None) -> str:
    """`stage` or `stage@key`. A stage whose key is its own name (pawn) is just that."""
    return stage if key is None or key == stage else f"{stage}@{key}"


def announce(state: Path, folder: Path) -> None:
    """Put a run into the outbox, for the sender."""
    outbox = state / "outbox"
    outbox.mkdir(parents=True, exist_ok=True)
    (outbox / f"{folder.parent.name}~{folder.name}").touch()


def announced(state: Path) -> list[Path]:
    """The folders of the runs in the outbox, oldest first."""
    names = [p.name for p in (state / "outbox").glob("*~*")]
    pairs = [(run, name) for name, _, run in (n.rpartition("~") for n in names)]
    return [state / "runs" / name / run for run, name in sorted(pairs)]


def retract(state: Path, folder: Path) -> None:
    """Take a run out of the outbox: it is sent."""
    (state / "outbox" / f"{folder.parent.name}~{folder.name}").unlink(missing_ok=True)


def run_folders(state: Path) -> list[Path]:
    """Every run's folder, by stage and then by time."""
    return sorted(p.parent for p in (state / "runs").glob(f"*/*/{RUN_FILE}"))


def read_run(folder: Path) -> dict[str, Any]:
    """The record of a run; one whose process died without ending it says `killed`."""
    values: dict[str, Any] = read_json(folder / RUN_FILE)
    dead = values["status"] == "running" and values["host"] == socket.gethostname()
    if dead and not Path(f"/proc/{values['pid']}").exists() and Path("/proc/self").exists():
        values["status"] = "killed"
    return values


def figure_rows(folder: Path, skip: int = 0) -> list[dict[str, Any]]:
    """The figures a run has logged, but for the first `skip` rows; a half-written row waits."""
    path = folder / FIGURES_FILE
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines[skip:]]


def last_run(state: Path, stage: str, key: str | None = None) -> dict[str, Any] | None:
    """The last run of a stage that did its work, by name, else of the stage under any key."""
    for pattern in (run_name(stage, key), f"{stage}@*", stage):
        folders = sorted(
            (state / "runs").glob(f"{pattern}/*/{RUN_FILE}"), key=lambda p: p.parts[-2]
        )
        for path in reversed(folders):
            values = read_run(path.parent)
            if values["status"] == "done":
                return values
    return None


@contextlib.contextmanager
def sender(root: Path, state: Path, *, patience_s: float = DRAIN_S) -> Iterator[None]:
    """A process that carries the outbox to MLflow while this block runs; one in a tree of them.

    It ends when its stdin does, so that a killed driver leaves none behind. At the end it gets
    so many seconds before we go on; what is left it sends on its own, and then ends.
    """
    if os.environ.get(SENDER):
        yield
        return
    command = [sys.executable, "-m", "queen.lineage.sender", str(root), str(state)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    os.environ[SENDER] = str(process.pid)
    try:
        yield
    finally:
        os.environ.pop(SENDER, None)
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)


def _surroundings(root: Path) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "commit": _git(root, "rev-parse", "HEAD"),
        "dirty": bool(_git(root, "status", "--porcelain", "--untracked-files=no")),
        "flow_run": os.environ.get(FLOW_RUN, ""),
    }


def _git(root: Path, *arguments: str) -> str:
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def _cpu_seconds() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _peak_mb() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return max(usage.ru_maxrss for usage in usages) * unit / 2**20
