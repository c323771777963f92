"""A match by depth: its table, its plot, and that no finished game is ever played again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import chess
import pytest

from queen.engines.locate import find_engine
from queen.engines.match import GameRecord
from queen.engines.players import MaterialPlayer, Player
from queen.engines.uci import EngineStartError
from queen.errors import QueenError
from queen.evaluation.elo import expected_score
from stages.base import EngineParams
from stages.play.table import (
    MatchPlan,
    Row,
    Side,
    Table,
    chart_of,
    play_table,
    row_of,
    text_of,
    write_table,
)

ENGINE = EngineParams(hash_mb=1)
PLAN = MatchPlan((1, 2), 4, seed=3, skill=0, max_plies=30, adjudicate_nodes=30)
CONTENT = "ab" * 32
SCRIPT = """
import sys
from pathlib import Path
from queen.engines.players import MaterialPlayer
from stages.base import EngineParams
from stages.play.table import MatchPlan, Side, play_table
plan = MatchPlan((1, 2), 4, seed=3, skill=0, max_plies=30, adjudicate_nodes=30)
side = Side("material", "ab" * 32, lambda: MaterialPlayer(1, "material"))
play_table(plan, side, EngineParams(hash_mb=1), Path(sys.argv[1]), lambda *told: None)
"""


@pytest.fixture(autouse=True, scope="module")
def _engine() -> None:
    try:
        find_engine()
    except EngineStartError as error:
        pytest.skip(error.what)


class Watched:
    """A player that counts the positions it is asked about."""

    def __init__(self) -> None:
        self.asked, self.player = 0, MaterialPlayer(1, "material")
        self.name = self.player.name

    def moves(self, boards: Sequence[chess.Board]) -> Sequence[chess.Move | None]:
        self.asked += len(boards)
        return self.player.moves(boards)


def told(*_: object) -> None:
    """Nobody asks how far it is."""


def side(player: Player | None = None) -> Side:
    return Side("material", CONTENT, lambda: player or MaterialPlayer(1, "material"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole match in it."""
    folder = tmp_path_factory.mktemp("kept")
    play_table(PLAN, side(), ENGINE, folder, told)
    return folder


def records(folder: Path) -> dict[str, bytes]:
    """Games by file, in the order of their numbers."""
    return {
        str(path.relative_to(folder)): b"".join(
            sorted(path.read_bytes().splitlines(True), key=lambda line: json.loads(line)["index"])
        )
        for path in sorted(folder.rglob("*.jsonl"))
    }


def test_a_finished_match_is_told_again_without_a_move(kept: Path) -> None:
    def load() -> Player:
        raise AssertionError("loaded for nothing")

    before = records(kept)
    table, games = play_table(PLAN, Side("material", CONTENT, load), ENGINE, kept, told)
    assert records(kept) == before
    assert len(games) == 8
    assert [row.depth for row in table.rows] == [1, 2]
    for row in table.rows:
        mine = [g for g in games if f"depth {row.depth}" in (g.white, g.black)]
        assert (row.games, row.won + row.drawn + row.lost) == (4, 4)
        assert row.score == pytest.approx(sum(g.score_of("material") for g in mine) / 4)
        assert sum(row.endings.values()) == 4
        assert {g.white for g in mine} == {"material", f"depth {row.depth}"}
        assert len({g.moves[: g.opening_plies] for g in mine}) == 2
    assert "Stockfish" in table.opponent


def test_more_games_begin_with_those_that_are_there(kept: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(kept, tmp_path / "more")
    player = Watched()
    more, games = play_table(
        replace(PLAN, games=6, depths=(2,)), side(player), ENGINE, tmp_path / "more", told
    )
    assert more.rows[0].games == 6
    assert [game.index for game in games] == list(range(6))
    fresh = sum((len(g.moves) - g.opening_plies + 1) // 2 for g in games[4:])
    assert 0 < player.asked <= fresh + 2
    whole = play_table(replace(PLAN, games=6, depths=(2,)), side(), ENGINE, tmp_path / "new", told)
    assert whole[1] == games


@pytest.mark.parametrize(
    "other", [{"seed": 4}, {"skill": 1}, {"max_plies": 32}, {"adjudicate_nodes": 31}]
)
def test_another_match_has_games_of_its_own(kept: Path, other: dict[str, int]) -> None:
    before = records(kept)
    changed = replace(PLAN, games=2, depths=(1,), **other)
    play_table(changed, side(), ENGINE, kept, told)
    after = records(kept)
    assert after.items() > before.items()
    assert len(after) == len(before) + 1


def test_killed_at_any_point_it_ends_with_the_same_games(kept: Path, tmp_path: Path) -> None:
    whole = records(kept)
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for lines in (1, 3):
        process = subprocess.Popen(command, env=environment)
        while process.poll() is None and _count(folder) < lines:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for path in folder.rglob("*.jsonl"):
        with path.open("ab") as file:
            file.write(b'{"index": 3, "whi')  # torn by the kill
    play_table(PLAN, side(), ENGINE, folder, told)
    mine = {name: games for name, games in whole.items() if name in records(folder)}
    assert len(mine) == 2
    assert records(folder) == mine


def _count(folder: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("*.jsonl"))


def game(index: int, result: str) -> GameRecord:
    """Even games have the model White."""
    names = ("m", "depth 1") if index % 2 == 0 else ("depth 1", "m")
    return GameRecord(index, *names, chess.STARTING_FEN, (), 0, result, "checkmate")


def test_a_row_counts_from_the_models_side() -> None:
    games = [game(n, r) for n, r in enumerate(["1-0", "1-0", "1/2-1/2", "0-1", "0-1", "0-1"])]
    row = row_of(1, games, "m")
    assert (row.won, row.drawn, row.lost, row.score) == (3, 1, 2, pytest.approx(3.5 / 6, abs=1e-4))
    assert row.low is not None
    assert row.high is not None
    assert row.low < 0 < row.elo < row.high
    many = row_of(1, games * 50, "m")
    assert expected_score(many.elo) == pytest.approx(3.5 / 6, abs=0.005)
    assert row_of(1, [game(0, "1-0"), game(1, "0-1")], "m").high is None
    assert row_of(1, [game(0, "0-1"), game(1, "1-0")], "m").low is None


ROWS = (
    Row(1, 20, 20, 0, 0, 1.0, 700.0, 330.0, None, {"checkmate": 20}),
    Row(2, 20, 10, 2, 8, 0.55, 35.0, -120.0, 180.0, {}),
    Row(10, 20, 0, 1, 19, 0.025, -520.0, -900.0, -300.0, {}),
)
TABLE = Table("r2 <&>", CONTENT, "Stockfish 15.1", PLAN, ROWS)


def test_the_table_is_aligned_and_says_how_it_was_made() -> None:
    lines = text_of(TABLE).splitlines()
    assert lines[0] == "r2 <&> (abababababab) against Stockfish 15.1, Skill Level 0"
    assert len({len(line) for line in lines[2:6]}) == 1
    assert lines[3].split()[-4:] == ["+700", "+330", "..", "+inf"]
    assert "Elo is fitted with a prior" in lines[-1]


def test_the_plot_is_a_document_of_its_own() -> None:
    root = ElementTree.fromstring(chart_of(TABLE))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "r2 <&>" in root.attrib["aria-label"]
    titles = [node.text for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "d1: 700 [330, open]" in titles
    words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words[-1] == (
        "Elo of r2 <&> above Stockfish 15.1 by the engine's depth, with 95 % intervals"
    )
    style = next(root.iter("{http://www.w3.org/2000/svg}style")).text or ""
    assert "svg.chart .whisker" in style
    kinds = [n.attrib["class"] for n in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert kinds == ["dot better", "dot even", "dot worse"]


def test_everything_is_written_into_one_folder(tmp_path: Path) -> None:
    write_table(TABLE, [game(0, "1-0"), game(1, "1-0")], tmp_path / "a/b")
    names = sorted(path.name for path in (tmp_path / "a/b").iterdir())
    assert names == ["chart.svg", "games.pgn", "table.json", "table.txt"]
    said = json.loads((tmp_path / "a/b/table.json").read_text())
    assert [row["depth"] for row in said["rows"]] == [1, 2, 10]
    assert (tmp_path / "a/b/games.pgn").read_text().count("[Result ") == 2


def test_what_cannot_be_played_is_no_plan() -> None:
    for plan in ({"games": 3}, {"games": 0}, {"depths": ()}, {"depths": (0,)}):
        with pytest.raises(QueenError):
            MatchPlan(**plan)  # type: ignore[arg-type]
