"""The games of an evaluation: paired openings against opponents of known strength."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import chess

from queen.engines.analysis import Limit
from queen.engines.locate import AUTO, find_engine
from queen.engines.match import GameRecord, Pairing, Rules, Verdict, engine_verdict, paired, play
from queen.engines.openings import OpeningRules, draw_openings
from queen.engines.players import EnginePlayer, MaterialPlayer, Player, PlayLimit, RandomPlayer
from queen.engines.pool import Analyser
from queen.engines.uci import EngineStartError
from queen.errors import QueenError
from queen.evaluation.elo import Rating, fit_player
from queen.games.chess.position import Position
from queen.generation.speaker import Speaker
from stages.base import EngineParams
from stages.opponents import CHECK_EVERY, identity_of

LEAST = 4


@dataclass(frozen=True)
class Opponent:
    """An opponent and its place on the rating scale.

    Attributes:
        kind: `random`, `material` (one ply) or `engine`.
        rating: its Elo, which the fit stands on.
        command: the engine's program, or `auto`, the project's own engine; one that is not
            installed is left out, and counted.
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
        games: in all, an even number for each opponent; 0 plays none. More than none need at
            least LEAST opponents (ours): a rating that stands on fewer says little.
        opening_plies: shortest and longest opening.
        max_plies: games are adjudicated then, by a search of `adjudicate_nodes`.
        opponents: by name.
    """

    games: int
    opening_plies: tuple[int, ...]
    max_plies: int
    adjudicate_nodes: int
    opponents: Mapping[str, Opponent]

    @property
    def rules(self) -> Rules:
        return Rules(max_plies=self.max_plies, check_every=CHECK_EVERY)

    def openings(self, count: int, seed: int, verdict: Verdict) -> list[Position]:
        """So many of the length that is wanted, about even by the verdict."""
        low, high = self.opening_plies
        return draw_openings(count, seed, verdict, OpeningRules(low, high))


class ModelPlayer:
    """A QUEEN that plays the move it finds most probable, legal moves alone considered."""

    name = "model"

    def __init__(self, speaker: Speaker, name: str = name) -> None:
        self.speaker, self.name = speaker, name

    def moves(self, boards: Sequence[chess.Board]) -> list[chess.Move | None]:
        """The first move of the explanation of each board, its history known."""
        positions = [_with_history(board) for board in boards]
        policies = self.speaker.policies(positions)
        best = [max(sorted(p), key=p.__getitem__) if p else None for p in policies]
        return [chess.Move.from_uci(uci) if uci else None for uci in best]


def available(params: MatchParams, engine: EngineParams, where: str) -> dict[str, Any]:
    """The opponents that can play here: what each is, by name, for a shard's key.

    An engine of its own is known by its identity; the project's is in every key already.

    Args:
        engine: the project's own, which an opponent's command `auto` means.
        where: the section of the params, for the error.

    Raises:
        QueenError: games are wanted and fewer than LEAST opponents are here; or an engine that
            is installed does not start.
    """
    if params.games == 0:
        return {}
    found: dict[str, Any] = {}
    missing: list[str] = []
    for name in sorted(params.opponents):
        told = _known(params.opponents[name], engine)
        if told is None:
            missing.append(f"{name} ({params.opponents[name].command})")
        else:
            found[name] = told
    if len(found) < LEAST:
        here = f"{len(found)} of {len(params.opponents)} opponents are here ({', '.join(found)})"
        absent = f"; not installed: {', '.join(missing)}" if missing else ""
        raise QueenError(
            f"{here}, games need at least {LEAST}{absent}",
            where=f"{where}.opponents",
            remedy=f"install the missing engines, name others under {where}.opponents, or play "
            f"no games: `{where}.games: 0`",
        )
    return found


def _known(opponent: Opponent, engine: EngineParams) -> dict[str, Any] | None:
    """What an opponent is; None if its program is not installed."""
    told = {"kind": opponent.kind}
    if opponent.kind != "engine" or opponent.command == AUTO:
        return told
    try:
        command = find_engine(opponent.command)
    except EngineStartError:
        return None
    return {**told, "identity": identity_of(command, engine).as_dict()}


def play_match(
    params: MatchParams,
    names: Sequence[str],
    player: Player,
    analyser: Analyser,
    engine: EngineParams,
    seed: int,
    record: Any,
) -> list[GameRecord]:
    """Play the player against the opponents of these names; resumes from `record`."""
    if not names or params.games == 0:
        return []
    verdict = engine_verdict(analyser, Limit(nodes=params.adjudicate_nodes))
    with ExitStack() as stack:
        chosen = {name: params.opponents[name] for name in sorted(names)}
        opponents = [_opponent(n, one, engine, seed, stack) for n, one in chosen.items()]
        each = max(1, params.games // (2 * len(opponents)))
        openings = params.openings(each, seed, verdict)
        pairings: list[Pairing] = []
        for opponent in opponents:
            pairings += paired([(player, opponent)], openings, first=len(pairings))
        return play(pairings, params.rules, verdict, record=record)


def rate(params: MatchParams, games: Sequence[GameRecord], name: str) -> Rating | None:
    """The player's Elo on the opponents' scale; None if no game was played."""
    if not games:
        return None
    others = [game.black if game.white == name else game.white for game in games]
    ratings = [params.opponents[other].rating for other in others]
    return fit_player(ratings, [game.score_of(name) for game in games])


def _opponent(
    name: str, opponent: Opponent, engine: EngineParams, seed: int, stack: ExitStack
) -> Player:
    if opponent.kind == "random":
        return RandomPlayer(seed, name)
    if opponent.kind == "material":
        return MaterialPlayer(seed, name)
    auto = opponent.command == AUTO
    command = find_engine(engine.command if auto else opponent.command)
    # The project's engine plays as it searches; what the opponent sets goes before that.
    options = {**(engine.options if auto else {}), **opponent.options}
    limit = PlayLimit(nodes=opponent.nodes)
    return stack.enter_context(EnginePlayer(command, limit, options, name, engine.timeout_s, seed))


def _with_history(board: chess.Board) -> Position:
    return Position(
        board.root().fen(en_passant="legal"), tuple(move.uci() for move in board.move_stack)
    )
