"""Runs the local Prefect server and ends it with its last client.

`python -m queen.lineage.supervisor FOLDER PORT`; see `queen.lineage.server`.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from queen.lineage.artifact import write_json

LOOK_S = 0.3
GRACE_S = 10.0
PR_SET_PDEATHSIG = 1


def main(folder: Path, port: int) -> int:
    """Serve until no client holds a share of `clients.lock`; returns 1 if the server fell over."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (folder / "clients.lock").open("a") as clients:
        server = _serve(port)
        signal.signal(signal.SIGTERM, lambda number, frame: server.terminate())
        info = {"url": f"http://127.0.0.1:{port}/api", "pid": server.pid, "supervisor": os.getpid()}
        write_json(folder / "server.json", info)
        while server.poll() is None and not _alone(clients.fileno()):
            time.sleep(LOOK_S)
        fell = server.poll() is not None
        _stop(server)
        (folder / "server.json").unlink(missing_ok=True)
        return int(fell)


def _serve(port: int) -> subprocess.Popen[bytes]:
    application = "prefect.server.api.server:create_app"
    options = ["--factory", "--host", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    return subprocess.Popen(
        [sys.executable, "-m", "uvicorn", application, *options, "--timeout-keep-alive", "30"],
        stdin=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    )


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent ends; elsewhere nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _alone(clients: int) -> bool:
    """Whether nobody else holds the lock; if so we now hold it, and a new client waits for us."""
    try:
        fcntl.flock(clients, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
