"""dvc.yaml and the stages' own declarations say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from queen.errors import QueenError
from stages.base import StageSpec
from stages.registry import DATASET, NAMES, find_stage, spec_of

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "games": {"${games.source}"},
    "extract": {"${extract.source}"},
    "dedup": {"${dedup.evaluation}"},
}
SPINE, BULK = (
    yaml.safe_load((ROOT / name).read_text())["stages"] for name in ("dvc.yaml", "data/dvc.yaml")
)
DVC = {**SPINE, **BULK}


def declared(name: str) -> dict[str, Any]:
    """A stage of dvc.yaml as its template says it."""
    entry = DVC[name]
    body: dict[str, Any] = entry.get("do", entry)
    return body


def templated(path: str, spec: StageSpec) -> str:
    """The registry's template in dvc.yaml's words."""
    if "{parent}" in path and spec.per == "model":
        return "${item.before}"
    return path.replace("{key}", "${key}").replace("{parent}", "${item.parent}")


def test_both_know_the_same_stages() -> None:
    assert set(DVC) == set(NAMES)
    assert len(DVC) == len(SPINE) + len(BULK)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_outputs_and_commands_agree(name: str) -> None:
    spec, body = spec_of(name), declared(name)
    inputs = {templated(p, spec) for p in spec.inputs.values()}
    assert set(body.get("deps", [])) == inputs | FILES.get(name, set())
    (out,) = body["outs"]
    path, options = next(iter(out.items())) if isinstance(out, dict) else (out, {})
    assert path == templated(spec.output, spec)
    assert options == ({"persist": True} if spec.per == "round" else {})
    key = "" if spec.per == "once" else "@${key}"
    assert body["cmd"] == f"python -m stages {name}{key}"


def test_the_bulk_data_set_stands_aside() -> None:
    assert tuple(BULK) == DATASET
    assert all(body["wdir"] == ".." for body in BULK.values())


@pytest.mark.parametrize("name", NAMES)
def test_params_that_matter_are_watched(name: str) -> None:
    spec, body = spec_of(name), declared(name)
    watched = {f: set(keys) for entry in body["params"] for f, keys in entry.items()}
    assert watched["stages/versions.yaml"] == {f"{name}.version"}
    shared = watched.get("params.yaml", set())
    if spec.per == "round":
        own = watched["params/rounds.yaml"]
        assert own == {f"rounds.${{key}}.{spec.section}", "rounds.${key}.seed"}
    else:
        assert {spec.section, *spec.also} <= shared
    for section in ("engine", "generation"):
        assert (section in shared) == (section in spec.uses)


def test_a_wrong_name_gets_the_nearest_right_one() -> None:
    with pytest.raises(QueenError, match="did you mean 'filter'"):
        find_stage("fliter@r1")
    with pytest.raises(QueenError, match="needs a key"):
        find_stage("filter")
    with pytest.raises(QueenError, match="takes no key"):
        find_stage("games@r1")
