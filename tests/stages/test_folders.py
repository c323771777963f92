"""A round consolidated by a language model behind an API, its every statement proved again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_model.server import Fault, LocalServer
from local_model.speaker import LocalSpeaker
from round_project import KEY, copy_of_round

from queen.language.api.faults import EndpointError
from queen.language.consolidate_llm import prompts_digest
from queen.lineage.artifact import Record, open_artifact
from queen.lineage.verdicts import FILE
from stages.audit.books import BOOKS
from stages.audit.opened import open_round
from stages.audit.proofs import prove
from stages.runner import run_stage

NAME = f"consolidate@{KEY}"


def project_with(folder: Path, url: str, api: Mapping[str, Any], **llm: Any) -> Path:
    """The grown round, open again, to be consolidated by the endpoint at `url`."""
    project = copy_of_round(folder)
    (project / FILE).unlink()
    rounds = yaml.safe_load((project / "params/rounds.yaml").read_text())
    whole = {"base_url": url, "model": "tiny", "key_env": "", "max_tokens": 400, **llm}
    rounds["rounds"][KEY]["consolidate"] |= {"consolidator": "llm", "llm": whole}
    (project / "params/rounds.yaml").write_text(yaml.safe_dump(rounds))
    params = yaml.safe_load((project / "params.yaml").read_text())
    params["api"] = {"retries": 0, "backoff_s": 0.01, "concurrency": 2, **api}
    (project / "params.yaml").write_text(yaml.safe_dump(params))
    return project


def proved(project: Path, record: Record) -> None:
    """The audit, which knows nothing of who consolidated, must find every statement borne out."""
    opened = open_round(project, KEY)
    consolidated = open_artifact(project / record.name)
    assert list(BOOKS["consolidate"](opened, consolidated)) == []
    found = prove(opened, consolidated, open_artifact(project / f"data/recurse/{KEY}"))
    assert found.faults == []
    assert found.explanations == record.counts["folded"]
    assert found.sentences == record.counts["sentences"]


def test_a_model_that_chooses_among_the_statements_folds_whole_trees(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    by_rules = copy_of_round(tmp_path / "rules")
    rules = open_artifact(by_rules / f"data/consolidate/{KEY}").record
    with LocalServer(speaker, [None, Fault(500)]) as server:
        project = project_with(tmp_path, server.url, {}, closed=True)
        record = run_stage(NAME, project).record
        asked = len(server.seen)
    counts = record.counts
    assert counts["folded"] == rules.counts["folded"] == counts["llm.asked"] == asked
    assert counts["llm.folded"] == asked - 1
    assert counts["llm.by_rules"] == counts["llm.unusable.api.server_error"] == 1
    told = record.identities["consolidator"]
    assert (told["kind"], told["model"], told["prompts"]) == ("llm", "tiny", prompts_digest())
    assert record.params["llm"]["model"] == "tiny"
    assert "llm" not in rules.params
    proved(project, record)


def test_what_a_model_says_freely_is_cut_and_the_rules_fold(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    """A random model held to the form alone says nothing that anybody said before it."""
    with LocalServer(speaker) as server:
        project = project_with(tmp_path, server.url, {})
        record = run_stage(NAME, project).record
        assert len(server.seen) == record.counts["llm.asked"]
    assert record.counts["llm.by_rules"] == record.counts["folded"]
    assert record.counts["llm.unusable.answer.nothing_kept"] == record.counts["folded"]
    assert "llm.folded" not in record.counts
    rules = open_artifact(copy_of_round(tmp_path / "rules") / f"data/consolidate/{KEY}")
    assert record.content == rules.content
    proved(project, record)


def test_an_endpoint_of_which_nothing_comes_back_stops_the_stage(
    speaker: LocalSpeaker, tmp_path: Path
) -> None:
    with LocalServer(speaker, [Fault(503)] * 99) as server:
        project = project_with(tmp_path, server.url, {"give_up_after": 2})
        with pytest.raises(EndpointError, match="does not answer"):
            run_stage(NAME, project)
