"""The games of an evaluation: paired openings against opponents of known strength."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import chess

from queen.engines.analysis import Limit
from queen.engines.locate import find_engine
from queen.engines.match import GameRecord, Pairing, Rules, engine_verdict, paired, play
from queen.engines.openings import OpeningRules, draw_openings
from queen.engines.players import EnginePlayer, MaterialPlayer, Player, PlayLimit, RandomPlayer
from queen.engines.pool import Analyser
from queen.engines.uci import EngineStartError
from queen.evaluation.elo import Rating, fit_player
from queen.games.chess.position import Position
from queen.generation.speaker import Speaker


@dataclass(frozen=True)
class Opponent:
    """An opponent and its place on the rating scale.

    Attributes:
        kind: `random`, `material` (one ply) or `engine`.
        rating: its Elo, which the fit stands on.
        command: the engine's program, or `auto`; one that is not installed is left out.
        nodes, options: how the engine plays.
    """

    kind: Literal["random", "material", "engine"]
    rating: float
    command: str = "auto"
    nodes: int = 1
    options: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class MatchParams:
    """How the games are played.

    Attributes:
        games: in all, an even number for each opponent; 0 plays none.
        opening_plies: shortest and longest opening.
        max_plies: games are adjudicated then, by a search of `adjudicate_nodes`.
        opponents: by name.
    """

    games: int
    opening_plies: tuple[int, ...]
    max_plies: int
    adjudicate_nodes: int
    opponents: Mapping[str, Opponent]


class ModelPlayer:
    """A QUEEN that plays the move it finds most probable, legal moves alone considered."""

    name = "model"

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        """The first move of the explanation of each board, its history known."""
        positions = [_with_history(board) for board in boards]
        policies = self.speaker.policies(positions)
        best = [max(sorted(p), key=p.__getitem__) if p else None for p in policies]
        return [chess.Move.from_uci(uci) if uci else None for uci in best]


def play_match(
    params: MatchParams,
    player: Player,
    analyser: Analyser,
    seed: int,
    record: Any,
) -> list[GameRecord]:
    """Play the player against every opponent that is here; resumes from `record`."""
    verdict = engine_verdict(analyser, Limit(nodes=params.adjudicate_nodes))
    with _opponents(params, seed) as opponents:
        if not opponents or params.games == 0:
            return []
        each = max(1, params.games // (2 * len(opponents)))
        low, high = params.opening_plies
        openings = draw_openings(each, seed, verdict, OpeningRules(low, high))
        pairings: list[Pairing] = []
        for opponent in opponents:
            pairings += paired([(player, opponent)], openings, first=len(pairings))
        rules = Rules(max_plies=params.max_plies, check_every=20)
        return play(pairings, rules, verdict, record=record)


def rate(params: MatchParams, games: Sequence[GameRecord], name: str) -> Rating | None:
    """The player's Elo on the opponents' scale; None if no game was played."""
    if not games:
        return None
    others = [game.black if game.white == name else game.white for game in games]
    ratings = [params.opponents[other].rating for other in others]
    return fit_player(ratings, [game.score_of(name) for game in games])


@contextmanager
def _opponents(params: MatchParams, seed: int) -> Iterator[list[Player]]:
    """The opponents that can be started here, by name."""
    with ExitStack() as stack:
        players = [
            _opponent(name, params.opponents[name], seed, stack)
            for name in sorted(params.opponents)
        ]
        yield [player for player in players if player is not None]


def _opponent(name: str, opponent: Opponent, seed: int, stack: ExitStack) -> Player | None:
    if opponent.kind == "random":
        return RandomPlayer(seed, name)
    if opponent.kind == "material":
        return MaterialPlayer(seed, name)
    try:
        command = find_engine(opponent.command)
    except EngineStartError:
        if opponent.command == "auto":
            raise
        return None
    limit = PlayLimit(nodes=opponent.nodes)
    return stack.enter_context(EnginePlayer(command, limit, opponent.options, name))


def _with_history(board: chess.Board) -> Position:
    return Position(
        board.root().fen(en_passant="legal"), tuple(move.uci() for move in board.move_stack)
    )
