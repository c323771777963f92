"""A chart of the report as a file of its own, in the page's colours."""

from __future__ import annotations

import re
from importlib.resources import files

from markupsafe import Markup, escape

from stages.report.charts import HEIGHT, WIDTH

_TEMPLATE = "report.html.jinja"
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_OPEN = '<svg class="chart" '
_OWN = (
    'svg.chart { background: var(--card); font-family: system-ui, "DejaVu Sans", sans-serif; '
    "padding: 8px; }"
)


def standalone(chart: Markup, caption: str) -> str:
    """An SVG document that browsers and editors open: the chart with the page's style in it.

    Args:
        chart: of the usual height.
        caption: a line below the axis.
    """
    assert str(chart).startswith(_OPEN), "not a chart of stages.report.charts"
    body = str(chart).removeprefix(_OPEN)
    attributes, _, parts = body.partition(">")
    below = f'<text class="tick" x="{WIDTH / 2:g}" y="{HEIGHT - 6}" text-anchor="middle">'
    parts = parts.removesuffix("</svg>") + f"{below}{escape(caption)}</text></svg>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {attributes}>'
        f"<style>{_page_style()}{_OWN}</style>{parts}\n"
    )


def _page_style() -> str:
    page = files("stages.report").joinpath(_TEMPLATE).read_text("utf-8")
    found = _STYLE.search(page)
    assert found is not None, f"{_TEMPLATE} has no style"
    return found[1]
