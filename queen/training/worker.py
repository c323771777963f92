"""A rank: `python -m queen.training.worker ORDER ...`, or `-` to read orders' folders from stdin.

Started by a `Crew`, by torchrun or by the deepspeed launcher; alone without any. It ends when
its stdin does (given `-`), when the process that started it dies, or when the one that waits for
its order no longer says that it is alive.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

PR_SET_PDEATHSIG = 1
LOOK_S, SILENCE_S = 2.0, 60.0
STOPPED = 2


def main(arguments: list[str]) -> int:
    """Carry out orders in turn; 2 after one that failed in a way a person can act on."""
    _die_with_parent()
    arguments = [each for each in arguments if not each.startswith("--local_rank")]
    orders = _from_stdin() if arguments == ["-"] else iter(arguments)
    from queen.errors import QueenError
    from queen.training.order import carry_out
    from queen.training.world import joined

    with joined() as world:
        for order in orders:
            try:
                with _watching(Path(order)):
                    carry_out(Path(order), world.first)
            except QueenError as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(STOPPED)  # the other ranks wait in a collective: leaving needs no goodbye
    return 0


def _from_stdin() -> Iterator[str]:
    for line in sys.stdin:
        yield line.rstrip("\n")


@contextlib.contextmanager
def _watching(order: Path) -> Iterator[None]:
    """End this process when the one that waits for the order is gone.

    It is seen to be gone here, or has not touched the order's `alive` for a minute (another host).
    """
    from queen.training.order import ALIVE

    done = threading.Event()
    if (order / ALIVE).exists():
        threading.Thread(target=_watch, args=(order / ALIVE, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _watch(alive: Path, done: threading.Event) -> None:
    host, _, process = alive.read_text().partition(" ")
    near = host == socket.gethostname()
    touched, since = 0.0, time.monotonic()
    while not done.wait(LOOK_S):
        now = alive.stat().st_mtime if alive.exists() else touched
        if now != touched:
            touched, since = now, time.monotonic()
        silent = time.monotonic() - since > SILENCE_S
        if (silent or (near and _gone(int(process)))) and not done.is_set():
            os._exit(1)


def _gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _die_with_parent() -> None:
    """The kernel kills this process when its parent dies, kill -9 included (Linux)."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
