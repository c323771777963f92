"""The candidate moves of a root: the model's own, and the engine's where all are mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queen.engines.analysis import EngineFailure
from queen.engines.judge import MoveJudge, RootVerdict
from queen.games.chess.position import Position
from queen.generation.speaker import Speaker


@dataclass(frozen=True)
class Weighed:
    """A root's candidates, judged.

    Attributes:
        moves: UCI, the model's favourite first, before it the engine's move if it replaced one.
        logprobs: the model's log-probability of each of its own moves.
        replaced: the model's move that gave way to the engine's best, if all were mistakes.
        verdict: the engine's values of all of them.
    """

    moves: tuple[str, ...]
    logprobs: Mapping[str, float]
    replaced: str | None
    verdict: RootVerdict


def weigh(
    speaker: Speaker,
    judge: MoveJudge,
    positions: Sequence[Position],
    seeds: Sequence[int],
    count: int,
    temperature: float,
) -> list[Weighed | EngineFailure]:
    """Draw `count` distinct moves from the model for each position and judge them.

    If all are mistakes, the worst is replaced by the engine's best move (METHOD section 1,
    step 2).
    """
    policies = speaker.policies(positions)
    picks = [
        draw(policy, count, temperature, seed) for policy, seed in zip(policies, seeds, strict=True)
    ]
    fens = [position.fen for position in positions]
    first = judge.judge(list(zip(fens, picks, strict=True)))
    final = [
        replace_worst(moves, verdict) if isinstance(verdict, RootVerdict) else (moves, None)
        for moves, verdict in zip(picks, first, strict=True)
    ]
    changed = [i for i, (_, worst) in enumerate(final) if worst is not None]
    again = judge.judge([(fens[i], (*final[i][0], str(final[i][1]))) for i in changed])
    verdicts = dict(enumerate(first)) | dict(zip(changed, again, strict=True))
    return [
        _weighed(moves, worst, policies[i], verdicts[i]) for i, (moves, worst) in enumerate(final)
    ]


def draw(policy: Mapping[str, float], count: int, temperature: float, seed: int) -> tuple[str, ...]:
    """Distinct moves without replacement (Gumbel top-k), the likeliest of them first.

    Args:
        policy: log-probability by UCI.
        count: how many; fewer if there are fewer legal moves.
        temperature: 0 takes the most probable moves.
        seed: of this position's random numbers.
    """
    moves = sorted(policy)
    if not moves:
        return ()
    logits = np.array([policy[move] for move in moves])
    noise = np.random.default_rng(seed).gumbel(size=len(moves))
    keys = logits / temperature + noise if temperature > 1e-6 else logits
    chosen = [moves[i] for i in np.argsort(-keys, kind="stable")[:count]]
    return tuple(sorted(chosen, key=lambda move: (-policy[move], move)))


def replace_worst(moves: Sequence[str], verdict: RootVerdict) -> tuple[tuple[str, ...], str | None]:
    """If every move is a mistake, the engine's best in place of the worst, and that worst.

    The engine's move comes first, so that a tree's budget cannot run out before it. At small
    budgets it may be among the moves and a mistake by its own child's search: then all stay.
    """
    mistaken = all(verdict.is_mistake(move) for move in moves)
    if not moves or not mistaken or verdict.best_move in moves:
        return tuple(moves), None
    worst = max(moves, key=lambda move: (verdict.loss(move), move))
    kept = [move for move in moves if move != worst]
    return (verdict.best_move, *kept), worst


def _weighed(
    moves: tuple[str, ...],
    worst: str | None,
    policy: Mapping[str, float],
    verdict: RootVerdict | EngineFailure,
) -> Weighed | EngineFailure:
    if isinstance(verdict, EngineFailure):
        return verdict
    known = {move: policy[move] for move in (*moves, *((worst,) if worst else ()))}
    return Weighed(moves, known, worst, verdict)
