"""Evaluation: what is compared is comparable, and what could not be written has its own reason."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from round_project import KEY, NODES, TeacherSpeaks, copy_of_round

from queen.commands.standing import standing
from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge
from queen.engines.match import read_record
from queen.engines.pool import Analyser
from queen.errors import QueenError
from queen.evaluation.truth import count_prose
from queen.generation.decode import Completion, Sampling
from queen.generation.speaker import Asked
from queen.language.ground import Ground
from queen.lineage.artifact import Artifact, open_artifact, read_json
from queen.lineage.state import open_state
from queen.lineage.verdicts import FILE
from stages import evaluate
from stages.answers import FREE, GUIDED
from stages.base import ROWS, EngineParams, Job, Machine, engine_settings
from stages.positions import position_of
from stages.preparing import prepare
from stages.registry import find_stage
from stages.report.page import write_report
from stages.runner import run_stage
from stages.shares import prose_count

EVALUATION: dict[str, Any] = {
    "games": 8,
    "opening_plies": [2, 2],
    "max_plies": 8,
    "adjudicate_nodes": 50,
    "judge": NODES,
    "bootstrap": 50,
    "opponents": {
        "random": {"kind": "random", "rating": 300},
        "material": {"kind": "material", "rating": 800},
        "one": {"kind": "engine", "nodes": 1, "rating": 1200, "options": {"Skill Level": 0}},
        "ten": {"kind": "engine", "nodes": 10, "rating": 1400},
        "absent": {"kind": "engine", "command": "no-such-engine", "rating": 1500},
    },
}


BOTH_WAYS = {**EVALUATION, "guided": True}


class Faltering(TeacherSpeaks):
    """The teacher, who cannot write about the first position he is asked about.

    And in some texts weighs a move that nobody can play.
    """

    def explain(
        self, asked: Sequence[Asked], sampling: Sampling, legal: str = "none"
    ) -> list[Completion]:
        said = super().explain(asked, sampling, legal)
        mad = "\ncandidate <P><a1><a8> 0.50\ncandidate"
        said[1::3] = [
            replace(one, text=one.text.replace("\ncandidate", mad, 1)) for one in said[1::3]
        ]
        return [Completion(said[0].id, "", error="the prompt is too long"), *said[1:]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A round whose models were evaluated by the stage itself, the teacher answering for them."""
    root = copy_of_round(tmp_path_factory.mktemp("evaluated"))
    (root / FILE).unlink()
    params = yaml.safe_load((root / "params.yaml").read_text())
    (root / "params.yaml").write_text(yaml.safe_dump({**params, "evaluation": BOTH_WAYS}))
    set_round(root, {**EVALUATION, "duel": {"games": 4}})
    settings = engine_settings(EngineParams(hash_mb=1), Machine(workers=1))
    with Analyser(settings) as analyser, pytest.MonkeyPatch.context() as patch:
        judge = MoveJudge(analyser, Limit(nodes=400), None, 0.1, 0.0)
        patch.setattr(evaluate, "load_speaker", lambda *_: Faltering(judge))
        patch.setattr(evaluate, "another_speaker", lambda *_: nullcontext(Faltering(judge)))
        for stage in ("judge@pawn", "judge@pawn1", f"evaluate@{KEY}"):
            run_stage(stage, root)
    return root


def set_round(root: Path, values: dict[str, Any]) -> None:
    path = root / "params" / "rounds.yaml"
    rounds = yaml.safe_load(path.read_text())
    rounds["rounds"][KEY]["evaluate"] = values
    path.write_text(yaml.safe_dump(rounds))


def job_of(root: Path) -> Job[evaluate.Params]:
    spec, key = find_stage(f"evaluate@{KEY}")
    return prepare(spec, key, root)


def test_like_evaluations_are_compared(project: Path) -> None:
    found = open_artifact(project / f"data/evaluate/{KEY}")
    assert (found.path / evaluate.VERDICT).is_file()
    assert found.record.counts["games"] == 8
    assert found.record.identities["speaker"] == Faltering.identity


def test_a_round_is_put_to_the_sequential_test_and_its_verdict_says_so(project: Path) -> None:
    found = open_artifact(project / f"data/evaluate/{KEY}")
    told = read_json(found.file(evaluate.SUMMARY))["duel"]
    games = read_record(found.file(evaluate.DUEL))
    assert found.record.counts["duel"] == told["games"] == len(games) == 4
    assert {(game.white, game.black) for game in games} == {
        ("model", "parent"),
        ("parent", "model"),
    }
    assert told["state"] == "undecided"
    reason = read_json(found.file(evaluate.VERDICT))["reason"]
    assert f"sequential test undecided (LLR {told['llr']:.2f})" in reason
    base = open_artifact(project / "data/evaluate/pawn1")
    assert not (base.path / evaluate.DUEL).exists()


def test_opponents_that_are_not_installed_are_counted(project: Path) -> None:
    counts = open_artifact(project / f"data/evaluate/{KEY}").record.counts
    assert (counts["opponents"], counts["opponents_missing"]) == (4, 1)


def test_what_could_not_be_written_is_an_error_and_not_unfinished(project: Path) -> None:
    found = open_artifact(project / f"data/evaluate/{KEY}")
    assert found.record.drops["unparsed.error"] == 1
    assert found.record.drops["unparsed.unfinished"] > 0


def rows_of(root: Path, key: str = "pawn1") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(root / f"data/evaluate/{key}" / ROWS).to_pylist()
    return rows


def test_prose_is_checked_against_its_own_position_and_against_anothers(project: Path) -> None:
    """The teacher says what is true, in texts that are cut off and in those that are whole."""
    figures = open_artifact(project / "data/evaluate/pawn1").record.figures
    assert figures["dev.truth"] == figures["dev.truth_high"] == 1.0
    assert figures["dev.truth_shuffled"] < 0.9
    assert figures["dev.truth_gain"] == pytest.approx(1 - figures["dev.truth_shuffled"], abs=1e-5)
    assert figures["dev.truth_gain_low"] <= figures["dev.truth_gain"]
    assert 0 < figures["dev.checkable"] < 1
    assert figures["dev.guided.truth"] == 1.0


def test_the_rows_are_enough_to_count_the_claims_again(project: Path) -> None:
    rows = rows_of(project)
    assert {row["elsewhere"] for row in rows} == {row["pid"] for row in rows}
    assert len({row["reason"] for row in rows if row["prose_claims"]}) > 1
    for row in rows:
        other = {one["pid"]: one for one in rows}[row["elsewhere"]]
        assert position_of(other).fen == row["elsewhere_fen"]
        grounds = Ground(position_of(row)), Ground(position_of(other))
        for way in (FREE, GUIDED):
            counted = count_prose(row[f"{way}text"], *grounds, finished=row[f"{way}finished"])
            assert prose_count(row, way) == counted


def test_both_ways_of_decoding_are_told_where_the_verdict_rests_on_one(project: Path) -> None:
    found = open_artifact(project / "data/evaluate/pawn1")
    figures = found.record.figures
    for name in ("fnmr", "fnmr_constrained", "fnmr_guided"):
        low, high = figures[f"dev.all.{name}_low"], figures[f"dev.all.{name}_high"]
        assert low <= figures[f"dev.all.{name}"] <= high
    assert {"dev.all.legal_guided", "dev.all.nmr3_guided"} <= figures.keys()
    assert "guided" not in (found.path / evaluate.VERDICT).read_text()
    free = open_artifact(project / f"data/evaluate/{KEY}").record.figures
    assert "dev.all.fnmr_guided" not in free
    assert all(row["guided_text"] is None for row in rows_of(project, KEY))
    assert evaluate.Params(0, (), 0, 0, {}, verdict_by="guided").guides


def test_the_page_shows_good_answers_beside_bad_ones_and_whether_their_claims_hold(
    project: Path,
) -> None:
    state = open_state(project)
    rows, _ = standing(project, state)
    write_report(project, state, rows, project / "report.html")
    html = (project / "report.html").read_text()
    shown = html.partition("What the champion says now (pawn1), good and bad")[2]
    badges = re.findall(r'class="badge (good|bad)">(?:first move|not read)', shown)
    assert badges[:4] == ["good", "bad", "good", "bad"]
    assert "Moves held to legal ones" in shown
    assert 'class="who holds"' in shown
    assert 'class="who false"' not in shown
    assert "The engine prefers" in shown
    figures = open_artifact(project / "data/evaluate/pawn1").record.figures
    assert "Is the prose about its position?" in html
    assert f"{100 * figures['dev.truth_shuffled']:.1f} [" in html
    low, high = (100 * figures[f"dev.all.fnmr_guided_{side}"] for side in ("low", "high"))
    assert f"[{low:.1f}, {high:.1f}]" in html


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"judge": {**NODES, "nodes": 500}}, r"differ in judge: .*'nodes': 400.*'nodes': 500"),
        (
            {"opponents": {**EVALUATION["opponents"], "absent": {"kind": "random", "rating": 9}}},
            "differ in opponents",
        ),
    ],
)
def test_other_budgets_and_opponents_are_not_compared(
    project: Path, changed: dict[str, Any], told: str
) -> None:
    set_round(project, {**EVALUATION, **changed})
    try:
        with pytest.raises(QueenError, match=told) as caught:
            evaluate.shards(job_of(project))
    finally:
        set_round(project, EVALUATION)
    assert caught.value.where == f"rounds.{KEY}.evaluate"
    assert "judge@pawn1" in caught.value.remedy


def test_another_evaluation_set_is_not_compared(project: Path) -> None:
    job = job_of(project)
    before = job.inputs["before"]
    inputs = tuple(
        replace(entry, content="0" * 64) if entry.role == "evalset" else entry
        for entry in before.record.inputs
    )
    other = Artifact(before.path, replace(before.record, inputs=inputs))
    with pytest.raises(QueenError, match=r"differ in the evaluation set: \['000000000000'\]"):
        evaluate.require_comparable(replace(job, inputs={**job.inputs, "before": other}))


def test_another_engine_is_not_compared(project: Path) -> None:
    job = replace(job_of(project), identities={"engine": {"name": "Another"}})
    with pytest.raises(QueenError, match=r"differ in the engine: .*Another"):
        evaluate.require_comparable(job)
