"""One run at a time in a workspace, and no process left behind by a killed one.

Two files under `.dvc/tmp/queen`: `run.lock` belongs to whoever drives (`queen run`, a deployed
flow, or a stage under plain `dvc repro`), `stage.lock` to the stage process itself. The kernel
frees both (flock) however their holder ends. A stage started by a driver proves it with the
token in QUEEN_LOCK.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from queen.errors import QueenError

TOKEN = "QUEEN_LOCK"
NO_WAIT = "QUEEN_NO_WAIT"
POLL_S = 0.25
SHELLS = {"sh", "bash", "dash", "zsh", "ash", "busybox"}


class BusyError(QueenError):
    """Another run holds the workspace."""


def lock_folder(root: Path) -> Path:
    """Where the locks of a workspace are; inside DVC's own ignored folder."""
    folder = root / ".dvc" / "tmp" / "queen"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def workspace(root: Path, *, what: str, wait: bool = True) -> Iterator[None]:
    """Hold the workspace for a whole run; stages started within know that they may work.

    Args:
        root: the project.
        what: shown to whoever has to wait.
        wait: wait for another run to end, or raise at once.

    Raises:
        BusyError: another run holds it and `wait` is off.
    """
    if _inherited(root):
        yield
        return
    token = secrets.token_hex(16)
    with _locked(lock_folder(root) / "run.lock", what, wait, {"token": token}):
        before = os.environ.get(TOKEN)
        os.environ[TOKEN] = token
        try:
            yield
        finally:
            _restore(TOKEN, before)


@contextlib.contextmanager
def stage_guard(root: Path, *, stage: str) -> Iterator[None]:
    """Everything a stage process does happens inside this.

    Takes the workspace unless its driver holds it, and the stage lock, so that what a killed
    driver left running cannot work beside its successor; ends this process when the driver dies.
    QUEEN_NO_WAIT=1 in the environment makes it raise instead of wait.

    Raises:
        BusyError: see there.
    """
    wait = os.environ.get(NO_WAIT, "") in ("", "0")
    _end_with_driver(root)
    inner = lock_folder(root) / "stage.lock"
    with workspace(root, what=stage, wait=wait), _locked(inner, stage, wait, {}):
        yield


def holder(root: Path) -> dict[str, Any] | None:
    """Who holds the workspace now (pid, what, since), or None."""
    path = lock_folder(root) / "run.lock"
    return _read_holder(path) if _is_locked(path) else None


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """A plain lock on a file, waited for; for short changes of shared files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _locked(path: Path, what: str, wait: bool, more: dict[str, str]) -> Iterator[None]:
    with path.open("a+") as stream:
        _take(stream, path, what, wait)
        _write_holder(stream, {"pid": os.getpid(), "what": what, "since": _now(), **more})
        try:
            yield
        finally:
            _write_holder(stream, {})


def _take(stream: IO[str], path: Path, what: str, wait: bool) -> None:
    if _try(stream):
        return
    other = _describe(_read_holder(path))
    if not wait:
        raise BusyError(
            f"the workspace is held by {other}",
            where=str(path),
            remedy="wait for it to end, or run without --no-wait to be queued behind it",
        )
    print(f"{what}: waiting for {other}", file=sys.stderr, flush=True)
    while not _try(stream):
        time.sleep(POLL_S)


def _try(stream: IO[str]) -> bool:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("a+") as stream:
        return not _try(stream)


def _write_holder(stream: IO[str], value: dict[str, Any]) -> None:
    stream.seek(0)
    stream.truncate()
    if value:
        json.dump(value, stream)
    stream.flush()


def _read_holder(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text() or "{}")
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _describe(found: dict[str, Any]) -> str:
    if not found:
        return "another run"
    return f"{found.get('what')} (process {found.get('pid')}, since {found.get('since')})"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


def _restore(name: str, before: str | None) -> None:
    if before is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = before


def _inherited(root: Path) -> bool:
    """Whether our driver (or this very process) holds this workspace."""
    token = os.environ.get(TOKEN)
    if not token:
        return False
    path = lock_folder(root) / "run.lock"
    return _read_holder(path).get("token") == token and _is_locked(path)


def _end_with_driver(root: Path) -> None:
    """Watch whoever drives this process, if it was started by one."""
    if os.environ.get(TOKEN):
        if not _inherited(root):
            raise BusyError(
                "the run that started this stage is gone",
                where=str(lock_folder(root)),
                remedy=f"start it again with `queen run` (or unset {TOKEN})",
            )
        path = lock_folder(root) / "run.lock"
        pid = int(_read_holder(path).get("pid") or 0)
        if pid and pid != os.getpid():
            _watch(lambda: _alive(pid))
    elif os.environ.get("DVC_STAGE"):
        driver = _dvc_process()
        if driver:
            _watch(lambda: _alive(driver))


def _dvc_process() -> int | None:
    """The `dvc repro` above us: our parent, or its parent where a shell stands between."""
    import psutil  # type: ignore[import-untyped]

    with contextlib.suppress(psutil.Error):
        parent = psutil.Process().parent()
        if parent is not None and parent.name() in SHELLS:
            parent = parent.parent()
        if parent is not None and parent.pid > 1:
            return int(parent.pid)
    return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _zombie(pid)


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def _watch(alive: Callable[[], bool]) -> None:
    def look() -> None:
        while alive():
            time.sleep(1.0)
        print("the run that started this stage is gone: ending", file=sys.stderr, flush=True)
        threading.Timer(10.0, lambda: os._exit(143)).start()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=look, name="driver-watch", daemon=True).start()
