"""The embedded teacher: an explanation from engine facts and rules, no language model needed.

Why the best move is good comes from the classical evaluation's terms before and after it and from
what the rules show on the board; what is wrong with the moves people would try comes from their
expected scores and refutations. Source: METHOD section 1, seeding, teacher `hce`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.language.engine_facts import EngineFacts, Node, TermTable, term_change, term_lead
from queen.language.explanation import Candidate, Explanation, Sentence
from queen.language.ground import Ground, Line
from queen.language.observe import Observation, gain, losses, observations, side_name
from queen.language.vocabulary import TERMS, Claim
from queen.language.voice import Voice, draw

# Which sentences stay when there are too many, the higher first: the first thing to say for the
# best move, each rejected move once, the reason in the evaluation, then the rest.
_PRAISE = (1000.0, 830.0, 300.0)
_BLAME = ((950.0, 940.0), (850.0, 820.0), (860.0, 690.0), (680.0, 670.0))
_REASON, _ASIDE = 900.0, 200.0
_UNKNOWN = Node(0.5, "", (), {})


@dataclass(frozen=True)
class TeacherInput:
    """What the teacher is told.

    Attributes:
        position: the root.
        facts: at `()` the root's verdict with the value of each human move; at `(move,)` the
            engine's line against a human move; terms for the lines `lines_to_evaluate` names.
        human: moves people would try, the likeliest first.
    """

    position: Position
    facts: EngineFacts
    human: tuple[str, ...] = ()


@dataclass(frozen=True)
class Style:
    """How much the teacher says.

    Attributes:
        plies: longest line.
        candidates: most moves weighed, the best among them.
        sentences: most sentences.
        term: smallest change of a term, in pawns, worth a sentence.
        jitter: how far chance may reorder observations, in weight.
        reason: how often a change in a term comes before a further look at the board.
    """

    plies: int = 5
    candidates: int = 4
    sentences: int = 6
    term: float = 0.05
    jitter: float = 16.0
    reason: float = 0.6


def write(given: TeacherInput, seed: int, index: int, style: Style | None = None) -> Explanation:
    """The explanation of a position whose root node knows at least its best move and line.

    Args:
        given: position and facts.
        seed, index: of the run and of this explanation; they alone choose among wordings.
        style: how much to say.

    Raises:
        QueenError: if the root's best move is not known.
    """
    writer = _Writer(given, Voice(seed, index), style or Style())
    candidates = writer.candidates()
    return Explanation(
        given.position.fen,
        writer.best,
        writer.line,
        candidates,
        writer.prose(candidates),
    )


def lines_to_evaluate(given: TeacherInput, style: Style | None = None) -> tuple[Line, ...]:
    """The lines from the root after which the classical terms are needed.

    The engine prints no table in check: then it is the first position of the move's line that is
    not; a line without such a position is left out.
    """
    writer = _Writer(given, Voice(0, 0), style or Style())
    lines = [writer.calm((), ()), writer.calm((writer.best,), writer.line[1:])]
    for move in writer.rejected():
        lines.append(writer.calm((move,), writer.refutation(move)))
    return tuple(line for line in lines if line is not None)


class _Writer:
    def __init__(self, given: TeacherInput, voice: Voice, style: Style) -> None:
        self.facts, self.voice, self.style = given.facts, voice, style
        self.human = given.human
        self.ground = Ground(given.position)
        self.root = given.facts.nodes.get((), _UNKNOWN)
        if not self.root.best_move:
            raise QueenError(
                "the best move is not known",
                where=given.position.fen,
                remedy="judge the position first; one where the game is over has no explanation",
            )
        self.best = self.root.best_move
        self.line: Line = (self.root.line or (self.best,))[: style.plies]
        self.side = self.ground.root.turn

    def candidates(self) -> tuple[Candidate, ...]:
        best = Candidate(self.best, self.root.value(self.best), self.line[1:])
        return (best, *(self._candidate(move) for move in self.rejected()))

    def rejected(self) -> list[str]:
        """The human moves that are weighed, the better first."""
        known = [m for m in dict.fromkeys(self.human) if m in self.root.values and m != self.best]
        kept = known[: self.style.candidates - 1]
        return sorted(kept, key=lambda move: (-self.root.values[move], move))

    def refutation(self, move: str) -> Line:
        node = self.facts.nodes.get((move,))
        return node.line[: self.style.plies - 1] if node else ()

    def calm(self, line: Line, further: Line) -> Line | None:
        """The line, drawn out along `further` until the side to move is not in check."""
        for ply in range(len(further) + 1):
            board = self.ground.after(line + further[:ply])
            if board is not None and not board.is_check():
                return line + further[:ply]
        return None

    def prose(self, candidates: Sequence[Candidate]) -> tuple[Sentence, ...]:
        """Reasons for the best move, then against the others, most telling kept."""
        told = self._praise()
        for rank, candidate in enumerate(candidates[1:]):
            told += self._blame(candidate.move, rank)
        chosen = sorted(told, key=lambda pair: -pair[0])[: self.style.sentences]
        spoken = [claim for weight, claim in told if (weight, claim) in chosen]
        return tuple(self.voice.say(claim, self.ground) for claim in spoken)

    def _candidate(self, move: str) -> Candidate:
        return Candidate(move, self.root.values[move], self.refutation(move))

    def _praise(self) -> list[Observation]:
        """Up to three board facts after the best move, and its largest gain in a term."""
        seen = [c for _, c in self._varied(observations(self.ground, (self.best,)), 3)]
        told = list(zip(_PRAISE, seen, strict=False))
        weight = _REASON if self._chance("reason") < self.style.reason else _ASIDE
        reasons = [(weight, c) for c in self._reason((self.best,), self.line[1:], 1)]
        return told[:1] + reasons + told[1:]

    def _blame(self, move: str, rank: int) -> list[Observation]:
        """What a rejected move costs, and what the board shows against it."""
        first, second = _BLAME[min(rank, len(_BLAME) - 1)]
        if self._chance(move, "order") < 0.5:
            first, second = second, first
        told = [(first, self._cost(move))]
        told += [(second, claim) for claim in self._refuted(move)[:1]]
        if self._chance(move, "reason") < self.style.reason:
            worse = self._reason((move,), self.refutation(move), -1)
            told += [(_ASIDE - rank, claim) for claim in worse]
        return told

    def _cost(self, move: str) -> Claim:
        """What it loses against the best move; if nothing is left after rounding, its score."""
        cost = self.root.score(self.best) - self.root.score(move)
        if cost >= 0.005:
            return Claim("loss", (), (move, self.best, f"{cost:.2f}"))
        if not self.root.is_mistake(move) and self._chance(move, "sound") < 0.5:
            return Claim("sound", (), (move,))
        return Claim("score", (), (move, side_name(self.side), f"{self.root.score(move):.2f}"))

    def _refuted(self, move: str) -> list[Claim]:
        """What the board shows against a move, the most telling first."""
        answer = self.refutation(move)
        seen: list[Observation] = list(losses(self.ground, (move,), self.side))
        if answer:
            won = gain(self.ground, (move,), answer, not self.side)
            seen += [(80.0, won)] if won else []
            seen += observations(self.ground, (move, answer[0]))
            seen += [(36.0, Claim("reply", (move,), (" ".join(answer[:2]),)))]
        else:
            seen += [(w, c) for w, c in observations(self.ground, (move,)) if w < 45]
        return [claim for _, claim in self._varied(seen, 2)]

    def _reason(self, line: Line, further: Line, sign: int) -> Iterator[Claim]:
        """The largest change of a term over a line: for its mover (sign 1) or against (-1)."""
        end = self.calm(line, further)
        if end is None or end not in self.facts.terms:
            return
        changes = list(self._changes(end, sign)) if () in self.facts.terms else []
        if changes:
            yield max(changes, key=lambda pair: pair[0])[1]
        else:
            yield from _leads(end, self.facts.terms[end], self.style.term)

    def _changes(self, line: Line, sign: int) -> Iterator[Observation]:
        for term in TERMS.values():
            for side in ("White", "Black"):
                change = term_change(self.facts, (), line, term, side)
                good = sign * change * (1 if (side == "White") == self.side else -1)
                if good >= self.style.term:
                    kind = "term_up" if change > 0 else "term_down"
                    args = (" ".join(line), term, side, f"{abs(change):.2f}")
                    yield good * (0.5 + self._chance(term, side)), Claim(kind, (), args)

    def _varied(self, seen: list[Observation], count: int) -> list[Observation]:
        """The weightiest after a little chance, each kind once."""
        jittered = sorted(
            ((w + self.style.jitter * self._chance(repr(c)), c) for w, c in seen),
            key=lambda pair: (-pair[0], repr(pair[1])),
        )
        kinds = {claim.kind: (weight, claim) for weight, claim in reversed(jittered)}
        return sorted(kinds.values(), key=lambda pair: (-pair[0], repr(pair[1])))[:count]

    def _chance(self, *what: str) -> float:
        return draw(*self.voice.key, *what)


def _leads(line: Line, table: TermTable, least: float) -> Iterator[Claim]:
    """The largest lead of a side in a term after a line."""
    leads = [(term_lead(table, term), term) for term in TERMS.values()]
    lead, term = max(leads, key=lambda pair: (abs(pair[0]), pair[1]))
    if abs(lead) >= least:
        yield Claim("edge", line, (term, side_name(lead > 0), f"{abs(lead):.2f}"))
