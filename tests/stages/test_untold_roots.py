"""A round in which only some roots are put in words: the others give moves, values and lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from round_project import KEY, TeacherSpeaks, copy_of_round

from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge
from queen.engines.pool import Analyser
from queen.language.explanation import parse, parse_best
from queen.lineage.artifact import Artifact, open_artifact
from queen.lineage.verdicts import FILE
from stages import explain, recurse
from stages.audit.books import BOOKS
from stages.audit.opened import open_round
from stages.audit.proofs import prove
from stages.base import ROWS, EngineParams, Machine, engine_settings
from stages.positions import position_of
from stages.runner import run_stage
from stages.training import explanation_examples, kept_rows

STEPS = ("explain", "recurse", "consolidate", "filter")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The round with a part of its roots in words, run from `explain` to `filter`."""
    root = copy_of_round(tmp_path_factory.mktemp("untold"))
    (root / FILE).unlink()
    rounds = yaml.safe_load((root / "params/rounds.yaml").read_text())
    rounds["rounds"][KEY]["explain"] |= {"in_words": 0.3}
    (root / "params/rounds.yaml").write_text(yaml.safe_dump(rounds))
    with (
        Analyser(engine_settings(EngineParams(hash_mb=1), Machine(workers=1))) as analyser,
        pytest.MonkeyPatch.context() as patch,
    ):
        teacher = TeacherSpeaks(MoveJudge(analyser, Limit(nodes=400), None, 0.1, 0.0))
        patch.setattr(explain, "load_speaker", lambda *_: teacher)
        patch.setattr(recurse, "load_speaker", lambda *_: teacher)
        for step in STEPS:
            run_stage(f"{step}@{KEY}", root)
    return root


def table(project: Path, step: str) -> tuple[Artifact, list[dict[str, Any]]]:
    artifact = open_artifact(project / f"data/{step}/{KEY}")
    return artifact, pq.read_table(artifact.file(ROWS)).to_pylist()


def test_untold_roots_are_weighed_and_not_explained(project: Path) -> None:
    artifact, rows = table(project, "explain")
    told = {row["pid"]: row["told"] for row in rows}
    assert set(told.values()) == {True, False}
    assert artifact.record.counts["in_words"] == sum(told.values())
    assert all(row["weighed"] and (orjson.loads(row["texts"]) != {}) == row["told"] for row in rows)
    _, nodes = table(project, "recurse")
    silent = [node for node in nodes if not told[node["root"]] and node["path"]]
    assert silent
    assert all(node["text"] is None and " " not in node["path"] for node in silent)
    assert any(node["verdict"] for node in silent)
    assert any(node["text"] for node in nodes if told[node["root"]])


def test_an_untold_root_gives_the_engine_s_lines_and_no_prose(project: Path) -> None:
    _, rows = table(project, "consolidate")
    silent = [row for row in rows if not row["told"]]
    assert silent
    assert all(row["path"] == "" and row["sentences"] == 0 for row in silent)
    for row in silent:
        told = parse(row["text"], position_of(row))
        facts = orjson.loads(row["facts"])["nodes"]
        assert told.prose == ()
        values = facts[""]["values"]
        assert values[told.best] == max(values[c.move] for c in told.candidates)
        for candidate in told.candidates:
            expected = facts.get(candidate.move, {"line": []})["line"]
            assert list(candidate.line) == expected[: len(candidate.line)]
    assert any(row["sentences"] for row in rows if row["told"])


def test_the_books_and_the_proof_hold(project: Path) -> None:
    opened = open_round(project, KEY)
    for step in STEPS:
        assert list(BOOKS[step](opened, table(project, step)[0])) == []
    found = prove(opened, table(project, "consolidate")[0], table(project, "recurse")[0])
    assert found.faults == []


def test_what_is_learnt_of_it_is_the_beginning_of_an_explanation(project: Path) -> None:
    artifact, _ = table(project, "filter")
    rows = kept_rows(artifact)
    examples = explanation_examples(rows)
    assert {row["told"] for row in rows} == {True, False}
    for row, example in zip(rows, examples, strict=True):
        (turn,) = example.turns
        assert turn.open == (not row["told"])
        assert turn.answer.removesuffix("<end>") == row["text"]
        assert turn.answer.endswith("<end>") == row["told"]
    assert len({example.turns[0].prompt for example in examples}) <= 2  # one for each side


def test_of_it_the_best_move_alone_may_be_learnt(project: Path) -> None:
    artifact, _ = table(project, "filter")
    rows = kept_rows(artifact)
    whole = explanation_examples(rows)
    short = explanation_examples(rows, untold="move", untold_weight=3.0)
    for row, long, cut in zip(rows, whole, short, strict=True):
        assert cut.weight == (1.0 if row["told"] else 3.0)
        if row["told"]:
            assert cut == long
            continue
        (turn,) = cut.turns
        assert turn.open
        assert turn.answer.count("\n") == 1
        assert row["text"].startswith(turn.answer)
        assert parse_best(turn.answer, position_of(row)) == row["line"].split()[0]
