"""A progress line for a stage: done, rate, time left."""

from __future__ import annotations

import sys
import time

from stages.base import Progress

QUIET_S = 10.0


def progress_printer(label: str) -> Progress:
    """A line on a terminal; elsewhere (a log, DVC's pipe) one line every ten seconds."""
    started, last = time.monotonic(), [0.0]

    def show(done: int, total: int, note: str = "") -> None:
        now = time.monotonic()
        tty = sys.stderr.isatty()
        if now - last[0] < (0.2 if tty else QUIET_S) and done < total:
            return
        last[0] = now
        line = progress_line(label, done, total, now - started, note)
        print(f"\r\x1b[2K{line}" if tty else line, file=sys.stderr, end="" if tty else "\n")
        if tty and done >= total:
            print(file=sys.stderr)
        sys.stderr.flush()

    return show


def progress_line(label: str, done: int, total: int, seconds: float, note: str = "") -> str:
    """`label 3/10, 1.5/s, 5 s left, note`."""
    rate = done / seconds if seconds > 0 else 0.0
    left = f", {(total - done) / rate:.0f} s left" if rate > 0 and done < total else ""
    speed = f", {rate:.3g}/s" if done else ""
    return f"{label} {done}/{total}{speed}{left}{', ' + note if note else ''}"
