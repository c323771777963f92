"""A progress line for a stage: done, rate, time left."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from stages.base import Progress

QUIET_S = 10.0


@dataclass
class Part:
    """A piece of work with a count of its own: when it began, what was done, of how much."""

    started: float
    done: int
    total: int


def progress_printer(label: str) -> Progress:
    """A line on a terminal; elsewhere (a log, DVC's pipe) one line every ten seconds."""
    shown, part = 0.0, Part(time.monotonic(), 0, 0)

    def show(done: int, total: int, note: str = "") -> None:
        nonlocal shown, part
        now, tty = time.monotonic(), sys.stderr.isatty()
        if total != part.total or done < part.done:
            part = Part(now, done, total)
        part.done = done
        if now - shown < (0.2 if tty else QUIET_S) and done < total:
            return
        shown = now
        line = progress_line(label, done, total, now - part.started, note)
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
