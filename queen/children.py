"""Processes that work for this one and must not outlive it. The standard library alone."""

from __future__ import annotations

import os
import signal
import threading
from multiprocessing import parent_process


def follow_parent() -> None:
    """What a spawned process does first: Ctrl-C is left to its parent, with whom it ends.

    It ends the moment the parent does, kill -9 included: the parent's end of a pipe closes.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
