"""Figures as people read them: one wording for terminal, page and card."""

from __future__ import annotations

Bounds = tuple[float | None, float | None]
NONE = "–"


def between(bounds: Bounds, sign: str = "") -> str:
    """`640 .. 720`, an open side infinite; with the sign `+`, `+40 .. +inf`."""
    low, high = (None if bound is None else f"{bound:{sign}.0f}" for bound in bounds)
    return f"{low or '-inf'} .. {high or '+inf'}"


def elo(value: float | None, bounds: Bounds | None) -> str:
    """`700 (640 .. +inf)`; the value alone where nobody reckoned its bounds."""
    if value is None:
        return NONE
    return f"{value:.0f}" if bounds is None else f"{value:.0f} ({between(bounds)})"


def share(value: float | None) -> str:
    """A share in percent without its sign, `12.3`, or a dash."""
    return NONE if value is None else f"{100 * value:.1f}"


def percent(value: float | None) -> str:
    """A share as `12.3 %`, or a dash."""
    return NONE if value is None else f"{share(value)} %"


def duration(seconds: float) -> str:
    """`4.2 s`, `42 s`, `3 min 10 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
