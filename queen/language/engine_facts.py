"""What an engine knows about a position and the lines from it, and the claims that rest on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from queen.language.ground import Ground, Line
from queen.language.vocabulary import ENGINE_KINDS, TERMS, Claim

if TYPE_CHECKING:
    from queen.engines.classical import ClassicalTerms
    from queen.engines.judge import RootVerdict

SLACK = 1e-9

TermTable = Mapping[str, tuple[float, float]]
"""Classical terms in pawns, by the engine's name of the term: White's share, Black's share."""


@dataclass(frozen=True)
class Node:
    """One position as the engine judges it, scores from its side to move.

    Attributes:
        best: expected score of the position, as METHOD defines it for mistakes.
        best_move: UCI; "" if unknown or the game is over.
        line: the engine's line, `best_move` first; empty if unknown or the game is over.
        values: expected score of each move that was judged; the best move need not be there.
        mistake: how far below `best` a move's value makes it a mistake.
    """

    best: float
    best_move: str
    line: Line
    values: Mapping[str, float]
    mistake: float = 0.10

    @classmethod
    def from_verdict(cls, verdict: RootVerdict) -> Node:
        """From the judge's verdict."""
        line, values = tuple(verdict.best_line), dict(verdict.values)
        return cls(verdict.best, verdict.best_move, line, values, verdict.mistake)

    def value(self, move: str) -> float:
        """A move's expected score; the best move's is the position's. KeyError if not judged."""
        return self.best if move == self.best_move else self.values[move]

    def knows(self, move: str) -> bool:
        """Whether `value` is known."""
        return move == self.best_move or move in self.values

    def is_mistake(self, move: str) -> bool:
        """Whether a judged move is a mistake (METHOD section 1). KeyError if not judged."""
        return self.best - self.value(move) >= self.mistake - SLACK

    def score(self, move: str) -> float:
        """A move's expected score as it is shown, 2 decimals. KeyError if not judged."""
        return round(self.value(move), 2)


@dataclass(frozen=True)
class EngineFacts:
    """All that is known from engines, by the line that leads there from the root.

    Attributes:
        nodes: searched positions; `()` is the root.
        terms: classical terms of positions, where the engine prints them.
    """

    nodes: Mapping[Line, Node] = field(default_factory=dict)
    terms: Mapping[Line, TermTable] = field(default_factory=dict)

    def lifted(self, move: str) -> EngineFacts:
        """The same facts seen one move earlier."""
        return EngineFacts(
            {(move, *line): node for line, node in self.nodes.items()},
            {(move, *line): table for line, table in self.terms.items()},
        )

    def merged(self, others: Iterable[EngineFacts]) -> EngineFacts:
        """These facts, and the others where these say nothing."""
        nodes, terms = dict(self.nodes), dict(self.terms)
        for other in others:
            nodes = {**other.nodes, **nodes}
            terms = {**other.terms, **terms}
        return EngineFacts(nodes, terms)


def engine_holds(claim: Claim, facts: EngineFacts, ground: Ground) -> bool | None:
    """Whether an engine claim is true; None where the facts do not reach.

    Raises KeyError for a claim about the board.
    """
    decide = _DECIDERS[claim.kind]
    if ground.after(claim.at) is None:
        return False
    try:
        return decide(facts, claim, ground)
    except KeyError:
        return None


def term_table(terms: ClassicalTerms | None) -> TermTable | None:
    """Each side's share of the terms; None in check and where the engine counts material only."""
    if terms is None or not terms.complete:
        return None
    shares = {name: (terms.side(name, True), terms.side(name, False)) for name in TERMS}
    return {name: (w, b) for name, (w, b) in shares.items() if w is not None and b is not None}


def term_change(facts: EngineFacts, at: Line, line: Line, term: str, side: str) -> float:
    """How a side's share of a term (in words) changes over a line. KeyError if unknown."""
    return _share(facts.terms[at + line], term, side) - _share(facts.terms[at], term, side)


def term_lead(table: TermTable, term: str) -> float:
    """White's share of a term (in words) minus Black's, in pawns."""
    return _share(table, term, "White") - _share(table, term, "Black")


def _share(table: TermTable, term: str, side: str) -> float:
    return table[_ENGINE_NAMES[term]][0 if side == "White" else 1]


def _score(facts: EngineFacts, claim: Claim, ground: Ground) -> bool:
    move, side, amount = claim.args
    board = ground.after(claim.at)
    mover = board is not None and board.turn == (side == "White")
    return mover and f"{facts.nodes[claim.at].score(move):.2f}" == amount


def _loss(facts: EngineFacts, claim: Claim, _: Ground) -> bool:
    move, than, amount = claim.args
    node = facts.nodes[claim.at]
    loss = node.score(than) - node.score(move)
    return loss > 0 and f"{loss:.2f}" == amount


def _reply(facts: EngineFacts, claim: Claim, _: Ground) -> bool:
    line = tuple(claim.args[0].split())
    return facts.nodes[claim.at].line[: len(line)] == line


def _sound(facts: EngineFacts, claim: Claim, _: Ground) -> bool:
    return not facts.nodes[claim.at].is_mistake(claim.args[0])


def _mistake(facts: EngineFacts, claim: Claim, _: Ground) -> bool:
    return facts.nodes[claim.at].is_mistake(claim.args[0])


def _term(sign: int) -> Callable[[EngineFacts, Claim, Ground], bool]:
    def decide(facts: EngineFacts, claim: Claim, ground: Ground) -> bool:
        line, term, side, amount = claim.args
        moves = tuple(line.split())
        change = sign * term_change(facts, claim.at, moves, term, side)
        return change > 0 and f"{change:.2f}" == amount

    return decide


def _edge(facts: EngineFacts, claim: Claim, _: Ground) -> bool:
    term, side, amount = claim.args
    lead = term_lead(facts.terms[claim.at], term) * (1 if side == "White" else -1)
    return lead > 0 and f"{lead:.2f}" == amount


_ENGINE_NAMES = {words: name for name, words in TERMS.items()}
_DECIDERS: dict[str, Callable[[EngineFacts, Claim, Ground], bool]] = {
    "score": _score,
    "loss": _loss,
    "reply": _reply,
    "sound": _sound,
    "mistake": _mistake,
    "term_up": _term(1),
    "term_down": _term(-1),
    "edge": _edge,
}
assert set(_DECIDERS) == set(ENGINE_KINDS)
