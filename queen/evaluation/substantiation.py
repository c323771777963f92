"""Substantiation: are the first move and the line an answer gives free of mistakes?

FNMR is the share of positions whose first move is no mistake, NMR@k the share whose line has no
mistake of either side in its first k plies. The denominator is all positions; an answer that
cannot be parsed, or a move that is illegal, is a mistake; a line that stops before ply k fails
unless the game is over there. Source: METHOD section 1 (Substantiation).

A position the engine failed on says nothing about the answer: it is left out and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import chess

from queen.engines.analysis import EngineFailure
from queen.engines.judge import SLACK, RootVerdict
from queen.engines.match import outcome_by_rules
from queen.games.chess.position import Position

DEPTHS = (1, 3, 5)
Item = tuple[str, tuple[str, ...]]
Loss = Callable[[str, str], float | None]
"""Expected score that a move (UCI) gives away on a FEN; None where the engine failed."""
Step = Literal["sound", "mistake", "illegal", "unjudged"]


@dataclass(frozen=True)
class Answer:
    """What a player said about a position.

    Attributes:
        first: its move in UCI, None where none could be read.
        line: its line in UCI, from the position on; it should begin with `first`.
        parseable: whether the answer had the form asked for. An illegal move in a line of the
            right form does not make it unparseable: the line fails at that ply.
    """

    first: str | None
    line: tuple[str, ...] = ()
    parseable: bool = True


@dataclass(frozen=True)
class LineScore:
    """What one answer is worth.

    Attributes:
        parseable: as the answer says.
        legal: the first move is legal. line_legal: so is every move of the line.
        first: what the first move is.
        line: what each ply of the line is, to the first illegal one or to the depth asked.
        over: the game is over where the line ends.
        complete: `line` holds the whole line, not its first plies alone.
        losses: expected score given away at each ply of `line` that was judged, in order.
    """

    parseable: bool
    legal: bool
    line_legal: bool
    first: Step
    line: tuple[Step, ...] = ()
    over: bool = False
    complete: bool = True
    losses: tuple[float, ...] = ()

    @property
    def first_sound(self) -> bool:
        """The first move is no mistake: what FNMR counts."""
        return self.parseable and self.first == "sound"

    def sound_to(self, plies: int) -> bool:
        """The line has no mistake in its first `plies`: what NMR@plies counts."""
        head = self.line[:plies]
        reached = len(head) == plies or (self.over and self.complete and bool(head))
        return self.parseable and reached and all(step == "sound" for step in head)

    @property
    def judged(self) -> bool:
        """No search that could have changed the outcome failed."""
        if not self.parseable:
            return True
        steps = (self.first, *self.line)
        return "unjudged" not in steps


def needed_searches(position: Position, answer: Answer, depth: int = max(DEPTHS)) -> list[Item]:
    """The (FEN, legal moves) to judge before `score_line` can work.

    The first move and the first `depth` plies of the line, up to its first illegal one.
    """
    if not answer.parseable:
        return []
    items: dict[str, list[str]] = {}
    board = position.board()
    if answer.first is not None and _legal(board, answer.first):
        items[_fen(board)] = [answer.first]
    for uci in answer.line[:depth]:
        if not _legal(board, uci):
            break
        moves = items.setdefault(_fen(board), [])
        if uci not in moves:
            moves.append(uci)
        board.push_uci(uci)
    return [(fen, tuple(moves)) for fen, moves in items.items()]


def score_line(
    position: Position,
    answer: Answer,
    loss: Loss,
    mistake: float,
    depth: int = max(DEPTHS),
) -> LineScore:
    """Score one answer.

    Args:
        position: what was asked about.
        answer: what was said.
        loss: looks up what `needed_searches` asked for.
        mistake: expected score from which a loss is a mistake.
        depth: plies of the line that are judged.
    """
    board = position.board()
    legal = answer.first is not None and _legal(board, answer.first)
    if not answer.parseable:
        return LineScore(False, legal, False, "mistake" if legal else "illegal")
    first: Step = "illegal"
    if legal and answer.first is not None:
        first = _step(loss(_fen(board), answer.first), mistake)
    steps: list[Step] = []
    losses: list[float] = []
    for uci in answer.line[:depth]:
        if not _legal(board, uci):
            steps.append("illegal")
            break
        lost = loss(_fen(board), uci)
        steps.append(_step(lost, mistake))
        losses += [] if lost is None else [lost]
        board.push_uci(uci)
    return LineScore(
        parseable=True,
        legal=legal,
        line_legal=_line_legal(position, answer.line),
        first=first,
        line=tuple(steps),
        over=outcome_by_rules(board) is not None,
        complete=len(answer.line) <= depth,
        losses=tuple(losses),
    )


def measure(
    positions: Sequence[Position],
    answers: Sequence[Answer],
    judge: Callable[[Sequence[Item]], Sequence[RootVerdict | EngineFailure]],
    mistake: float,
    depth: int = max(DEPTHS),
) -> list[LineScore]:
    """Score every answer with one call of `judge` (MoveJudge.judge)."""
    pairs = list(zip(positions, answers, strict=True))
    wanted: dict[str, dict[str, None]] = {}
    for position, answer in pairs:
        for fen, moves in needed_searches(position, answer, depth):
            wanted.setdefault(fen, {}).update(dict.fromkeys(moves))
    items = [(fen, tuple(moves)) for fen, moves in wanted.items()]
    loss = losses_of(judge(items))
    return [score_line(position, answer, loss, mistake, depth) for position, answer in pairs]


def losses_of(verdicts: Sequence[RootVerdict | EngineFailure]) -> Loss:
    """A look-up in the judge's verdicts, None where it failed.

    KeyError for a position that was never judged.
    """
    by_fen = {verdict.fen: verdict for verdict in verdicts}

    def loss(fen: str, uci: str) -> float | None:
        verdict = by_fen[fen]
        return None if isinstance(verdict, EngineFailure) else verdict.loss(uci)

    return loss


def _step(loss: float | None, mistake: float) -> Step:
    if loss is None:
        return "unjudged"
    return "mistake" if loss >= mistake - SLACK else "sound"


def _legal(board: chess.Board, uci: str) -> bool:
    try:
        return board.is_legal(chess.Move.from_uci(uci))
    except ValueError:
        return False


def _line_legal(position: Position, line: Sequence[str]) -> bool:
    board = position.board()
    for uci in line:
        if not _legal(board, uci):
            return False
        board.push_uci(uci)
    return True


def _fen(board: chess.Board) -> str:
    return board.fen(en_passant="legal")
