"""Seeds by a language model behind an API: a tiny one that really generates, on this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from local_model.server import Fault, LocalServer
from local_model.speaker import LocalSpeaker
from round_project import NODES, copy_of_data

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.language.explanation import Explanation, parse
from queen.language.teacher_frontier import prompts_digest
from queen.lineage.artifact import Artifact
from stages.base import ROWS
from stages.facts import facts_from_json
from stages.preparing import plain_params, prepare
from stages.registry import find_stage
from stages.runner import run_stage

POSITIONS = 8
KEY = "sk-stage-0b51d4c9e2"
STYLE = {"plies": 2, "candidates": 3, "sentences": 2}
BLIND = {**NODES, "mistake": 1.01}


def project_with(folder: Path, url: str, api: Mapping[str, Any], **llm: Any) -> Path:
    """A project whose seeds come from the endpoint at `url`."""
    project = copy_of_data(folder)
    params = yaml.safe_load((project / "params.yaml").read_text())
    whole = {"base_url": url, "model": "tiny", "key_env": "STAGE_KEY", "max_tokens": 700}
    price = {"input": 1.0, "output": 2.0}
    params["teacher"] = {"kind": "frontier", "llm": {**whole, "price": price, **llm}}
    params["seeds"] = {"positions": POSITIONS, "style": STYLE, "filter": BLIND}
    params["api"] = {"retries": 1, "backoff_s": 0.01, "concurrency": 2, **api}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    return project


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGE_KEY", KEY)


def rows_of(artifact: Artifact) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(artifact.file(ROWS)).to_pylist()
    return rows


def last_run(project: Path) -> dict[str, Any]:
    path = max((project / ".state" / "runs" / "seeds").glob("*/run.json"))
    told: dict[str, Any] = json.loads(path.read_text())
    return told


def files_with(project: Path, text: str) -> list[Path]:
    files = [path for path in project.rglob("*") if path.is_file()]
    return [path for path in files if text.encode() in path.read_bytes()]


def test_explanations_come_from_answers_and_the_record_says_whose(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    faults = [Fault(429, headers={"retry-after": "0.05"}), None, Fault(400), Fault(503), None]
    with LocalServer(speaker, faults) as server:
        project = project_with(tmp_path, server.url, {}, closed=True)
        made = run_stage("seeds", project)
        asked = len(server.seen)
        run, rows = last_run(project), rows_of(made)
        again = _redone(project)
        assert len(server.seen) == asked + 1  # the one that was refused is asked again
    kept = [row for row in rows if not row["dropped"]]
    for row in kept:
        position = Position.from_text(row["start"], row["moves"])
        said = Explanation.from_json(orjson.loads(row["explanation"]))
        assert parse(row["text"], position) == said
        assert said.best in facts_from_json(orjson.loads(row["facts"])).nodes[()].values
    counts, drops = made.record.counts, made.record.drops
    assert len(kept) == counts["kept"] >= 5
    assert drops["api.refused_request"] == 1
    assert counts["kept"] + sum(drops.values()) == counts["explained"] == POSITIONS
    assert counts["asked"] == POSITIONS
    assert counts["answered"] == POSITIONS - 1
    assert counts["sentences.unchecked"] + counts.get("sentences.checked", 0) == counts["sentences"]
    teacher = made.record.identities["teacher"]
    assert (teacher["kind"], teacher["model"], teacher["answered_by"]) == (
        "frontier",
        "tiny",
        ["local"],
    )
    assert teacher["prompts"] == prompts_digest()
    assert made.record.params["teacher"]["llm"]["model"] == "tiny"
    assert "price" not in made.record.params["teacher"]["llm"]
    cost = (counts["prompt_tokens"] + 2 * counts["answer_tokens"]) / 1e6
    assert run["figures"]["api.usd"] == pytest.approx(cost, abs=1e-6)
    assert run["figures"]["api.retries"] == 2
    assert not any("usd" in name for name in (*counts, *made.record.figures))
    assert again.record.counts["kept"] + sum(again.record.drops.values()) == POSITIONS
    assert files_with(project, KEY) == []


def _redone(project: Path) -> Artifact:
    """The stage run anew, its shards and artifact gone and only the answers left."""
    shutil.rmtree(project / "data" / "seeds")
    shutil.rmtree(project / ".state" / "shards" / "seeds")
    return run_stage("seeds", project)


def test_run_again_from_the_answers_it_gives_the_same_bytes_for_nothing(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    with LocalServer(speaker) as server:
        project = project_with(tmp_path, server.url, {}, closed=True)
        first = run_stage("seeds", project)
        record = (first.path / "record.json").read_bytes()
        assert len(server.seen) == POSITIONS
        _changed(project, "api", concurrency=5, budget={"usd": 9.0})
        again = _redone(project)
        assert len(server.seen) == POSITIONS
    assert (again.path / "record.json").read_bytes() == record
    figures = last_run(project)["figures"]
    assert figures["api.from_cache"] == POSITIONS
    assert figures["api.usd"] == 0.0
    assert "api.requests" not in figures


def _changed(project: Path, section: str, **values: Any) -> None:
    path = project / "params.yaml"
    params = yaml.safe_load(path.read_text())
    params[section] = {**params[section], **values}
    path.write_text(yaml.safe_dump(params))


def test_the_engine_drops_what_it_holds_for_a_mistake(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    with LocalServer(speaker) as server:
        project = project_with(tmp_path, server.url, {}, closed=True)
        blind = rows_of(run_stage("seeds", project))
        _changed(project, "seeds", filter={**NODES, "mistake": 0.0})  # nothing is good enough
        with pytest.raises(QueenError, match="gate 'seeds'"):
            run_stage("seeds", project)
        assert len(server.seen) == POSITIONS
    tables = [pq.read_table(p) for p in (project / ".state/shards/seeds").glob("*/rows.parquet")]
    (rows,) = [t.to_pylist() for t in tables if "" not in t["dropped"].to_pylist()]
    assert [row["text"] for row in rows] == [row["text"] for row in blind]
    assert {row["dropped"] for row in rows if row["text"]} == {"best_is_mistake"}


def test_free_answers_of_a_random_model_are_all_counted_as_unusable(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    with LocalServer(speaker) as server:
        project = project_with(tmp_path, server.url, {}, answer="text", max_tokens=24)
        with pytest.raises(QueenError, match="gate 'seeds'"):
            run_stage("seeds", project)
        assert len(server.seen) == POSITIONS
    (shard,) = (project / ".state" / "shards" / "seeds").glob("*/rows.parquet")
    reasons = pq.read_table(shard)["dropped"].to_pylist()
    assert len(reasons) == POSITIONS
    assert set(reasons) <= {"answer.cut_off", "answer.not_json"}


def test_the_budget_stops_the_stage_and_keeps_what_was_answered(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    with LocalServer(speaker) as server:
        project = project_with(tmp_path, server.url, {"concurrency": 1}, closed=True)
        _changed(project, "api", budget={"tokens": 9_000})
        with pytest.raises(QueenError, match="the budget ends here"):
            run_stage("seeds", project)
        run = last_run(project)
        assert run["status"] == "failed"
        spent = run_figures(project)
        assert 0 < spent["api.prompt_tokens"] + spent["api.answer_tokens"] <= 9_000
        paid = len(server.seen)
        assert 0 < paid < POSITIONS
        _changed(project, "api", budget={"tokens": 0})
        run_stage("seeds", project)
        assert len(server.seen) == POSITIONS
    assert last_run(project)["figures"]["api.from_cache"] == paid


def run_figures(project: Path) -> dict[str, float]:
    path = max((project / ".state" / "runs" / "seeds").glob("*/figures.jsonl"))
    figures: dict[str, float] = json.loads(path.read_text().splitlines()[-1])["figures"]
    return figures


def test_without_a_key_nothing_is_asked_and_the_variable_is_named(
    speaker: LocalSpeaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STAGE_KEY")
    with LocalServer(speaker) as server:
        project = project_with(tmp_path, server.url, {})
        with pytest.raises(QueenError, match="STAGE_KEY is not set"):
            run_stage("seeds", project)
        assert server.seen == []
    assert not (project / "data" / "seeds").exists()


def test_the_embedded_teacher_knows_nothing_of_endpoints(tmp_path: Path) -> None:
    """Its record is what it was before there were others."""
    project = project_with(tmp_path, "http://127.0.0.1:9/v1", {})
    _changed(project, "teacher", kind="hce")
    spec, _ = find_stage("seeds")
    assert plain_params(prepare(spec, None, project).params)["teacher"] == {"kind": "hce"}
