"""What doctor says of language models behind an API, and the params that name them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from test_cli import call

from queen.commands.endpoints import endpoints, require_usable
from queen.errors import QueenError
from queen.language.api.settings import Endpoint, Limits
from queen.lineage.params import compose
from stages import consolidate, seeds
from stages.settings import build, relevant

REPOSITORY = Path(__file__).resolve().parents[2]
CHOSEN = ["teacher=frontier", "teacher.llm.model=big", "teacher.llm.price.input=2.5"]


def test_the_params_name_a_teacher_and_what_asking_it_may_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    params = compose(REPOSITORY, [*CHOSEN, "api.budget.usd=3"])
    found = build(seeds.Params, {**params["seeds"], "teacher": params["teacher"]}, "seeds")
    assert (found.teacher.kind, found.teacher.llm.model) == ("frontier", "big")
    assert found.teacher.llm.price.input == 2.5
    assert build(Limits, params["api"], "api").budget.usd == 3.0
    ((what, endpoint),) = endpoints(REPOSITORY, params)
    assert (what, endpoint) == ("teacher", found.teacher.llm)
    monkeypatch.delenv(endpoint.key_env, raising=False)
    with pytest.raises(QueenError, match="price of 'big' is not known"):
        require_usable(endpoint, params)
    params["api"]["budget"]["usd"] = 0.0
    with pytest.raises(QueenError, match=f"{endpoint.key_env} is not set"):
        require_usable(endpoint, params)
    monkeypatch.setenv(endpoint.key_env, "sk-anything")
    require_usable(endpoint, params)


def test_without_the_choice_no_model_is_asked_and_no_record_names_one() -> None:
    params = compose(REPOSITORY)
    assert params["teacher"] == {"kind": "hce"}
    step = build(consolidate.Params, params["round"]["consolidate"], "consolidate")
    assert set(relevant(step)) == {"consolidator", "rules"}
    assert build(Endpoint, params["round"]["consolidate"]["llm"], "llm") == step.llm
    assert list(endpoints(REPOSITORY, params)) == []


def test_doctor_says_which_key_is_missing(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOY_KEY", raising=False)
    llm = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "key_env": "TOY_KEY"}
    params = yaml.safe_load((toy / "params.yaml").read_text())
    (toy / "params.yaml").write_text(
        yaml.safe_dump({**params, "teacher": {"kind": "frontier", "llm": llm}})
    )
    rounds = yaml.safe_load((toy / "params/rounds.yaml").read_text())
    rounds["rounds"]["r1"]["consolidate"] = {
        "consolidator": "llm",
        "llm": {**llm, "key_env": "", "model": "n"},
    }
    (toy / "params/rounds.yaml").write_text(yaml.safe_dump(rounds))
    found = {row["what"]: row for row in json.loads(call("doctor", "--json").stdout)}
    assert found["teacher"]["state"] == "missing"
    assert "TOY_KEY" in found["teacher"]["remedy"]
    assert found["consolidator of r1"]["state"] == "ok"
    monkeypatch.setenv("TOY_KEY", "sk-secret-of-the-toy")
    said = call("doctor", "--json").stdout
    again = {row["what"]: row for row in json.loads(said)}
    assert again["teacher"]["state"] == "ok"
    assert "sk-secret-of-the-toy" not in said
