"""`queen release` and `queen match` as a person calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_release import NET, artifact, make_project
from typer.testing import CliRunner

from queen.cli import app
from queen.commands.playing import parse_depths
from queen.engines.locate import find_engine
from queen.engines.uci import EngineStartError
from queen.errors import QueenError


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = make_project(tmp_path_factory.mktemp("grown") / "project")
    (root / "params.yaml").write_text("engine: {hash_mb: 1}\n")
    return root


@pytest.fixture
def project(grown: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(grown)
    monkeypatch.delenv("QUEEN_STATE", raising=False)
    return grown


def test_a_release_is_made_and_a_second_of_its_name_refused(project: Path) -> None:
    done = CliRunner().invoke(app, ["release", "r1", "--name", "one"])
    assert done.exit_code == 0, done.output
    assert "models/released/one (" in done.stdout
    again = CliRunner().invoke(app, ["release", "r1", "--name", "one"])
    assert isinstance(again.exception, QueenError)


def test_a_changed_release_is_seen_by_verify(built: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "README.md").write_text("a card\n")

    folder = artifact(built, "models/released/one", {}, fill, params={"number": 1}).path
    assert CliRunner().invoke(app, ["verify"]).exit_code == 0
    (folder / "README.md").write_text("a cord\n")
    found = CliRunner().invoke(app, ["verify"])
    assert found.exit_code == 1
    assert "models/released/one: file README.md has another hash" in found.stdout


@pytest.mark.parametrize("model", [NET, "r1"])
def test_a_match_is_played_told_and_told_again(project: Path, tmp_path: Path, model: str) -> None:
    try:
        find_engine()
    except EngineStartError as error:
        pytest.skip(error.what)
    words = ["match", "--model", model, "--depths", "1", "--games", "2", "--skill", "0"]
    done = CliRunner().invoke(app, [*words, "--json", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["model"] == ("expert" if model == NET else "r1")
    assert said["rows"][0]["games"] == 2
    assert not [end for end in said["rows"][0]["endings"] if "illegal" in end]
    assert json.loads((tmp_path / "out/table.json").read_text()) == said
    kept = list((project / ".state/matches").rglob("*.jsonl"))
    before = {path: path.read_bytes() for path in kept}
    again = CliRunner().invoke(app, words)
    assert again.stdout == (tmp_path / "out/table.txt").read_text()
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    "words", [["--games", "3"], ["--depths", "x"], ["--opponent", "no-such-engine"]]
)
def test_what_cannot_be_played_is_told(project: Path, words: list[str]) -> None:
    fault = CliRunner().invoke(app, ["match", "--model", NET, *words]).exception
    assert isinstance(fault, QueenError)
    assert fault.remedy


def test_depths_are_read_as_people_write_them() -> None:
    assert parse_depths("1-3,7, 2") == (1, 2, 3, 7)
    for wrong in ("", "a", "1-", "-3", "1-b", "1..3", "1-9999", "9" * 5000):
        with pytest.raises(QueenError, match="is no depth"):
            parse_depths(wrong)
