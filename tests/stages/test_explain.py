"""The stage that explains roots, the embedded teacher in the model's place."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from round_project import KEY, TeacherSpeaks, copy_of_round

from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge
from queen.engines.pool import Analyser
from queen.generation.decode import Completion, Sampling
from queen.generation.speaker import Asked
from queen.lineage.artifact import open_artifact
from queen.lineage.verdicts import FILE
from stages import explain
from stages.base import ROWS, EngineParams, Machine, engine_settings
from stages.runner import run_stage


class Faltering(TeacherSpeaks):
    """The teacher, who cannot write the first text; what was asked is kept."""

    def explain(
        self, asked: Sequence[Asked], sampling: Sampling, legal: str = "none"
    ) -> list[Completion]:
        self.asked = list(asked)
        said = super().explain(asked, sampling, legal)
        return [Completion(said[0].id, "", error="the prompt is too long"), *said[1:]]


def test_candidates_have_their_own_seeds_and_errors_their_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of_round(tmp_path)
    (project / FILE).unlink()
    with Analyser(engine_settings(EngineParams(hash_mb=1), Machine(workers=1))) as analyser:
        teacher = Faltering(MoveJudge(analyser, Limit(nodes=400), None, 0.1, 0.0))
        monkeypatch.setattr(explain, "load_speaker", lambda *_: teacher)
        record = run_stage(f"explain@{KEY}", project).record
    assert record.identities["speaker"] == teacher.identity
    assert len({one.seed for one in teacher.asked}) == len(teacher.asked) == record.counts["texts"]
    rows = pq.read_table(open_artifact(project / record.name).file(ROWS)).to_pylist()
    texts = [text for row in rows for text in orjson.loads(row["texts"]).values()]
    assert [text["reason"] for text in texts].count("error") == 1
    assert record.drops["unparsed.error"] == 1
    assert record.counts["parsed"] + sum(record.drops.values()) == len(texts)


def test_the_favourite_alone_may_be_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of_round(tmp_path)
    (project / FILE).unlink()
    every = pq.read_table(project / f"data/explain/{KEY}" / ROWS).to_pylist()
    rounds = yaml.safe_load((project / "params/rounds.yaml").read_text())
    rounds["rounds"][KEY]["explain"] |= {"texts": "own"}
    (project / "params/rounds.yaml").write_text(yaml.safe_dump(rounds))
    with Analyser(engine_settings(EngineParams(hash_mb=1), Machine(workers=1))) as analyser:
        teacher = Faltering(MoveJudge(analyser, Limit(nodes=400), None, 0.1, 0.0))
        monkeypatch.setattr(explain, "load_speaker", lambda *_: teacher)
        artifact = run_stage(f"explain@{KEY}", project)
    rows = pq.read_table(artifact.file(ROWS)).to_pylist()
    assert [row["pid"] for row in rows] == [row["pid"] for row in every]
    for row in rows:
        assert list(orjson.loads(row["texts"])) == ([row["own"]] if row["own"] else [])
        assert len(orjson.loads(row["weighed"])["moves"]) >= 1
    assert artifact.record.counts["texts"] == sum(bool(row["own"]) for row in rows)


def test_a_text_seed_hangs_on_root_and_move_alone() -> None:
    moves = ("e2e4", "e2e3", "e7e8q", "e7e8n")
    seeds = {
        (root, move): explain.text_seed(root, move) for root in (0, 1, 2**62) for move in moves
    }
    assert len(set(seeds.values())) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds.values())
    assert explain.text_seed(1, "e2e4") == seeds[1, "e2e4"]
