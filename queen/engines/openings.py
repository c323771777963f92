"""Openings for matches: seeded random plies from the first position, kept if balanced.

No book is used, so nothing has to be licensed and nobody's preparation is favoured.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import chess

from queen.engines.match import Verdict
from queen.engines.score import expected_from_cp
from queen.errors import QueenError
from queen.games.chess.position import Position, identity

Mover = Callable[[chess.Board, random.Random], chess.Move]
"""Draws the next ply of an opening."""


class OpeningError(QueenError):
    """No opening could be found that the verdict calls balanced."""


@dataclass(frozen=True)
class OpeningRules:
    """What counts as an opening.

    Attributes:
        min_plies, max_plies: its length, drawn evenly.
        balance_cp: neither side stands better than this by the verdict.
        attempts: how many are drawn before giving up.
    """

    min_plies: int = 2
    max_plies: int = 10
    balance_cp: int = 150
    attempts: int = 500


def random_ply(board: chess.Board, rng: random.Random) -> chess.Move:
    """Any legal move, all alike."""
    return rng.choice(sorted(board.legal_moves, key=chess.Move.uci))


def draw_opening(
    rng: random.Random,
    verdict: Verdict,
    rules: OpeningRules | None = None,
    mover: Mover = random_ply,
    taken: frozenset[str] | set[str] = frozenset(),
) -> Position:
    """One balanced opening whose position is not among `taken` (identities).

    Raises OpeningError after `rules.attempts` draws.
    """
    rules = rules or OpeningRules()
    for _ in range(rules.attempts):
        board = _draw(rng, rules, mover)
        if board is None or identity(board) in taken or not _balanced(board, verdict, rules):
            continue
        return Position(chess.STARTING_FEN, tuple(move.uci() for move in board.move_stack))
    raise OpeningError(
        f"no balanced opening in {rules.attempts} draws",
        where=f"{rules.min_plies} to {rules.max_plies} plies within {rules.balance_cp} centipawns",
        remedy="allow more plies, or a wider balance_cp",
    )


def draw_openings(
    count: int,
    seed: int,
    verdict: Verdict,
    rules: OpeningRules | None = None,
    mover: Mover = random_ply,
) -> list[Position]:
    """`count` balanced openings that end in different positions, the same for the same seed.

    The first n of a longer list are the list of n.
    """
    openings: list[Position] = []
    taken: set[str] = set()
    for index in range(count):
        opening = draw_opening(random.Random(f"{seed}/{index}"), verdict, rules, mover, taken)
        taken.add(opening.key)
        openings.append(opening)
    return openings


def _draw(rng: random.Random, rules: OpeningRules, mover: Mover) -> chess.Board | None:
    """Plies from the first position; None if the game ends on the way."""
    board = chess.Board()
    for _ in range(rng.randint(rules.min_plies, rules.max_plies)):
        if not any(board.generate_legal_moves()):
            return None
        board.push(mover(board, rng))
    return None if board.is_game_over() else board


def _balanced(board: chess.Board, verdict: Verdict, rules: OpeningRules) -> bool:
    margin = expected_from_cp(rules.balance_cp) - 0.5
    return abs(verdict([board])[0] - 0.5) <= margin
