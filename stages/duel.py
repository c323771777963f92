"""A round's model against its parent, game by game, until a sequential test knows who is stronger.

Source: METHOD section 1, Verdict of a round: with games enough a test of fishtest's kind decides
for Elo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.engines.analysis import Limit
from queen.engines.match import GameRecord, engine_verdict, paired, play
from queen.engines.players import Player
from queen.engines.pool import Analyser
from queen.evaluation.sprt import Sprt, SprtResult, pentanomial
from stages.matches import MatchParams, ModelPlayer

PARENT = "parent"
GAMES_A_LOOK = 32


@dataclass(frozen=True)
class DuelParams:
    """A sequential test (GSPRT) of model against parent.

    Attributes:
        games: most games, two for each opening; 0 plays none, and Elo is what the games against
            the opponents say.
        elo0, elo1: the hypotheses, in logistic Elo of the model over its parent.
        alpha, beta: chances of taking the wrong one.
    """

    games: int = 0
    elo0: float = 0.0
    elo1: float = 20.0
    alpha: float = 0.05
    beta: float = 0.05

    @property
    def test(self) -> Sprt:
        """The test; EloError where the numbers make none."""
        return Sprt(self.elo0, self.elo1, self.alpha, self.beta)


def play_duel(
    params: DuelParams,
    match: MatchParams,
    players: tuple[Player, Player],
    analyser: Analyser,
    seed: int,
    record: Path,
) -> list[GameRecord]:
    """Play until the test decides, looking every GAMES_A_LOOK games; resumes from `record`.

    Args:
        match: openings and adjudication, as of the games against the opponents.
        players: model and parent.
    """
    verdict = engine_verdict(analyser, Limit(nodes=match.adjudicate_nodes))
    pairings = paired([players], match.openings(params.games // 2, seed, verdict))
    games: list[GameRecord] = []
    for stop in range(GAMES_A_LOOK, len(pairings) + GAMES_A_LOOK, GAMES_A_LOOK):
        games = play(pairings[:stop], match.rules, verdict, record=record)
        if standing(params, games).state != "undecided":
            break
    return games


def standing(params: DuelParams, games: Sequence[GameRecord]) -> SprtResult:
    """Where the test stands after these games."""
    return params.test.run(pentanomial(games, ModelPlayer.name))


def told(result: SprtResult, games: int) -> dict[str, Any]:
    """A test as plain data: its numbers, pairs of 0 to 2 points, ratio and state."""
    test = result.test
    return {
        "elo0": test.elo0,
        "elo1": test.elo1,
        "games": games,
        "pairs": list(result.counts),
        "llr": round(result.llr, 4),
        "state": result.state,
    }
