"""The local Prefect server: one for whoever needs it, gone when the last of them is.

A client holds a shared lock on `clients.lock` as long as it lives. A small supervisor (see
`queen.lineage.supervisor`) runs the server and stops it as soon as nobody holds that lock; the
kernel frees it however a client ends, so `kill -9` leaves no orphan. Should the supervisor itself
be killed, the server dies with it on Linux, and the next start looks for it elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.artifact import ArtifactError, read_json

API_URL = "PREFECT_API_URL"
FOLDER = "prefect"
INFO = "server.json"
LOG = "server.log"
START_S = 180.0
STOP_S = 20.0
QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_API_REQUEST_TIMEOUT": "180",
}
LEAN = {
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_CANCELLATION_CLEANUP_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}


class ServerError(QueenError):
    """The local Prefect server does not start."""


@contextlib.contextmanager
def prefect_server(state: Path, meanwhile: Callable[[], object] = lambda: None) -> Iterator[str]:
    """A Prefect API while this block runs; PREFECT_API_URL names it for this process.

    Uses the one that PREFECT_API_URL already names; else one local server for this state folder,
    shared with whoever else uses it, and stopped after the last of them.

    Args:
        state: the state folder.
        meanwhile: done while a server starts, with PREFECT_API_URL set already: imports, say.

    Raises:
        ServerError: it does not come up; the log is named.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    named = os.environ.get(API_URL)
    if named:
        meanwhile()
        yield named
        return
    folder = server_folder(state)
    os.environ.setdefault("PREFECT_HOME", str(folder / "home"))
    with (folder / "clients.lock").open("a") as clients:
        try:
            yield _join(folder, clients.fileno(), meanwhile)
        finally:
            os.environ.pop(API_URL, None)
    _await_stop(folder)


def server_folder(state: Path) -> Path:
    """Where the local server's files are."""
    folder = state / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def running(state: Path) -> dict[str, Any] | None:
    """The local server of a state folder (url, pid, supervisor), if one answers."""
    info = _info(server_folder(state))
    return info if info and _healthy(info["url"]) else None


def _join(folder: Path, clients: int, meanwhile: Callable[[], object]) -> str:
    """Become a client: take a share of the lock, then the server there is, or a new one."""
    with (folder / "start.lock").open("a") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        fcntl.flock(clients, fcntl.LOCK_SH)  # waits for a supervisor that is just stopping
        info = _info(folder)
        if info and _healthy(info["url"]):
            url, supervisor = str(info["url"]), None
        else:
            end_orphans(folder)
            url, supervisor = _start(folder)
        os.environ[API_URL] = url
        meanwhile()
        if supervisor is not None:
            _await_start(folder, url, supervisor)
        return url


def _start(folder: Path) -> tuple[str, subprocess.Popen[bytes]]:
    port = free_port()
    with (folder / LOG).open("wb") as log:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "queen.lineage.supervisor", str(folder), str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env=server_environment(folder),
        )
    return f"http://127.0.0.1:{port}/api", supervisor


def _await_start(folder: Path, url: str, supervisor: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if _healthy(url):
            return
        if supervisor.poll() is not None:
            break
        time.sleep(0.1)
    supervisor.terminate()
    raise ServerError(
        "the local Prefect server did not start",
        where=str(folder / LOG),
        remedy="read the log's last lines, or set PREFECT_API_URL to a server of your own",
    )


def server_environment(folder: Path) -> dict[str, str]:
    """The environment of a lean server whose files all lie in one folder."""
    database = f"sqlite+aiosqlite:///{folder / 'prefect.db'}"
    own = {
        "PREFECT_HOME": str(folder / "home"),
        "PREFECT_API_DATABASE_CONNECTION_URL": database,
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
    }
    return {**LEAN, **QUIET, **os.environ, **own}


def free_port() -> int:
    """A TCP port nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_orphans(folder: Path) -> list[int]:
    """End a server that outlived its supervisor; returns the processes that were ended."""
    info = _info(folder)
    ended = []
    for name in ("supervisor", "pid"):
        pid = int(info[name]) if info else 0
        if pid and _is_ours(pid, folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                ended.append(pid)
    (folder / INFO).unlink(missing_ok=True)
    return ended


def _is_ours(pid: int, folder: Path) -> bool:
    """Whether a process is a server or supervisor of this folder, not one with a reused number."""
    import psutil  # type: ignore[import-untyped]

    try:
        process = psutil.Process(pid)
        line = process.cmdline()
        home = process.environ().get("PREFECT_HOME", "")
    except psutil.Error:
        return False
    ours = any("queen.lineage.supervisor" in part or "uvicorn" in part for part in line)
    return ours and home == str(folder / "home")


def _info(folder: Path) -> dict[str, Any] | None:
    try:
        found = read_json(folder / INFO)
    except ArtifactError:
        return None
    return found if isinstance(found, dict) else None


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _await_stop(folder: Path) -> None:
    """Wait until the supervisor is gone, unless another client keeps it."""
    deadline = time.monotonic() + STOP_S
    while time.monotonic() < deadline and (folder / INFO).exists():
        if _has_clients(folder):
            return
        time.sleep(0.05)


def _has_clients(folder: Path) -> bool:
    """Whether a client (not the stopping supervisor) holds the lock: a share can then be had."""
    with (folder / "clients.lock").open("a") as clients:
        try:
            fcntl.flock(clients, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(clients, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
    return False
