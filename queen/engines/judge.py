"""Which moves are mistakes: searches of the position and of what the moves lead to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import chess

from queen.engines.analysis import Analysis, EngineFailure, Limit
from queen.engines.pool import Analyser
from queen.engines.rules import Ready, examine

SLACK = 1e-9  # a loss of exactly the threshold is a mistake, whatever the last bit says
Item = tuple[str, Sequence[str]]


@dataclass(frozen=True)
class RootVerdict:
    """What a position's moves are worth, for its side to move.

    Attributes:
        fen: the position.
        best: expected score of best play: the larger of the root search's value and the
            children's.
        best_move, best_line: the move (UCI) that reaches it and the line it starts; "" and ()
            where the game is over.
        values: expected score of each move asked about: 1 minus its child's.
        nodes: nodes searched for this verdict, all budgets together.
        mistake: expected score a move may lose before it is a mistake.
        close: moves decided at the larger budget, because they lay near the threshold or could
            be the best.
        gap: best minus second best move of the root search, where it gave two lines.
    """

    fen: str
    best: float
    best_move: str
    best_line: tuple[str, ...]
    values: Mapping[str, float]
    nodes: int
    mistake: float
    close: frozenset[str] = field(default_factory=frozenset)
    gap: float | None = None

    def loss(self, uci: str) -> float:
        """Expected score the move gives away, at least 0. KeyError if it was not asked about."""
        return max(0.0, self.best - self.values[uci])

    def is_mistake(self, uci: str) -> bool:
        """Whether the move loses at least `mistake`. Source: METHOD section 1."""
        return self.loss(uci) >= self.mistake - SLACK


class MoveJudge:
    """Judges moves in batches: all roots and children of a call are searched together.

    Where a move's loss lies within `margin` of `mistake`, root and child are searched again at
    `close_limit`, with every other move that could then be the best, so that what is compared
    has the same budget. Source: METHOD section 1, "A mistake is".

    Args:
        analyser: searches.
        limit: budget of every root and child.
        close_limit: budget of the close ones; None decides all at `limit`.
        mistake: loss of expected score from which a move is a mistake.
        margin: how near to `mistake` is close.
        multipv: lines of root searches; 2 gives `RootVerdict.gap`. Children are searched for one.
    """

    def __init__(
        self,
        analyser: Analyser,
        limit: Limit,
        close_limit: Limit | None = None,
        mistake: float = 0.10,
        margin: float = 0.03,
        multipv: int = 1,
    ) -> None:
        self.analyser, self.limit, self.close_limit = analyser, limit, close_limit
        self.mistake, self.margin, self.multipv = mistake, margin, multipv

    def judge(self, items: Sequence[Item]) -> list[RootVerdict | EngineFailure]:
        """A verdict for each (FEN, moves in UCI), in order.

        An EngineFailure where the position or a move is illegal, or a search it needs failed.
        """
        cases = [_open_case(fen, moves) for fen, moves in items]
        live = [case for case in cases if isinstance(case, _Case)]
        self._search([(case, list(case.children)) for case in live], self.limit, close=False)
        if self.close_limit is not None:
            while again := [(case, moves) for case in live if (moves := self._unsettled(case))]:
                self._search(again, self.close_limit, close=True)
        return [case.verdict(self.mistake) if isinstance(case, _Case) else case for case in cases]

    def _unsettled(self, case: _Case) -> list[str]:
        """The moves whose verdict a larger budget might change, not yet searched at it."""
        if case.failure is not None:
            return []
        best = case.best
        if not case.close:
            case.first_best = best
        unsure = [
            move
            for move, value in case.values.items()
            if move not in case.close
            and (
                abs(best - value - self.mistake) <= self.margin + SLACK
                or self._is_mistake(best, value) != self._is_mistake(case.first_best, value)
            )
        ]
        if not unsure and not case.close:
            return []
        rivals = [m for m, value in case.values.items() if m not in case.close and value >= best]
        return sorted({*unsure, *rivals})

    def _is_mistake(self, best: float, value: float) -> bool:
        return best - value >= self.mistake - SLACK

    def _search(
        self, work: Sequence[tuple[_Case, Sequence[str]]], limit: Limit, *, close: bool
    ) -> None:
        """Search the children named, and their roots unless they have been at this budget."""
        roots = [case for case, _ in work if not close or not case.close]
        children = [(case, move) for case, moves in work for move in moves]
        answers = self._analyse(
            [case.fen for case in roots], [case.children[move] for case, move in children], limit
        )
        for case in roots:
            case.take_root(next(answers))
        for case, move in children:
            case.take_child(move, next(answers), close=close)

    def _analyse(
        self, roots: list[str], children: list[str], limit: Limit
    ) -> Iterator[Analysis | EngineFailure]:
        if self.multipv == 1:
            return iter(self.analyser.analyse(roots + children, limit))
        return chain(
            self.analyser.analyse(roots, limit, self.multipv),
            self.analyser.analyse(children, limit),
        )


@dataclass
class _Case:
    """A root under judgement."""

    fen: str
    children: dict[str, str]
    root: Analysis | None = None
    answers: dict[str, Analysis] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    close: set[str] = field(default_factory=set)
    nodes: int = 0
    first_best: float = 0.0
    failure: EngineFailure | None = None

    def take_root(self, answer: Analysis | EngineFailure) -> None:
        if isinstance(answer, EngineFailure):
            self.failure = self.failure or answer
        else:
            self.root = answer
            self.nodes += answer.nodes

    def take_child(self, move: str, answer: Analysis | EngineFailure, *, close: bool) -> None:
        if close:
            self.close.add(move)
        if isinstance(answer, EngineFailure):
            detail = f"after {move}: {answer.detail}"
            self.failure = self.failure or EngineFailure(self.fen, answer.reason, detail)
            return
        self.nodes += answer.nodes
        self.answers[move] = answer
        self.values[move] = 1.0 - answer.expected

    @property
    def best(self) -> float:
        """By the searches at the larger budget alone, once there are any."""
        assert self.root is not None
        compared = self.close or self.values
        return max([self.root.expected, *(self.values[move] for move in compared)])

    def verdict(self, mistake: float) -> RootVerdict | EngineFailure:
        if self.failure is not None:
            return self.failure
        assert self.root is not None
        best, line = self.root.expected, self.root.best.moves
        for uci, value in sorted(self.values.items()):
            if value > best:
                best, line = value, (uci, *self.answers[uci].best.moves)
        return RootVerdict(
            fen=self.fen,
            best=best,
            best_move=line[0] if line else "",
            best_line=line,
            values=dict(self.values),
            nodes=self.nodes,
            mistake=mistake,
            close=frozenset(self.close),
            gap=line_gap(self.root),
        )


def _open_case(fen: str, moves: Iterable[str]) -> _Case | EngineFailure:
    outcome = examine(fen)
    if isinstance(outcome, EngineFailure):
        return outcome
    board = outcome.board if isinstance(outcome, Ready) else chess.Board(fen)
    children: dict[str, str] = {}
    for uci in moves:
        try:
            move = board.parse_uci(uci)
        except ValueError as error:
            return EngineFailure(fen, "illegal", f"move {uci!r}: {error}")
        board.push(move)
        children[uci] = board.fen(en_passant="legal")
        board.pop()
    return _Case(fen, children)


def line_gap(analysis: Analysis) -> float | None:
    """Expected score of the best line minus the second's; None where there is no second.

    0 where the second looks better: a search that ends within an iteration has gone deeper on
    the first than on the second.
    """
    if len(analysis.lines) < 2:
        return None
    best, second = (line.score.expected for line in analysis.lines[:2])
    return max(0.0, best - second)


def tactical_gap(analyser: Analyser, fens: Sequence[str], limit: Limit) -> list[float | None]:
    """How much the best move is worth above the second, for each position.

    None where there is one legal move or none, or the engine failed. Source: METHOD section 1,
    "Tactical positions without a puzzle file" (0.20 and more).
    """
    answers = analyser.analyse(fens, limit, multipv=2)
    return [None if isinstance(x, EngineFailure) else line_gap(x) for x in answers]
