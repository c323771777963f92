"""The games of an evaluation: who plays, who is left out, and what that does to keys."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import chess
import pytest

from queen.engines.locate import find_program
from queen.engines.players import RandomPlayer
from queen.engines.pool import Analyser
from queen.engines.uci import EngineStartError
from queen.errors import QueenError
from stages.base import EngineParams, Machine, engine_settings
from stages.matches import MatchParams, Opponent, _opponent, available, play_match, rate

OPPONENTS = {
    "random": Opponent("random", 300),
    "material": Opponent("material", 800),
    "weak": Opponent("engine", 1200, nodes=1, options={"Skill Level": 0}),
    "less weak": Opponent("engine", 1400, nodes=20),
}
PARAMS = MatchParams(8, (2, 2), 10, 20, OPPONENTS)
PLAIN = EngineParams(hash_mb=1)
ABSENT = Opponent("engine", 2000, command="no-such-engine")


@pytest.fixture
def installed(tmp_path: Path) -> Opponent:
    """An engine of its own, installed where only its path is known."""
    (tmp_path / "engine").symlink_to(str(find_program("stockfish")))
    return Opponent("engine", 2000, command=str(tmp_path / "engine"))


def test_auto_is_the_projects_own_engine() -> None:
    own = EngineParams(command="no-such-engine")
    player = RandomPlayer(1, "model")
    with (
        Analyser(engine_settings(PLAIN, Machine(workers=1))) as analyser,
        pytest.raises(EngineStartError, match="no such program"),
    ):
        play_match(PARAMS, ["weak"], player, analyser, own, 1, None)


def test_installing_an_opponent_changes_the_games_key(installed: Opponent) -> None:
    before = replace(PARAMS, opponents={**OPPONENTS, "other": ABSENT})
    after = replace(PARAMS, opponents={**OPPONENTS, "other": installed})
    assert available(before, PLAIN, "evaluation").keys() == OPPONENTS.keys()
    told = available(after, PLAIN, "evaluation")
    assert told.keys() == {*OPPONENTS, "other"}
    assert "Stockfish" in told["other"]["identity"]["name"]


def test_too_few_opponents_are_refused_where_games_are_wanted() -> None:
    few = {**OPPONENTS, "weak": ABSENT}
    with pytest.raises(QueenError, match=r"3 of 4 .* weak \(no-such-engine\)") as caught:
        available(replace(PARAMS, opponents=few), PLAIN, "rounds.r1.evaluate")
    assert caught.value.where == "rounds.r1.evaluate.opponents"
    assert "rounds.r1.evaluate.games: 0" in caught.value.remedy
    assert available(replace(PARAMS, games=0, opponents=few), PLAIN, "evaluation") == {}


def test_an_installed_program_that_is_no_engine_is_no_missing_one() -> None:
    broken = {**OPPONENTS, "other": Opponent("engine", 900, command="/bin/true")}
    with pytest.raises(QueenError, match="/bin/true"):
        available(replace(PARAMS, opponents=broken), PLAIN, "evaluation")


def test_weakened_engines_draw_by_the_seed() -> None:
    boards = [chess.Board() for _ in range(6)]
    for number, board in enumerate(boards):
        board.push(sorted(board.legal_moves, key=chess.Move.uci)[number])
    weak = replace(OPPONENTS["weak"], nodes=200)

    def drawn(seed: int) -> list[chess.Move | None]:
        with ExitStack() as stack:
            return list(_opponent("weak", weak, PLAIN, seed, stack).moves(boards))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_games_are_shared_out_and_rated() -> None:
    with Analyser(engine_settings(PLAIN, Machine(workers=1))) as analyser:
        player = RandomPlayer(1, "model")
        games = play_match(PARAMS, list(OPPONENTS), player, analyser, PLAIN, 1, None)
    assert Counter(game.black for game in games) == {"model": 4} | dict.fromkeys(OPPONENTS, 1)
    assert rate(PARAMS, games, "model") is not None
