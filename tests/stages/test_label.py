"""Labels: the engine's as asked one by one, the rules' where a game is over, the dump's marked."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from label_project import (
    CHESS960,
    OVER,
    change,
    distinct_rows,
    files_of,
    hanging_engine,
    make_project,
)

from queen.engines.answers import AnswerLog
from queen.engines.locate import find_engine
from queen.engines.pool import Analyser, Analysis, EngineSettings, Limit
from queen.engines.uci import EngineStartError
from queen.errors import QueenError
from queen.lineage.artifact import Artifact, open_artifact
from queen.positions.packed import pack, unpack
from queen.positions.schema import LABELS, move_of
from stages import label
from stages.preparing import make_plan, prepare
from stages.runner import run_stage

LIMIT = Limit(nodes=60)


@pytest.fixture(scope="module")
def engine() -> str:
    try:
        return find_engine("stockfish")
    except EngineStartError as error:
        pytest.skip(error.what)


@pytest.fixture(scope="module")
def plain(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose labels were made by one process with one engine."""
    project = make_project(tmp_path_factory.mktemp("label") / "project")
    run_stage("label", project)
    return project


def labels_of(artifact: Artifact) -> list[dict[str, Any]]:
    names = ["0000.parquet", "0001.parquet"]
    tables = [pq.read_table(artifact.file(name)) for name in names]
    assert all(table.schema.equals(LABELS) for table in tables)
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return rows


def done(project: Path) -> Artifact:
    return open_artifact(project / "data" / "label")


def test_engine_labels_are_those_of_single_searches(plain: Path, engine: str) -> None:
    rows = [row for row in labels_of(done(plain)) if row["source"] == "engine"]
    standard = [row for row in rows if not unpack(row["position"]).chess960]
    assert len(standard) == len(rows) - 1
    clocks = {row["position"]: (row["halfmove"], row["ply"]) for row in distinct_rows(2)}
    fens = []
    for row in standard:
        halfmove, ply = clocks[row["position"]]
        fens.append(unpack(row["position"], halfmove, ply // 2 + 1).fen())
    with Analyser(EngineSettings(engine, workers=1)) as analyser:
        answers = analyser.analyse(fens, LIMIT)
    for row, answer in zip(standard, answers, strict=True):
        assert isinstance(answer, Analysis)
        move = move_of(row["best"])
        assert move is not None
        assert (row["cp"], row["mate"]) == (answer.best.score.cp, answer.best.score.mate)
        assert (move.uci(), row["depth"]) == (answer.best.moves[0], answer.depth)


def test_games_that_are_over_are_answered_by_the_rules(plain: Path) -> None:
    found = {r["position"]: r for r in labels_of(done(plain)) if r["source"] == "rules"}
    assert {pack(chess.Board(fen)): s for fen, s in OVER.items()} == {
        position: (row["cp"], row["mate"]) for position, row in found.items()
    }
    assert {(row["best"], row["nodes"]) for row in found.values()} == {(0, 0)}


def test_a_chess960_position_is_answered_in_its_own_rules(plain: Path) -> None:
    position = pack(chess.Board(CHESS960, chess960=True))
    (row,) = [r for r in labels_of(done(plain)) if r["position"] == position][:1]
    assert row["source"] == "engine"
    assert unpack(position).is_legal(move_of(row["best"]) or chess.Move.null())


def test_rows_keep_the_order_of_positions_and_the_dumps_are_marked(plain: Path) -> None:
    rows, expected = labels_of(done(plain)), []
    over = {pack(chess.Board(fen)) for fen in OVER}
    told = [row for row in distinct_rows(2) if (row["eval_cp"], row["eval_mate"]) != (None, None)]
    assert any(row["position"] in over for row in told)
    for row in distinct_rows(2):
        expected.append((row["position"], "rules" if row["position"] in over else "engine"))
        if row in told and row["position"] not in over:
            expected.append((row["position"], "dump"))
    assert [(row["position"], row["source"]) for row in rows] == expected
    evals = {r["position"]: (r["eval_cp"], r["eval_mate"]) for r in distinct_rows(2)}
    for row in rows:
        if row["source"] == "dump":
            assert (row["cp"], row["mate"]) == evals[row["position"]]
            assert (row["best"], row["depth"], row["nodes"]) == (0, None, None)


def test_the_record_says_who_searched_and_how_much(plain: Path) -> None:
    record = done(plain).record
    counted = Counter(row["source"] for row in labels_of(done(plain)))
    assert record.counts == dict(counted)
    assert record.drops == {}
    assert record.params["limit"] == {"depth": 0, "nodes": 60}
    assert record.identities["engine"]["name"] == "Stockfish"
    assert len(record.identities["engine"]["network_digest"]) == 12
    assert record.licences == {"games": "CC0"}


def test_workers_and_an_interrupted_run_leave_the_same_bytes(plain: Path, tmp_path: Path) -> None:
    """A run that ended within its second shard: its answers are there, and are not asked anew."""
    project = make_project(tmp_path / "project")
    change(project, "machine", workers=2)
    job = prepare(label.SPEC, None, project)
    plan = make_plan(label.SPEC, job)
    job.shard_key = plan.keys[1]
    kept = job.scratch() / "answers.log"
    whole = tmp_path / "whole"
    whole.mkdir()
    label.work(job, plan.shards[1], whole)
    data = kept.read_bytes()
    kept.write_bytes(data[: len(data) // 2 + 3])
    with AnswerLog(kept) as log:
        assert 0 < len(log.answers) < 10
    assert files_of(run_stage("label", project)) == files_of(done(plain))


def test_a_position_on_which_the_engine_hangs_is_quarantined(
    plain: Path, tmp_path: Path, engine: str
) -> None:
    rows = distinct_rows(2)
    bad = unpack(rows[4]["position"], rows[4]["halfmove"], rows[4]["ply"] // 2 + 1).fen()
    project = make_project(tmp_path / "project")
    command = hanging_engine(tmp_path / "bin" / "stockfish", engine, bad)
    change(project, "engine", command=str(command), timeout_s=1.5)
    found = run_stage("label", project)
    assert found.record.drops == {"hung": 1}
    rejects = pq.read_table(found.file("rejects.parquet")).to_pylist()
    assert rejects == [{"position": rows[4]["position"], "fen": bad, "reason": "hung"}]
    without = [
        row
        for row in labels_of(done(plain))
        if row["position"] != rows[4]["position"] or row["source"] == "dump"
    ]
    assert labels_of(found) == without


def test_shares_and_limits_choose_by_hash_alone(plain: Path, tmp_path: Path) -> None:
    """And where only the games' own evaluations are taken over, no engine need be there."""
    project = tmp_path / "project"
    shutil.copytree(plain, project, ignore=shutil.ignore_patterns(".state", "label"))
    change(project, "label", sources=["dump"])
    change(project, "engine", command="no-such-engine")
    everything = labels_of(run_stage("label", project))
    change(project, "label", share=0.5)
    half = labels_of(run_stage("label", project))
    change(project, "label", share=1.0, positions=len(distinct_rows(2)) // 2)
    limited = labels_of(run_stage("label", project))
    assert 0.2 * len(everything) < len(half) < 0.8 * len(everything)
    assert abs(len(limited) - len(half)) <= 2
    assert [row for row in everything if row in half] == half
    assert {row["source"] for row in everything} == {"dump"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"limit": {"depth": 3, "nodes": 5}}, "depth 3 and nodes 5"),
        ({"limit": {"depth": 0}}, "depth 0 and nodes 0"),
        ({"sources": []}, "name engine"),
        ({"share": 0.0}, "out of range"),
    ],
)
def test_params_that_make_no_sense_are_refused(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    project = make_project(tmp_path / "project")
    change(project, "label", **values)
    with pytest.raises(QueenError, match=message):
        prepare(label.SPEC, None, project)
