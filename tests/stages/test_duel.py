"""The sequential test of a round's model against its parent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import chess
import orjson
import pytest

from queen.engines.players import MaterialPlayer, RandomPlayer
from queen.engines.pool import Analyser
from queen.evaluation.elo import EloError
from stages.base import EngineParams, Machine, engine_settings
from stages.duel import GAMES_A_LOOK, DuelParams, play_duel, standing, told
from stages.matches import MatchParams

MATCH = MatchParams(0, (2, 2), 30, 20, {})


@pytest.fixture(scope="module")
def analyser() -> Iterator[Analyser]:
    with Analyser(engine_settings(EngineParams(hash_mb=1), Machine(workers=1))) as engine:
        yield engine


def test_a_clear_difference_ends_the_test_before_its_last_game(
    analyser: Analyser, tmp_path: Path
) -> None:
    params = DuelParams(games=400, elo0=0, elo1=200)
    players = MaterialPlayer(1, "model"), RandomPlayer(1, "parent")
    games = play_duel(params, MATCH, players, analyser, 1, tmp_path / "duel.jsonl")
    assert len(games) < 400
    assert len(games) % GAMES_A_LOOK == 0
    assert standing(params, games).state == "H1"
    assert standing(params, games[:-GAMES_A_LOOK]).state == "undecided"
    shown = told(standing(params, games), len(games))
    assert sum(shown["pairs"]) == len(games) // 2


class Dying(RandomPlayer):
    """A player that fails after some calls, as a killed process would."""

    def __init__(self, seed: int, name: str, calls: int) -> None:
        super().__init__(seed, name)
        self.left = calls

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        return super().moves(boards)


def test_a_test_that_was_broken_off_goes_on_to_the_same_end(
    analyser: Analyser, tmp_path: Path
) -> None:
    params = DuelParams(games=48, elo0=0, elo1=10)
    whole = play_duel(
        params, MATCH, (RandomPlayer(1, "model"), RandomPlayer(2, "parent")), analyser, 1,
        tmp_path / "whole.jsonl",
    )  # fmt: skip
    record = tmp_path / "broken.jsonl"
    dying = Dying(1, "model", 40), RandomPlayer(2, "parent")
    with pytest.raises(KeyboardInterrupt):
        play_duel(params, MATCH, dying, analyser, 1, record)
    kept = [orjson.loads(line)["index"] for line in record.read_bytes().splitlines()]
    assert 0 < len(kept) < 48
    again = RandomPlayer(1, "model"), RandomPlayer(2, "parent")
    assert play_duel(params, MATCH, again, analyser, 1, record) == whole
    assert len(whole) == 48
    assert standing(params, whole).state == "undecided"


def test_hypotheses_must_stand_in_order() -> None:
    with pytest.raises(EloError, match="elo0 must be below elo1"):
        standing(DuelParams(games=2, elo0=10, elo1=10), [])
