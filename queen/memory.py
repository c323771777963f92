"""Memory of the process, for who computes in phases. The standard library alone."""

from __future__ import annotations

import ctypes


def release_memory() -> None:
    """Give freed memory back to the system between phases: glibc keeps it in pieces otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
