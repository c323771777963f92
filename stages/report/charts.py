"""Charts as inline SVG: colours are the page's, every mark says what it is when pointed at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 520, 260
LEFT, RIGHT, TOP, BOTTOM = 48, 92, 14, 44
SERIES = ("s1", "s2", "s3", "s4", "s5", "s6")


@dataclass(frozen=True)
class Point:
    """One model's value.

    Attributes:
        label: under the axis.
        value, low, high: None for an open side.
        kind: a CSS class, the verdict's.
        parent: label of the point it comes from.
        starred: whether it is the champion.
    """

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    kind: str = ""
    parent: str | None = None
    starred: bool = False


@dataclass(frozen=True)
class Bar:
    """One row of a list of bars.

    Attributes:
        value: length as a share of the longest.
        text: said at its end.
        mark: a tick to compare with, as a share too.
        minor: drawn smaller, as part of the row above.
    """

    label: str
    value: float
    text: str
    mark: float | None = None
    minor: bool = False
    kind: str = ""


@dataclass(frozen=True)
class Curve:
    """One phase of training: its name and its losses, evenly spaced."""

    name: str
    values: Sequence[float]
    steps: int


@dataclass(frozen=True)
class Scale:
    """From values to places on an axis."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        span = (self.high - self.low) or 1.0
        share = (min(max(value, self.low), self.high) - self.low) / span
        return round(self.start + share * (self.stop - self.start), 1)


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover a range, about `count` of them."""
    span = (high - low) or abs(high) or 1.0
    raw = span / count
    step = 10.0 ** math.floor(math.log10(raw))
    step *= next(f for f in (1, 2, 2.5, 5, 10) if f * step >= raw - 1e-12)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * n, 10) for n in range(first, last + 1)]


def interval_chart(
    points: Sequence[Point],
    references: Sequence[tuple[str, float]] = (),
    *,
    share: bool,
    title: str,
) -> Markup:
    """Values with their intervals, one model beside the other, lines from parent to child.

    Args:
        references: dashed lines to compare with, by name.
        share: values in [0, 1], shown as percent; else plain numbers.
    """
    bounds = [v for p in points for v in (p.value, p.low, p.high) if v is not None]
    bounds += [value for _, value in references]
    low, high = (0.0, max([*bounds, 0.05])) if share else (min(bounds), max(bounds))
    if any(p.high is None for p in points) and not share:
        high += 0.12 * (high - low)
    ticks = nice_ticks(low, min(high, 1.0) if share else high)
    y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    xs = dict(zip([p.label for p in points], _places(len(points)), strict=True))
    parts = [*_grid(y, ticks, share)]
    parts += _references(references, y, share)
    parts += [
        f'<line class="edge" x1="{xs[p.parent]}" y1="{y(_value_of(points, p.parent))}" '
        f'x2="{xs[p.label]}" y2="{y(p.value)}"/>'
        for p in points
        if p.parent in xs
    ]
    parts += [part for p in points for part in _point(p, xs[p.label], y, share)]
    parts += [_label(xs[p.label], p.label, p.starred) for p in points]
    return _svg(parts, title)


def _places(count: int) -> list[float]:
    room = WIDTH - LEFT - RIGHT
    return [round(LEFT + room * (n + 0.5) / max(1, count), 1) for n in range(count)]


def _value_of(points: Sequence[Point], label: str | None) -> float:
    return next(p.value for p in points if p.label == label)


def _number(value: float, share: bool) -> str:
    if share:
        return f"{100 * value:.1f} %"
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.2f}"


def _grid(
    y: Scale, ticks: Sequence[float], share: bool, right: int = WIDTH - RIGHT
) -> Iterator[str]:
    for tick in ticks:
        text = f"{100 * tick:.0f} %" if share else f"{tick:g}"
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y(tick)}" y2="{y(tick)}"/>'
        yield f'<text class="tick" x="{LEFT - 8}" y="{y(tick) + 4}" text-anchor="end">{text}</text>'


def _references(references: Sequence[tuple[str, float]], y: Scale, share: bool) -> Iterator[str]:
    """Dashed lines with their names at the right, moved apart where they would overlap."""
    above = math.inf
    for name, value in sorted(references, key=lambda pair: pair[1]):
        at = min(y(value) + 4, above - 13)
        above = at
        yield (
            f'<line class="reference" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value)}" '
            f'y2="{y(value)}"/><text class="reference" x="{WIDTH - RIGHT + 6}" y="{at:.1f}">'
            f"{escape(name)}<title>{escape(name)} {_number(value, share)}</title></text>"
        )


def _point(point: Point, x: float, y: Scale, share: bool) -> Iterator[str]:
    """A whisker (an arrow head where a side is open) and a dot."""
    bounds = ""
    if point.low is not None or point.high is not None:
        top = y(point.high) if point.high is not None else y.stop
        bottom = y(point.low) if point.low is not None else y.start
        yield f'<line class="whisker {point.kind}" x1="{x}" x2="{x}" y1="{bottom}" y2="{top}"/>'
        yield _cap(x, top, point.high is None, -1, point.kind)
        yield _cap(x, bottom, point.low is None, 1, point.kind)
        low = "open" if point.low is None else _number(point.low, share)
        high = "open" if point.high is None else _number(point.high, share)
        bounds = f" [{low}, {high}]"
    text = f"{point.label}: {_number(point.value, share)}{bounds}"
    yield (
        f'<circle class="dot {point.kind}" cx="{x}" cy="{y(point.value)}" r="5.5">'
        f"<title>{escape(text)}</title></circle>"
    )
    yield (
        f'<text class="value" x="{x + 10}" y="{y(point.value) + 4}">'
        f"{_number(point.value, share)}</text>"
    )


def _cap(x: float, y: float, is_open: bool, way: int, kind: str) -> str:
    if is_open:
        inner = y - way * 8
        return f'<path class="arrow {kind}" d="M{x - 5} {inner}L{x} {y}L{x + 5} {inner}"/>'
    return f'<line class="whisker {kind}" x1="{x - 5}" x2="{x + 5}" y1="{y}" y2="{y}"/>'


def _label(x: float, text: str, starred: bool = False) -> str:
    star = " ★" if starred else ""
    return (
        f'<text class="label" x="{x}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">'
        f"{escape(text)}{star}</text>"
    )


def _svg(parts: Sequence[str], title: str, height: float = HEIGHT) -> Markup:
    body = "".join(parts)
    return Markup(
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="{escape(title)}">{body}</svg>'
    )


def series_chart(
    labels: Sequence[str], series: Mapping[str, Sequence[float | None]], *, title: str
) -> Markup:
    """Several shares for each model, one line for each share; the names stand in a legend.

    Args:
        series: at most as many as SERIES has colours.
    """
    known = [v for values in series.values() for v in values if v is not None]
    if not known:
        return Markup("")
    ticks = nice_ticks(0.0, min(1.0, max([*known, 0.05])))
    y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    xs = _places(len(labels))
    parts = [*_grid(y, ticks, True), *(_label(x, name) for x, name in zip(xs, labels, strict=True))]
    ends: list[tuple[float, str, str]] = []
    assert len(series) <= len(SERIES), f"no colour for {sorted(series)[len(SERIES) :]}"
    for (name, values), style in zip(series.items(), SERIES, strict=False):
        spots = [(x, v) for x, v in zip(xs, values, strict=True) if v is not None]
        if not spots:
            continue
        path = " ".join(f"{x},{y(v)}" for x, v in spots)
        parts.append(f'<polyline class="line {style}" points="{path}"/>')
        parts += [
            f'<circle class="dot {style}" cx="{x}" cy="{y(v)}" r="4">'
            f"<title>{escape(name)}: {_number(v, True)}</title></circle>"
            for x, v in spots
        ]
        ends.append((y(spots[-1][1]) + 4, name, style))
    return _svg([*parts, *_ends(ends)], title)


def _ends(ends: Sequence[tuple[float, str, str]]) -> Iterator[str]:
    """Names of lines at their right ends, lowest first, moved apart."""
    above = math.inf
    for wanted, name, style in sorted(ends, reverse=True):
        above = min(wanted, above - 14)
        yield (
            f'<text class="name {style}" x="{WIDTH - RIGHT + 6}" y="{above:.1f}">'
            f"{escape(name)}</text>"
        )


def bar_list(bars: Sequence[Bar], *, title: str, wide: int = 170) -> Markup:
    """Rows of bars with their names at the left and their numbers at the right.

    Args:
        wide: room for the names.
    """
    end = WIDTH - 92
    parts, y = [], 4.0
    for bar in bars:
        height = 12 if bar.minor else 18
        length = max(1.0, (end - wide) * min(1.0, max(0.0, bar.value)))
        small = " minor" if bar.minor else ""
        middle = y + height / 2 + 4
        parts.append(
            f'<text class="bar-name{small}" x="{wide - 8}" y="{middle}" text-anchor="end">'
            f"{escape(bar.label)}</text>"
            f'<rect class="track" x="{wide}" y="{y}" width="{end - wide}" height="{height}"/>'
            f'<rect class="bar {bar.kind}{small}" x="{wide}" y="{y}" width="{length:.1f}" '
            f'height="{height}"><title>{escape(bar.label)}: {escape(bar.text)}</title></rect>'
        )
        if bar.mark is not None:
            at = wide + (end - wide) * min(1.0, max(0.0, bar.mark))
            parts.append(
                f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{y - 2}" '
                f'y2="{y + height + 2}"/>'
            )
        parts.append(
            f'<text class="bar-text{small}" x="{end + 8}" y="{middle}">{escape(bar.text)}</text>'
        )
        y += height + (5 if bar.minor else 8)
    return _svg(parts, title, y + 2)


def curve_chart(curves: Sequence[Curve], *, title: str) -> Markup:
    """Losses of the phases of a training run, one after the other."""
    values = [v for curve in curves for v in curve.values if math.isfinite(v)]
    if not values:
        return Markup("")
    ticks = nice_ticks(0.0, max(values), 4)
    y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    total = sum(curve.steps for curve in curves) or 1
    room, start = WIDTH - LEFT - 16, float(LEFT)
    parts = [*_grid(y, ticks, False, WIDTH - 16)]
    for curve in curves:
        width = room * curve.steps / total
        parts += _curve(curve, start, width, y)
        start += width
    return _svg(parts, title)


def _curve(curve: Curve, start: float, width: float, y: Scale) -> Iterator[str]:
    gaps = max(1, len(curve.values) - 1)
    spots = " ".join(
        f"{start + width * n / gaps:.1f},{y(value)}"
        for n, value in enumerate(curve.values)
        if math.isfinite(value)
    )
    yield f'<line class="phase" x1="{start:.1f}" x2="{start:.1f}" y1="{TOP}" y2="{y.start}"/>'
    yield f'<polyline class="line s1" points="{spots}"/>'
    yield (
        f'<text class="label" x="{start + width / 2:.1f}" y="{HEIGHT - BOTTOM + 20}" '
        f'text-anchor="middle">{escape(curve.name)}</text>'
        f'<text class="tick" x="{start + width / 2:.1f}" y="{HEIGHT - BOTTOM + 36}" '
        f'text-anchor="middle">{curve.steps} steps</text>'
    )
