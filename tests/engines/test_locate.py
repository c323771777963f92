from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from queen.engines.identity import identify
from queen.engines.locate import find_classical, find_engine
from queen.engines.table import has_classical_table
from queen.engines.uci import EngineProcess, EngineStartError


def test_an_engine_on_path_is_found(
    fake: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(fake()).rename(tmp_path / "stockfish")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_engine() == str(tmp_path / "stockfish")
    assert find_engine("stockfish") == str(tmp_path / "stockfish")


def test_a_path_is_taken_as_it_is(fake: Callable[..., str]) -> None:
    path = fake()
    assert find_engine(path) == path
    assert find_engine(f"{path} --option").split() == [path, "--option"]


def test_games_folders_are_searched_beyond_path(
    stockfish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    if not stockfish.startswith(("/usr/games", "/usr/local")):
        pytest.skip("stockfish stands elsewhere")
    assert find_engine() == stockfish


def test_what_is_missing_is_said_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match="no such program") as caught:
        find_engine(str(tmp_path / "gone"))
    assert "gone" in caught.value.where
    assert "apt-get install stockfish" in caught.value.remedy
    with pytest.raises(EngineStartError, match="a folder"):
        find_engine(str(tmp_path))
    (tmp_path / "text").write_text("")
    with pytest.raises(EngineStartError, match="not executable"):
        find_engine(str(tmp_path / "text"))


def test_no_stockfish_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("queen.engines.locate.FOLDERS", (str(tmp_path),))
    with pytest.raises(EngineStartError, match="no Stockfish"):
        find_engine()
    with pytest.raises(EngineStartError, match="no engine prints") as caught:
        find_classical()
    assert "apt-get install fairy-stockfish" in caught.value.remedy


def test_the_table_comes_from_the_next_engine_that_prints_it(
    fake: Callable[..., str], classical: str
) -> None:
    assert has_classical_table(find_classical(classical))
    try:
        fairy = find_engine("fairy-stockfish")
    except EngineStartError as error:
        pytest.skip(error.what)
    assert find_classical(fake()) == fairy


# -- identity -------------------------------------------------------------------------------

NETWORKED = """
    import sys
    for line in sys.stdin:
        if line.strip() == "uci":
            print("id name Stockfish 99")
            print("option name EvalFile type string default nn-0123456789ab.nnue")
            print("option name Hash type spin default 16 min 1 max 64")
            print("uciok", flush=True)
        elif line.strip() == "isready":
            print("readyok", flush=True)
"""


def digest(command: str, **options: str | int) -> str:
    engine = EngineProcess(command)
    try:
        return identify(engine, options).network_digest
    finally:
        engine.close()


def test_the_networks_digest_and_not_its_place(
    script: Callable[[str], str], tmp_path: Path
) -> None:
    command = script(NETWORKED)
    assert digest(command) == "0123456789ab"
    assert digest(command, EvalFile="nn-0123456789ab.nnue") == "0123456789ab"
    weights = b"weights"
    own = hashlib.sha256(weights).hexdigest()[:12]
    for name in ("mine.nnue", "nn-ffffffffffff.nnue"):
        (tmp_path / name).write_bytes(weights)
        assert digest(command, EvalFile=str(tmp_path / name)) == own
        assert digest(command, EvalFile=name) == own, "beside the engine"


def test_where_a_network_lies_is_no_part_of_the_identity(
    script: Callable[[str], str], tmp_path: Path
) -> None:
    command = script(NETWORKED)
    (tmp_path / "a.nnue").write_bytes(b"weights")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.nnue").write_bytes(b"weights")
    engine = EngineProcess(command)
    first = identify(engine, {"EvalFile": str(tmp_path / "a.nnue"), "Hash": 1})
    second = identify(engine, {"Hash": "1", "evalfile": str(tmp_path / "folder" / "b.nnue")})
    engine.close()
    assert first == second
    assert first.options == (("Hash", "1"),)
    assert first.key({"do": "x"}) == second.key({"do": "x"})
