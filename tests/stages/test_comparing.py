"""`queen compare`: the stage's own figures, each part done once, every look at a split counted."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from round_project import KEY, TeacherSpeaks, copy_of_round, rewrite
from test_evaluate import EVALUATION
from typer.testing import CliRunner

from queen.cli import app
from queen.commands.compare import read_pairs
from queen.commands.standing import standing
from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge
from queen.engines.pool import Analyser
from queen.errors import QueenError
from queen.generation.requests import Completion, Sampling
from queen.generation.speaker import Asked
from queen.lineage.artifact import Artifact, open_artifact, read_json, read_record, write_json
from queen.lineage.state import open_state
from stages import evaluate
from stages.base import ROWS, EngineParams, Job, Machine, engine_settings
from stages.comparison.compare import asked_for, compare
from stages.comparison.result import FOLDER, bounded, comparisons, interval, rating
from stages.comparison.scoring import LOG
from stages.report.page import write_report
from stages.runner import run_stage
from stages.shown import share


class Silent(TeacherSpeaks):
    """A model that says nothing that can be read."""

    def explain(
        self, asked: Sequence[Asked], sampling: Sampling, legal: str = "none"
    ) -> list[Completion]:
        return [Completion(one.id, "none", finished=True) for one in asked]


class Crew:
    """Who answers for which model, and how often each was asked to load."""

    def __init__(self, judge: MoveJudge) -> None:
        self.loads: Counter[str] = Counter()
        self.judge, self.fails_at = judge, 0

    def __call__(self, job: Job[Any], model: Artifact, batch: int) -> TeacherSpeaks:
        self.loads[model.name] += 1
        if self.loads.total() == self.fails_at:
            raise KeyboardInterrupt
        return (Silent if model.name == "models/pawn" else TeacherSpeaks)(self.judge)


@pytest.fixture(scope="module")
def judge() -> Iterator[MoveJudge]:
    with Analyser(engine_settings(EngineParams(hash_mb=1), Machine(workers=1))) as analyser:
        yield MoveJudge(analyser, Limit(nodes=400), None, 0.1, 0.0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = copy_of_round(tmp_path)
    params = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump({**params, "evaluation": EVALUATION}))
    return root


@pytest.fixture
def crew(judge: MoveJudge, monkeypatch: pytest.MonkeyPatch) -> Crew:
    found = Crew(judge)
    monkeypatch.setattr(evaluate, "load_speaker", found)
    monkeypatch.setattr(evaluate, "POSITIONS_PER_SHARD", 5)
    return found


def compared(root: Path, models: Sequence[str], *pairs: str, games: int = 0) -> dict[str, Any]:
    return compare(root, open_state(root), asked_for(models, read_pairs(pairs), "dev", games))


def test_figures_and_differences_of_models(project: Path, crew: Crew) -> None:
    outputs = {path: path.stat().st_mtime_ns for path in project.glob("data/**/*")}
    found = compared(project, ["pawn", "pawn1"], "pawn1:r1")
    silent, teacher, last = found["models"]
    assert [silent["key"], teacher["key"], last["key"]] == ["pawn", "pawn1", KEY]
    assert silent["figures"]["dev.all.fnmr"] == 0.0
    assert "dev.truth" not in silent["figures"]
    assert teacher["figures"]["dev.truth"] == 1.0
    step, own = found["pairs"]
    assert (step["first"], step["second"], own["second"]) == ("pawn1", "pawn", KEY)
    assert step["free"]["value"] == teacher["figures"]["dev.all.fnmr"] > 0
    assert step["free"]["low"] <= step["free"]["value"] <= step["free"]["high"]
    assert own["free"]["value"] == own["guided"]["value"] == own["constrained"]["value"] == 0
    assert {path: path.stat().st_mtime_ns for path in project.glob("data/**/*")} == outputs


def test_baselines_are_those_of_the_evaluation_set(project: Path, crew: Crew) -> None:
    uniform, encoder = compared(project, ["pawn"])["baselines"]
    rows = pq.read_table(project / "data/evalset" / ROWS).to_pylist()
    dev = [row for row in rows if row["split"] == "dev"]
    for told, column in ((uniform, "uniform_ok"), (encoder, "encoder_ok")):
        assert told["all"]["value"] == pytest.approx(
            sum(row[column] for row in dev) / len(dev), abs=1e-6
        )
        assert told["all"]["low"] <= told["all"]["value"] <= told["all"]["high"]


def test_what_is_done_is_kept_and_each_look_is_counted(project: Path, crew: Crew) -> None:
    crew.fails_at = 2
    with pytest.raises(KeyboardInterrupt):
        compared(project, ["pawn1"])
    assert not (project / ".state" / FOLDER / LOG).exists()
    done = compared(project, ["pawn1"])
    parts = -(-done["positions"] // 5)
    assert crew.loads.total() == 1 + 1 + (parts - 1)
    again = compared(project, ["pawn1"])
    assert crew.loads.total() == 1 + parts
    assert again["models"] == done["models"]
    assert again["models"][0]["times_scored"] == 1
    shutil.rmtree(project / ".state" / FOLDER / "parts")
    with (project / ".state" / FOLDER / LOG).open("a") as log:
        log.write('{"half a line')
    assert compared(project, ["pawn1"])["models"][0]["times_scored"] == 2


def test_like_models_under_two_names_are_scored_once(project: Path, crew: Crew) -> None:
    shutil.copytree(project / "models/pawn1", project / "models/twin")
    found = compared(project, ["pawn1", "twin"])
    assert crew.loads["models/twin"] == 0
    assert [model["times_scored"] for model in found["models"]] == [1, 1]


def test_a_judged_models_own_answers_are_taken(project: Path, crew: Crew) -> None:
    for changed, source in (({}, "compare"), ({"guided": True}, "data/evaluate/pawn")):
        params = yaml.safe_load((project / "params.yaml").read_text())
        params["evaluation"] = {**EVALUATION, "games": 0, **changed}
        (project / "params.yaml").write_text(yaml.safe_dump(params))
        run_stage("judge@pawn", project)
        found = compared(project, ["pawn"])["models"][0]
        assert found["source"] == source
    held = open_artifact(project / "data/evaluate/pawn").record.figures
    assert {name: held[name] for name in found["figures"]} == found["figures"]


def test_games_give_a_rating_and_leave_the_answers_alone(project: Path, crew: Crew) -> None:
    compared(project, ["pawn1"])
    before = crew.loads.total()
    told = compared(project, ["pawn1"], games=8)["models"][0]
    assert crew.loads.total() == before + 1
    assert (told["games"], told["rating"]["games"]) == (8, 8)
    assert told["figures"]["elo"] == pytest.approx(told["rating"]["elo"], abs=0.05)
    assert told["times_scored"] == 1


def test_the_tables_are_kept_and_the_command_prints_them(
    project: Path, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setenv("COLUMNS", "120")
    done = CliRunner().invoke(app, ["compare", "pawn", "pawn1", "--pair", "pawn:pawn1"])
    assert done.exit_code == 0, done.output
    for part in ("pawn1 - pawn", "pawn - pawn1", "a uniform legal move", "pawn1, guided", "1x"):
        assert part in done.stdout
    told = json.loads(CliRunner().invoke(app, ["compare", "pawn1", "--json"]).stdout)
    kept = comparisons(project, open_state(project))
    assert [len(table["models"]) for table in kept] in ([1, 2], [2, 1])
    assert told in kept
    assert [table["project"] for table in kept] == [str(project)] * 2


def test_tables_of_checkouts_that_share_the_state_come_after_ones_own(
    project: Path, crew: Crew
) -> None:
    compared(project, ["pawn1"])
    state = open_state(project)
    folder = state.root / "compare/tables"
    table = read_json(next(folder.glob("*.json")))
    other = {**table, "project": "/elsewhere/blind", "written": "2999-01-01", "evalset": "another"}
    write_json(folder / "dev-other.json", other)
    assert [t["project"] for t in comparisons(project, state)] == [str(project), "/elsewhere/blind"]
    rows, _ = standing(project, state)
    write_report(project, state, rows, project / "report.html")
    html = (project / "report.html").read_text()
    assert "In blind: pawn1" in html
    assert html.count("on other positions than") == 1


def test_the_page_shows_the_comparisons(project: Path, crew: Crew) -> None:
    compared(project, ["pawn", "pawn1"])
    state = open_state(project)
    rows, _ = standing(project, state)
    write_report(project, state, rows, project / "report.html")
    html = (project / "report.html").read_text()
    for part in ("pawn1 – pawn", "a uniform legal move", "scored on this split: pawn 1×, pawn1 1×"):
        assert part in html
    assert "is another model now" not in html
    rewrite(open_artifact(project / "models/pawn"), counts={"steps": 41})
    (project / "models/pawn1/training.json").write_text("{}\n")
    rewrite(open_artifact_again(project / "models/pawn1"))
    write_report(project, state, rows, project / "report.html")
    html = (project / "report.html").read_text()
    assert "pawn1 is another model now" in html
    assert "pawn is another model now" not in html


def open_artifact_again(folder: Path) -> Artifact:
    """An artifact whose files are no longer what its record says."""
    return Artifact(folder, read_record(folder))


def test_what_cannot_be_compared_is_named_before_any_work(project: Path, crew: Crew) -> None:
    with pytest.raises(QueenError, match=r"no model 'r9'(.|\n)*pawn, pawn1, r1"):
        compared(project, ["pawn", "r9"])
    for pair in ("r1", "r1:", "r1:r1", "a:b:c"):
        with pytest.raises(QueenError, match="is no pair"):
            read_pairs([pair])
    with pytest.raises(QueenError, match="with itself"):
        asked_for(["r1"], [("r1", "r1")], "dev", 0)
    assert not crew.loads


def test_figures_are_told_with_their_bounds_and_dashes_where_there_are_none() -> None:
    figures = {"a": 0.4961, "a_low": 0.47, "a_high": 0.521, "b": -0.02}
    assert interval(figures, "a") == "49.6 [47.0, 52.1]"
    assert interval(figures, "b", sign="+") == "-2.0"
    assert bounded({"value": 0.05, "low": 0.01, "high": 0.09}, "+") == "+5.0 [+1.0, +9.0]"
    assert rating({"elo": 1203.4, "low": None, "high": 1300.0}) == "1203 (-inf .. 1300)"
    assert {share(None), interval(figures, "c"), bounded(None), rating(None)} == {"–"}
