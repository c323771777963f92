"""The curriculum's questions: none about an evaluation position, everything left out counted."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from round_project import copy_of_data, rewrite

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.lineage.artifact import Artifact, open_artifact
from queen.networks.expert import Expert
from queen.networks.lc0.load import load_encoder
from stages.base import ROWS
from stages.decontaminate import Guard
from stages.positions import pid_of, position_of
from stages.questions import Params, _wanted
from stages.runner import run_stage

POSITIONS = {
    "static-current": 40,
    "dynamic-current": 40,
    "static-future": 40,
    "dynamic-future": 1000,
}


def rows_of(artifact: Artifact) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(artifact.file(ROWS)).to_pylist()
    return rows


def after(row: dict[str, Any], line: str) -> list[str]:
    """The positions along a line, by their short names."""
    return along(position_of(row), line.split())


def along(start: Position, line: Iterable[str]) -> list[str]:
    """The short names of the positions after each move of a line."""
    return [pid_of(p.key) for p in accumulate(line, Position.child, initial=start)][1:]


def bar(project: Path) -> Artifact:
    """Put positions that training games pass through into the evaluation set."""
    train = [r for r in rows_of(open_artifact(project / "data/positions")) if r["split"] == "train"]
    met = [pid for row in train[::5] for pid in after(row, row["ahead"])[2:3]]
    evalset = open_artifact(project / "data/evalset")
    rows = rows_of(evalset)
    rows += [{**rows[0], "pid": pid, "game_id": "of no game"} for pid in sorted(set(met))]
    rows.append({**rows[0], "pid": train[0]["pid"], "game_id": train[1]["game_id"]})
    pq.write_table(pa.Table.from_pylist(rows), evalset.file(ROWS))
    rewrite(evalset)
    return evalset


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_of_data(tmp_path_factory.mktemp("questions"))
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["questions"] = {"positions": POSITIONS, "heldout": 20}
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    bar(root)
    run_stage("questions", root)
    return root


@pytest.fixture(scope="module")
def with_expert(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same project asked for the expert's move as well."""
    root = Path(shutil.copytree(project, tmp_path_factory.mktemp("expert") / "project"))
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["questions"]["expert_move"] = 9.0
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    rewrite(open_artifact(root / "models/encoder"), licences={"encoder": "GPL-3.0 (somebody)"})
    run_stage("questions", root)
    return root


def test_no_training_question_is_about_an_evaluation_position(project: Path) -> None:
    guard = Guard.of(open_artifact(project / "data/evalset"))
    rows = rows_of(open_artifact(project / "data/questions"))
    train = [row for row in rows if row["split"] == "train"]
    assert sum(bool(row["line"]) for row in train) > 20
    for row in train:
        assert not {row["pid"], *after(row, row["line"])} & guard.pids
        assert row["game_id"] not in guard.games


def test_no_question_is_asked_twice_about_a_position_and_others_take_its_place(
    project: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(project, tmp_path / "project"))
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["questions"] |= {"per_position": 5, "weights": {"material": 6.0, "side_to_move": 6.0}}
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    questions = run_stage("questions", root)
    rows = [r for r in rows_of(questions) if r["split"] == "train"]
    assert max(Counter((r["stage"], r["pid"], r["prompt"]) for r in rows).values()) == 1
    assert questions.record.drops["asked_already"] > POSITIONS["static-current"]
    met = Counter(r["pid"] for r in rows if r["stage"] == "static-current")
    assert sum(n == 5 for n in met.values()) > 0.9 * POSITIONS["static-current"]
    assert sum(r["type"] == "material" for r in rows) > 0.75 * POSITIONS["static-current"]


def test_what_is_left_out_is_counted(project: Path) -> None:
    record = open_artifact(project / "data/questions").record
    guard = Guard.of(open_artifact(project / "data/evalset"))
    positions = rows_of(open_artifact(project / "data/positions"))
    reasons = Counter(guard.reason(row) for row in positions if row["split"] == "train")
    assert record.drops["evaluation_position"] == reasons["evaluation_position"] > 0
    assert record.drops["evaluation_game"] == reasons["evaluation_game"] > 0
    assert record.drops["fewer_than_wanted.train.dynamic-future"] == 1000 - reasons[None]
    assert "fewer_than_wanted.heldout.dynamic-future" not in record.drops
    assert record.drops["line_cut"] > 0
    asked = sum(min(n, reasons[None]) for n in POSITIONS.values()) * 3
    train = sum(n for name, n in record.counts.items() if name.startswith("train."))
    assert asked - record.drops["no_answer"] <= train <= asked


def test_a_line_is_clear_up_to_before_the_first_barred_position() -> None:
    start = Position("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", ("e2e4",))
    line = ("e7e5", "g1f3", "b8c6", "f3g1", "c6b8", "g1f3")
    pids = along(start, line)
    assert pids[1] == pids[5]
    for barred, clear in [(pids[0], 0), (pids[1], 1), (pids[3], 3), ("none", 6)]:
        assert Guard(frozenset({barred}), frozenset()).clear_part(start, line) == line[:clear]


def test_curriculum_stages_that_are_mistyped_or_missing_are_named() -> None:
    with pytest.raises(QueenError, match="'static-futur'") as caught:
        _wanted(Params({**POSITIONS, "static-futur": 3}))
    assert "did you mean 'static-future'" in caught.value.remedy
    few = {name: n for name, n in POSITIONS.items() if name != "static-future"}
    with pytest.raises(QueenError, match="for static-future"):
        _wanted(Params(few))


def test_the_experts_move_is_asked_once_a_position_beside_what_was_asked_before(
    project: Path, with_expert: Path
) -> None:
    before = rows_of(open_artifact(project / "data/questions"))
    rows = rows_of(open_artifact(with_expert / "data/questions"))
    assert all(row["type"] != "expert_move" for row in before)
    others = [row for row in rows if row["type"] != "expert_move"]

    def kept(row: dict[str, Any]) -> bool:
        return row["split"] == "heldout" or row["stage"] != "dynamic-current"

    assert list(filter(kept, others)) == list(filter(kept, before))
    asked = [row for row in rows if row["type"] == "expert_move"]
    assert {row["stage"] for row in asked} == {"dynamic-current"}
    met = Counter((row["split"], row["pid"]) for row in asked)
    assert set(met.values()) == {1}
    splits = Counter(split for split, _ in met)
    assert splits["heldout"] == 20
    assert splits["train"] > 20


def test_its_answer_is_the_move_of_which_the_encoder_is_surest(with_expert: Path) -> None:
    rows = rows_of(open_artifact(with_expert / "data/questions"))
    asked = [row for row in rows if row["type"] == "expert_move"]
    encoder = load_encoder(open_artifact(with_expert / "models/encoder").path / "expert")
    alone = Expert(encoder, (0,), memory_mb=0, batch_size=1)
    for row, policy in zip(asked, alone.policy([position_of(row) for row in asked]), strict=True):
        move = max(sorted(policy), key=policy.__getitem__)
        said = row["answer"].replace("<", "").replace(">", "")[1:].lower()
        assert said == move, row


def test_that_the_expert_is_asked_is_declared(project: Path, with_expert: Path) -> None:
    assert open_artifact(project / "data/questions").record.figures == {}
    record = open_artifact(with_expert / "data/questions").record
    expert = open_artifact(with_expert / "models/encoder").record
    train = sum(
        row["split"] == "train" and row["type"] == "expert_move"
        for row in rows_of(open_artifact(with_expert / "data/questions"))
    )
    assert record.figures == {
        "declared.expert_move": 9.0,
        "asked.expert_move.train": train,
        "asked.expert_move.heldout": 20.0,
    }
    assert record.identities["expert"] == expert.identities["expert"]
    assert record.licences["encoder"] == "GPL-3.0 (somebody)"
    assert record.drops["asked_already"] > 0


def test_a_weight_where_it_does_not_belong_is_named() -> None:
    with pytest.raises(QueenError, match="a param of its own") as caught:
        _wanted(Params(POSITIONS, weights={"expert_move": 2.0}))
    assert "questions.expert_move=2.0" in caught.value.remedy
    with pytest.raises(QueenError, match=r"-1\.0 times"):
        _wanted(Params(POSITIONS, expert_move=-1.0))
