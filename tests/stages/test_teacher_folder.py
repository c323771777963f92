"""The control `consolidator=teacher`: the hce teacher on a round's own nodes and searches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow.parquet as pq
import pytest
import yaml
from round_project import KEY, copy_of_round

from queen.language.engine_facts import EngineFacts
from queen.language.explanation import Explanation
from queen.language.proof import check_taught
from queen.language.provenance import Consolidated, Inputs, Origin
from queen.lineage.artifact import Artifact, open_artifact
from queen.lineage.verdicts import FILE
from stages.audit.books import BOOKS
from stages.audit.opened import open_round
from stages.audit.proofs import prove
from stages.base import ROWS
from stages.facts import facts_from_json
from stages.positions import position_of
from stages.runner import run_stage

NAME = f"consolidate@{KEY}"


def taught(folder: Path) -> tuple[Path, Artifact]:
    project = copy_of_round(folder)
    (project / FILE).unlink()
    rounds = yaml.safe_load((project / "params/rounds.yaml").read_text())
    rounds["rounds"][KEY]["consolidate"] |= {"consolidator": "teacher", "teacher_candidates": 3}
    (project / "params/rounds.yaml").write_text(yaml.safe_dump(rounds))
    return project, run_stage(NAME, project)


def test_the_teacher_explains_the_round_s_own_nodes(tmp_path: Path) -> None:
    by_rules = open_artifact(copy_of_round(tmp_path / "rules") / f"data/consolidate/{KEY}")
    project, artifact = taught(tmp_path)
    record = artifact.record
    ours = pq.read_table(artifact.file(ROWS)).to_pylist()
    theirs = pq.read_table(by_rules.file(ROWS)).to_pylist()
    places = [(row["root"], row["path"]) for row in theirs]
    assert [(row["root"], row["path"]) for row in ours] == places
    assert record.counts["sentences"] > 0
    assert record.counts.get("model_sentences", 0) == 0
    sources = [s for r in ours for s in orjson.loads(r["consolidated"])["sentences"]]
    assert {source[0] for source in sources} == {Origin.TEACHER}
    opened = open_round(project, KEY)
    assert list(BOOKS["consolidate"](opened, artifact)) == []
    found = prove(opened, artifact, open_artifact(project / f"data/recurse/{KEY}"))
    assert found.faults == []
    assert found.explanations == len(ours)


def _worse_best(told: Explanation) -> Explanation:
    other = next(c for c in told.candidates if c.move != told.best)
    return replace(told, best=other.move, line=(other.move, *other.line))


def _another_score(told: Explanation) -> Explanation:
    first, *rest = told.candidates
    moved = replace(first, score=1.0 - first.score if first.score != 0.5 else 0.4)
    return replace(told, candidates=(moved, *rest))


def _another_sentence(told: Explanation) -> Explanation:
    return replace(told, prose=(replace(told.prose[0], text="Nothing of the kind."),))


@pytest.mark.parametrize("change", [_worse_best, _another_score, _another_sentence])
def test_what_the_facts_do_not_bear_out_is_found(
    tmp_path: Path, change: Callable[[Explanation], Explanation]
) -> None:
    _, artifact = taught(tmp_path)
    for row in pq.read_table(artifact.file(ROWS)).to_pylist():
        told = Consolidated.from_json(orjson.loads(row["consolidated"]))
        if len(told.explanation.candidates) < 2 or not told.explanation.prose:
            continue
        facts: EngineFacts = facts_from_json(orjson.loads(row["facts"]))
        inputs = Inputs(position_of(row), facts.nodes[()], ())
        assert check_taught(told, inputs, facts) == []
        wrong = replace(told, explanation=change(told.explanation))
        assert check_taught(wrong, inputs, facts) != []
        return
    pytest.fail("no explanation had two candidates and a sentence")
