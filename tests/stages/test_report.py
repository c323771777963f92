"""The page: whole where the project is, honest where it is not, and nothing from outside."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from occurrence_rows import distinct_table, label_table, occurrences, write_artifact
from round_project import KEY, copy_of_data, copy_of_round, rewrite
from typer.testing import CliRunner

from queen.cli import app
from queen.commands.standing import standing
from queen.errors import QueenError
from queen.lineage.artifact import open_artifact
from queen.lineage.state import open_state
from queen.lineage.tracking import Tracker
from stages.base import ROWS
from stages.gates import SUITES
from stages.report.charts import Bar, Point, bar_list, interval_chart, nice_ticks, series_chart
from stages.report.flow import GATED
from stages.report.page import write_report

VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Open elements, headings, and every address that a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.headings: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data") and not (value or "").startswith("#"):
                self.fetched.append(f"{tag} {value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


def page_of(project: Path) -> tuple[str, Outline]:
    state = open_state(project)
    rows, _ = standing(project, state)
    out = project / "report.html"
    size = write_report(project, state, rows, out)
    html = out.read_text()
    assert size == len(html.encode()) < 3_000_000
    outline = Outline()
    outline.feed(html)
    assert outline.open == []
    return html, outline


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_of_round(tmp_path)


def test_the_page_of_a_whole_round(project: Path) -> None:
    Tracker(project, open_state(project).root).run("filter", KEY).finish("done")
    html, outline = page_of(project)
    assert outline.fetched == []
    assert not re.search(r"<script|<link|@import|url\(", html)
    assert outline.headings == [
        "Models over time",
        "What the board means",
        "Training",
        "Where a round's examples come from and go",
        "Explanations",
        "What the data stages left out",
        "Data gates",
        "What it cost",
        "Artifacts",
    ]
    text = " ".join(outline.text)
    for part in (
        "r1",
        "★",
        "better",
        "no evidence",
        "random move",
        "(550 .. +inf)",
        "no seeds yet",
    ):
        assert part in text
    kept = open_artifact(project / f"data/filter/{KEY}").record.counts
    assert f"{kept['kept']} of {kept['examples']}" in text


def test_what_is_declared_of_a_model_stands_by_its_figures(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    said = "which move the expert prefers (a question of ours, weight 9)"
    assert said not in page_of(project)[0]
    model = open_artifact(project / f"models/{KEY}")
    rewrite(model, figures={**model.record.figures, "declared.expert_move": 9.0})
    text = " ".join(page_of(project)[1].text)
    assert said in text
    assert "†" in text
    assert f"{KEY}, not by the published recipe" in CliRunner().invoke(app, ["rounds"]).output


def test_examples_are_shown_with_boards_and_with_who_said_what(project: Path) -> None:
    html, _ = page_of(project)
    rows = pq.read_table(project / f"data/filter/{KEY}" / ROWS).to_pylist()
    shown = [row for row in rows if row["pid"] in html]
    assert {row["dropped"] == "" for row in shown} == {True, False}
    assert html.count("<desc>") == len(shown)
    for row in shown:
        assert f"<desc>{row['fen']}</desc>" in html
    badges = re.findall(r'<span class="who (\w+)"', html)
    assert {"model", "engine"} <= set(badges)
    assert html.count('id="white-pawn"') == 1
    assert html.count("line worse") >= 1


def test_the_same_examples_are_sampled_every_time(project: Path) -> None:
    first, second = page_of(project)[0], page_of(project)[0]
    assert re.sub(r"Written [^<]*", "", first) == re.sub(r"Written [^<]*", "", second)


def test_the_page_of_a_project_without_models(tmp_path: Path) -> None:
    html, outline = page_of(copy_of_data(tmp_path))
    assert outline.headings == ["What the data stages left out", "Data gates", "Artifacts"]
    assert "no trained model yet" in html
    assert "data/evalset" in html


def test_the_bulk_data_set_has_its_section(tmp_path: Path) -> None:
    distinct = distinct_table(occurrences(8))
    for name, table in (("dedup", distinct), ("label", label_table(distinct))):
        (tmp_path / "data" / name).mkdir(parents=True)
        pq.write_table(table, tmp_path / "data" / name / "0000.parquet")
        write_artifact(tmp_path / "data" / name, name, drops={"repeated": 7})
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    (tmp_path / "params").mkdir()
    (tmp_path / "params/rounds.yaml").write_text("rounds: {}\n")
    html, outline = page_of(tmp_path)
    assert outline.headings[:2] == ["What the data stages left out", "The bulk data set"]
    assert f"data/dedup: {len(distinct):,} rows" in html
    for title in ("phase", "material, side to move", "labels, source engine"):
        assert f"<h3>{title}</h3>" in html


def test_each_part_may_be_missing(project: Path) -> None:
    for name in (f"data/evaluate/{KEY}", f"data/filter/{KEY}", f"models/{KEY}", "data/evalset"):
        shutil.rmtree(project / name)
        page_of(project)
    shutil.rmtree(project / "data/consolidate")
    _, outline = page_of(project)
    assert "Explanations" not in outline.headings


def test_broken_artifacts_and_failed_gates_are_named(project: Path) -> None:
    (project / "data/positions" / ROWS).write_bytes(b"")
    tracker = Tracker(project, open_state(project).root)
    told = "GateError: gate 'seeds': 1 of 5 expectations failed: <b>row</b> 3"
    tracker.run("seeds").finish("failed", error=told)
    html, _ = page_of(project)
    assert "<b>data/positions</b> is not whole" in html
    assert "1 of 5 expectations failed: &lt;b&gt;row&lt;/b&gt; 3" in html
    assert '<span class="badge bad">failed</span>' in html


def test_what_comes_from_data_is_escaped(project: Path) -> None:
    artifact = open_artifact(project / f"data/filter/{KEY}")
    rewrite(artifact, drops={"<script>alert(1)</script>": 3})
    html, _ = page_of(project)
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(QueenError, match="there is nothing to report yet"):
        write_report(tmp_path, open_state(tmp_path), [], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_command_writes_the_page(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    done = CliRunner().invoke(app, ["report", "--out", "pages/r.html"])
    assert done.exit_code == 0, done.output
    assert (project / "pages/r.html").read_text().startswith("<!doctype html>")
    standings = CliRunner().invoke(app, ["rounds", "--json"])
    assert json.loads(standings.stdout)[-1]["champion"]


@given(st.floats(-1e4, 1e4), st.floats(1e-3, 1e4), st.integers(2, 8))
def test_ticks_cover_their_range(low: float, span: float, count: int) -> None:
    ticks = nice_ticks(low, low + span, count)
    slack = span * 1e-6
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + span - slack
    assert ticks == sorted(set(ticks))
    assert 2 <= len(ticks) <= count + 3


def numbers(html: str, pattern: str) -> list[float]:
    return [float(value) for value in re.findall(pattern, html)]


def test_higher_values_stand_higher_and_whiskers_hold_their_dot() -> None:
    points = [
        Point("a", 0.2, 0.1, 0.3),
        Point("b", 0.6, 0.5, 0.7, "better", "a", True),
        Point("c", 0.4, None, 0.5, "worse", "b"),
    ]
    html = interval_chart(points, [("chance", 0.3)], share=True, title="t")
    dots = numbers(html, r'<circle[^>]* cy="([\d.]+)"')
    assert dots[1] < dots[2] < dots[0]
    whiskers = re.findall(
        r'class="whisker \w*" x1="([\d.]+)" x2="\1" y1="([\d.]+)" y2="([\d.]+)"', html
    )
    for dot, (_, bottom, top) in zip(dots, whiskers, strict=True):
        assert float(top) <= dot <= float(bottom)
    assert html.count('class="edge"') == 2
    assert html.count('class="arrow worse"') == 1
    assert "b ★" in html
    assert "c: 40.0 % [open, 50.0 %]" in html
    assert dots[0] > numbers(html, r'<line class="reference"[^>]* y1="([\d.]+)"')[0] > dots[2]


def test_bars_are_as_long_as_their_values() -> None:
    html = bar_list(
        [Bar("x", 1.0, "2"), Bar("y", 0.5, "1", mark=0.25), Bar("z", 0.0, "0")], title="t"
    )
    full, half, none = numbers(html, r'<rect class="bar [^"]*"[^>]* width="([\d.]+)"')
    assert half == pytest.approx(full / 2)
    assert none == 1.0
    assert html.count('class="mark"') == 1


def test_series_leave_out_what_was_not_measured() -> None:
    html = series_chart(["a", "b"], {"x": [0.1, None], "y": [None, None]}, title="t")
    assert html.count("<polyline") == 1
    assert series_chart(["a"], {"y": [None]}, title="t") == ""


def test_every_gate_in_the_code_has_its_row() -> None:
    assert sorted(GATED.values()) == sorted(SUITES)
