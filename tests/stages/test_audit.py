"""A round that holds, and one for each thing that can be wrong with it."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chess
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from rich.console import Console
from round_project import KEY, copy_of_data, copy_of_round, rewrite
from typer.testing import CliRunner

from queen.cli import app
from queen.errors import QueenError
from queen.language.ground import Ground
from queen.language.vocabulary import Claim
from queen.language.voice import Voice
from queen.lineage.artifact import Artifact, open_artifact, read_record
from queen.lineage.params import ParamsError
from queen.lineage.state import open_state
from queen.lineage.store import ShardStore
from stages.audit.show import show_audit, show_trail
from stages.audit.tracing import trace
from stages.audit.trail import Branch, Trail, game_board
from stages.audit.whole import Audit, audit_round
from stages.base import ROWS, write_rows


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_of_round(tmp_path)


def audit(project: Path) -> Audit:
    return audit_round(project, open_state(project), KEY)


def rows_of(project: Path, name: str) -> list[dict[str, Any]]:
    return pq.read_table(project / name / ROWS).to_pylist()


def change_rows(project: Path, name: str, change: Callable[[dict[str, Any]], bool]) -> None:
    """Change the first row that `change` accepts, and the record with it: hashes hold."""
    artifact = open_artifact(project / name)
    table = pq.read_table(artifact.file(ROWS))
    rows = table.to_pylist()
    assert any(change(row) for row in rows)
    write_rows(artifact.path / ROWS, pa.Table.from_pylist(rows, schema=table.schema))
    rewrite(artifact)


def test_a_grown_round_holds_and_every_explanation_is_proved(project: Path) -> None:
    found = audit(project)
    assert found.problems == []
    folded = rows_of(project, f"data/consolidate/{KEY}")
    assert found.checked["explanations proved"] == len(folded) > 5
    assert found.checked["sentences led back"] == sum(row["sentences"] for row in folded)
    assert found.checked["of them written by the model"] > 0
    names = [name for name, _ in found.artifacts]
    assert names.index("data/games") < names.index("data/positions") < names.index("models/r1")
    assert {"data/evalset", "models/pawn", "data/evaluate/pawn1"} <= set(names)


def test_a_base_model_is_audited_too(project: Path) -> None:
    assert audit_round(project, open_state(project), "pawn1").problems == []


def flip_a_byte(project: Path) -> None:
    path = project / f"data/filter/{KEY}" / ROWS
    blob = bytearray(path.read_bytes())
    blob[len(blob) // 2] ^= 1
    path.write_bytes(blob)


def stray_file(project: Path) -> None:
    (project / f"data/sample/{KEY}/notes.txt").write_text("x")


def wrong_count(project: Path) -> None:
    artifact = open_artifact(project / f"data/filter/{KEY}")
    counts = {**artifact.record.counts, "kept": artifact.record.counts["kept"] + 1}
    rewrite(artifact, counts=counts)


def wrong_drops(project: Path) -> None:
    rewrite(open_artifact(project / "data/positions"), drops={"duplicate": 1})


def edited_params(project: Path) -> None:
    path = project / f"data/filter/{KEY}/record.json"
    record = json.loads(path.read_text())
    record["params"]["max_loss"] = 0.5
    path.write_text(json.dumps(record))


def other_input(project: Path) -> None:
    change_rows(project, "data/evalset", lambda row: row.update(best=0.123) is None)


def lost_input(project: Path) -> None:
    shutil.rmtree(project / "data/games")


def unsourced_sentence(project: Path) -> None:
    """In place of a child's sentence one that is true, and that no child said."""

    def change(row: dict[str, Any]) -> bool:
        raw = orjson.loads(row["consolidated"])
        prose = raw["explanation"]["prose"]
        spoken = [n for n, source in enumerate(raw["sentences"]) if source[0] == "child"]
        if not spoken:
            return False
        board = chess.Board(row["fen"])
        king = chess.square_name(board.king(chess.WHITE) or 0)
        said = Voice(1, 1).say(Claim("piece", (), (f"K{king}",)), Ground(board))
        row["text"] = row["text"].replace(prose[spoken[0]]["text"], said.text)
        claims = [claim.to_json() for claim in said.claims]
        prose[spoken[0]] = {"text": said.text, "claims": claims}
        row["consolidated"] = orjson.dumps(raw).decode()
        return True

    change_rows(project, f"data/consolidate/{KEY}", change)


def other_text(project: Path) -> None:
    def change(row: dict[str, Any]) -> bool:
        lines = row["text"].split("\n")
        row["text"] = "\n".join(lines[:-1])
        return len(lines) > 5

    change_rows(project, f"data/consolidate/{KEY}", change)


def other_child(project: Path) -> None:
    def change(row: dict[str, Any]) -> bool:
        if not row["explanation"] or not row["path"]:
            return False
        row["text"] = row["text"].rsplit("\n", 1)[0]
        return True

    change_rows(project, f"data/recurse/{KEY}", change)


def other_value(project: Path) -> None:
    def change(row: dict[str, Any]) -> bool:
        if not row["weighed"]:
            return False
        weighed = orjson.loads(row["weighed"])
        move = weighed["moves"][0]
        weighed["verdict"]["values"][move] += 0.25
        row["weighed"] = orjson.dumps(weighed).decode()
        return True

    change_rows(project, f"data/recurse/{KEY}", change)


def other_verdict(project: Path) -> None:
    path = project / "verdicts.json"
    raw = json.loads(path.read_text())
    raw["models"][KEY]["verdict"] = "worse"
    path.write_text(json.dumps(raw))


def other_difference(project: Path) -> None:
    for path in (project / f"data/evaluate/{KEY}/verdict.json", project / "verdicts.json"):
        raw = json.loads(path.read_text())
        (raw["models"][KEY] if "models" in raw else raw)["difference"] = 0.9
        path.write_text(json.dumps(raw))
    folder = project / f"data/evaluate/{KEY}"
    rewrite(Artifact(folder, read_record(folder)))


def judged_and_gone(project: Path) -> None:
    shutil.rmtree(project / f"models/{KEY}")


def barred_example(project: Path) -> None:
    kept = next(r for r in rows_of(project, f"data/filter/{KEY}") if not r["dropped"])
    change_rows(project, "data/evalset", lambda row: row.update(pid=kept["pid"]) is None)


def other_parent(project: Path) -> None:
    path = project / "params/rounds.yaml"
    raw = yaml.safe_load(path.read_text())
    raw["rounds"]["r0"] = {"parent": "pawn1"}
    raw["rounds"][KEY]["parent"] = "r0"
    path.write_text(yaml.safe_dump(raw))


def changed_shard(project: Path) -> None:
    store = ShardStore(open_state(project).shards)
    key = open_artifact(project / f"data/filter/{KEY}").record.shards[0]
    (store.path("filter", key) / ROWS).write_bytes(b"rubbish")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (flip_a_byte, f"data/filter/{KEY}: file rows.parquet has another hash"),
        (stray_file, f"data/sample/{KEY}: file notes.txt is not in the record"),
        (wrong_count, f"data/filter/{KEY}: examples kept"),
        (wrong_drops, "data/positions: positions seen"),
        (edited_params, f"data/filter/{KEY}: the recipe in its record"),
        (other_input, f"data/sample/{KEY}: was made from data/evalset"),
        (lost_input, "data/games: no complete artifact here"),
        (unsourced_sentence, "is traceable to nothing (not_said_by_child)"),
        (other_text, "its text is not the one whose provenance is recorded"),
        (other_child, "does not read as the tree says"),
        (other_value, "are not the tree's verdict"),
        (other_verdict, f"data/evaluate/{KEY}: verdicts.json says worse"),
        (other_difference, "difference in FNMR: 0.9 in its verdict"),
        (judged_and_gone, f"models/{KEY}"),
        (barred_example, "is kept, though barred: evaluation_position"),
        (other_parent, "its parent is models/pawn1, but the parent of r1 is models/r0"),
        (changed_shard, f"data/filter/{KEY}: shard filter/"),
    ],
)
def test_what_does_not_hold_is_named(
    project: Path, harm: Callable[[Path], None], told: str
) -> None:
    harm(project)
    problems = audit(project).problems
    assert any(told in problem for problem in problems), problems


def test_shards_that_are_gone_are_a_note(project: Path) -> None:
    shutil.rmtree(open_state(project).shards)
    found = audit(project)
    assert found.holds
    assert any("shards are not in this state folder" in note for note in found.notes)


def test_a_round_that_is_not_finished_may_still_hold(project: Path) -> None:
    shutil.rmtree(project / f"data/evaluate/{KEY}")
    shutil.rmtree(project / f"models/{KEY}")
    (project / "verdicts.json").unlink()
    found = audit(project)
    assert found.holds
    assert f"not made yet: models/{KEY}, data/evaluate/{KEY}" in found.notes


def test_rounds_that_are_not_there(tmp_path: Path) -> None:
    root = copy_of_data(tmp_path)
    with pytest.raises(QueenError, match="nothing of 'r1' has been made yet"):
        audit_round(root, open_state(root), KEY)
    with pytest.raises(ParamsError, match="unknown round or model 'r2'"):
        audit_round(root, open_state(root), "r2")


def test_the_command_says_by_its_status_whether_all_holds(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    good = CliRunner().invoke(app, ["audit", KEY])
    assert good.exit_code == 0
    assert "everything holds" in good.stdout
    wrong_count(project)
    bad = CliRunner().invoke(app, ["audit", KEY, "--json"])
    assert bad.exit_code == 1
    told = json.loads(bad.stdout)
    assert not told["holds"]
    assert any("examples kept" in problem for problem in told["problems"])


def every_branch(branch: Branch) -> list[Branch]:
    return [branch, *(b for child in branch.children for b in every_branch(child))]


def check_trail(project: Path, row: dict[str, Any], trail: Trail) -> None:
    board, _, _ = game_board(trail.game)
    for move in trail.path:
        board.push_uci(move)
    assert board.fen(en_passant="legal") == row["fen"] == trail.fen
    assert len(trail.statements) == row["sentences"]
    assert sum(statement.model for statement in trail.statements) == row["model_sentences"]
    told = {branch.after: branch for branch in every_branch(trail.tree)}
    for statement in trail.statements:
        if statement.model:
            last = statement.hops[-1]
            assert last.origin == "child"
            assert told[last.after].text
            assert not told[last.after].reason
        elif statement.origin in ("engine", "rules"):
            assert not statement.hops
    assert json.loads(json.dumps(trail.as_dict()))["pid"] == row["pid"]


def test_every_example_leads_back_to_its_game(project: Path) -> None:
    rows = rows_of(project, f"data/filter/{KEY}")
    assert {bool(row["path"]) for row in rows} == {True, False}
    for row in rows:
        trail = trace(project, KEY, row["pid"])
        check_trail(project, row, trail)
        assert trail.kept == (row["dropped"] == "")
        assert trail.thresholds["filter"]["max_loss"] == 0.0


def test_an_example_is_found_by_how_its_id_begins(project: Path) -> None:
    rows = rows_of(project, f"data/filter/{KEY}")
    pid = rows[0]["pid"]
    assert trace(project, KEY, pid[:10]).pid == pid
    with pytest.raises(QueenError, match="examples begin with ''"):
        trace(project, KEY, "")
    with pytest.raises(QueenError, match="no example 'zz'"):
        trace(project, KEY, "zz")
    with pytest.raises(QueenError, match="pawn1 learnt from no round"):
        trace(project, "pawn1", pid)


def test_a_trail_is_shown_from_text_to_game(project: Path) -> None:
    row = next(r for r in rows_of(project, f"data/filter/{KEY}") if not r["path"])
    console = Console(width=200, record=True, file=io.StringIO())
    show_trail(trace(project, KEY, row["pid"]), console)
    shown = console.export_text()
    for part in (row["pid"], row["game_id"], "written by the model", "max_loss 0.0", "candidate"):
        assert part in shown
    places = [shown.index(part) for part in ("text", "filter", "statements", "tree:", "root ")]
    assert places == sorted(places)


def test_an_audit_is_shown_with_what_fails(project: Path) -> None:
    wrong_count(project)
    console = Console(width=200, record=True, file=io.StringIO())
    show_audit(audit(project), console)
    shown = console.export_text()
    assert "does not hold: data/filter/r1: examples kept" in shown
    assert "do not hold" in shown
