"""The rule-based consolidator: children's explanations folded into their parent's.

It adds nothing. The best move, scores and what rejected moves lose are the engine's; every other
statement is a child's, said one move earlier ("After <move>, ..."), and enters only if it is true.
Source: METHOD section 1, step 4 of a round, and "what ours adds".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from queen.errors import QueenError
from queen.language import grammar
from queen.language.claims import board_holds, checkable
from queen.language.engine_facts import EngineFacts, engine_holds
from queen.language.explanation import Candidate, Explanation, Sentence
from queen.language.ground import Ground, Line
from queen.language.observe import side_name
from queen.language.provenance import Child, Consolidated, Inputs, Origin, Source
from queen.language.vocabulary import IMPOSSIBLE, KINDS, Claim, Slot
from queen.language.voice import Voice


@dataclass(frozen=True)
class Rules:
    """How much of the children is kept.

    Attributes:
        plies: longest line, the candidate's move included.
        depth: plies from the root at which a statement may still be said, its own moves counted.
        sentences: most sentences.
        engine_least: sentences only the engine can check that may stand whatever else there is;
            beyond them, half as many as the board can check (ours, so that most can be).
    """

    plies: int = 5
    depth: int = 6
    sentences: int = 6
    engine_least: int = 2


@dataclass(frozen=True)
class Statement:
    """Something that may be said of the root, with its rank among the others."""

    rank: float
    claim: Claim
    source: Source
    form: grammar.Form | None = None


@dataclass(frozen=True)
class Material:
    """What a parent may say, whoever words it.

    Attributes:
        candidates: the best first, with the engine's values; each line's source in `lines`.
        said: the statements that hold, the best move's first, as sentences.
        sources: where each of them comes from.
        cut: how many of the children's statements do not hold or say nothing, by reason.
    """

    candidates: tuple[Candidate, ...]
    lines: tuple[Source, ...]
    said: tuple[Sentence, ...]
    sources: tuple[Source, ...]
    cut: Mapping[str, int]


# How telling a kind of claim is (ours); what is not named counts as 20.
_TELLING = {
    "mates": 100, "checkmate": 95, "fork": 85, "wins": 80, "stalemate": 75, "pin": 72,
    "takes": 64, "promotes": 64, "forced": 62, "hanging": 60, "check": 58, "outpost": 56,
    "passed": 54, "attacks": 45, "castles": 45, "on_open_file": 44, "term_up": 42,
    "term_down": 42, "reply": 40, "loose": 40, "defends": 32, "develops": 32, "isolated": 30,
    "doubled": 30, "controls": 26, "ahead": 26, "loss": 25, "score": 22, "level": 10, "piece": 5,
}  # fmt: skip
_FIRST, _THEN = 1000.0, (830.0, 800.0)
_AGAINST = ((950.0, 940.0), (860.0, 850.0), (840.0, 690.0))
_LATER, _STRUCTURE = 300.0, 250.0


def consolidate(inputs: Inputs, seed: int, index: int, rules: Rules | None = None) -> Consolidated:
    """Fold the children of a root.

    Args:
        inputs: position, verdict, children; candidates the engine could not value are left out.
        seed, index: of the run and of this root; they choose wordings of what the engine says.
        rules: how much to keep.

    Raises:
        QueenError: if no candidate has a value.
    """
    folder = _Folder(inputs, Voice(seed, index), rules or Rules())
    candidates, lines = folder.candidates()
    sentences, sources = folder.prose()
    explanation = Explanation(
        inputs.position.fen,
        candidates[0].move,
        (candidates[0].move, *candidates[0].line),
        candidates,
        sentences,
    )
    return Consolidated(explanation, lines, sources, dict(+folder.cut))


def material(inputs: Inputs, seed: int, index: int, rules: Rules | None = None) -> Material:
    """All that may be said of a root. Arguments and errors as of `consolidate`."""
    folder = _Folder(inputs, Voice(seed, index), rules or Rules())
    candidates, lines = folder.candidates()
    told = folder.told()
    said = tuple(folder.said(statement) for statement in told)
    sources = tuple(statement.source for statement in told)
    return Material(candidates, lines, said, sources, dict(+folder.cut))


class _Folder:
    def __init__(self, inputs: Inputs, voice: Voice, rules: Rules) -> None:
        self.node, self.voice, self.rules = inputs.node, voice, rules
        self.ground = Ground(inputs.position)
        self.facts: EngineFacts = inputs.facts()
        valued = [child for child in inputs.children if self.node.knows(child.move)]
        if not valued:
            raise QueenError(
                "no candidate has a value",
                where=inputs.position.fen,
                remedy="judge the candidates before their children are folded",
            )
        self.children = sorted(valued, key=lambda child: -self.node.value(child.move))
        self.cut: Counter[str] = Counter()

    def candidates(self) -> tuple[tuple[Candidate, ...], tuple[Source, ...]]:
        """The candidates by the engine's value, and where their lines come from."""
        pairs = [self._continuation(child) for child in self.children]
        candidates = tuple(
            Candidate(child.move, self.node.value(child.move), line[: self.rules.plies - 1])
            for child, (line, _) in zip(self.children, pairs, strict=True)
        )
        return candidates, tuple(source for _, source in pairs)

    def prose(self) -> tuple[tuple[Sentence, ...], tuple[Source, ...]]:
        """The statements kept, the best move's first, each with its source."""
        told = self.told()
        chosen = self._chosen(told)
        self.cut["not_selected"] += sum(1 for s in told if s not in chosen and s.source.index >= 0)
        kept = [s for s in told if s in chosen]
        return tuple(self.said(s) for s in kept), tuple(s.source for s in kept)

    def told(self) -> list[Statement]:
        """All that may be said, the best move's first."""
        return [s for rank, child in enumerate(self.children) for s in self._about(child, rank)]

    def said(self, statement: Statement) -> Sentence:
        if statement.form is None:
            return self.voice.say(statement.claim, self.ground)
        return self.voice.say_again(statement.claim, self.ground, statement.form)

    def _continuation(self, child: Child) -> tuple[Line, Source]:
        """How play goes on after a candidate: by its child unless that errs, else the engine."""
        if child.below is not None:
            best = child.below.lines[0]
            return child.below.explanation.line, Source(Origin.BELOW, child.move, model=best.model)
        if child.explanation is not None and child.errs is False:
            return child.explanation.line, Source(Origin.CHILD, child.move, model=True)
        if child.node is not None and child.node.line:
            return child.node.line, Source(Origin.ENGINE, child.move)
        line = self.node.line[1:] if self.node.line[:1] == (child.move,) else ()
        return line, Source(Origin.ENGINE, child.move)

    def _about(self, child: Child, rank: int) -> list[Statement]:
        """What may be said about a candidate, ranked: its child's statements and engine facts."""
        said = sorted(self._lifted(child), key=lambda s: -s.rank)
        mine = [*self._finished(child), *said]
        if rank == 0:
            places = (_FIRST, *_THEN)
            return [*_placed(mine, places), *self._structure(child, _STRUCTURE)]
        first, second = _AGAINST[min(rank, len(_AGAINST)) - 1]
        return [
            *self._cost(child, first),
            *_placed(mine, (second,)),
            *([] if mine else self._answer(child, second)),
            *self._structure(child, _STRUCTURE - rank),
        ]

    def _finished(self, child: Child) -> Iterator[Statement]:
        board = self.ground.after((child.move,))
        assert board is not None
        source = Source(Origin.RULES, child.move)
        if board.is_checkmate():
            yield Statement(100, Claim("mates", (), (child.move,)), source)
        elif board.is_stalemate():
            claim = Claim("stalemate", (child.move,), (side_name(board.turn),))
            yield Statement(75, claim, source)

    def _cost(self, child: Child, rank: float) -> Iterator[Statement]:
        best = self.children[0].move
        cost = self.node.score(best) - self.node.score(child.move)
        if cost >= 0.005:
            claim = Claim("loss", (), (child.move, best, f"{cost:.2f}"))
            yield Statement(rank, claim, Source(Origin.ENGINE, child.move))

    def _answer(self, child: Child, rank: float) -> Iterator[Statement]:
        line = child.node.line[:2] if child.node is not None else ()
        if line:
            claim = Claim("reply", (child.move,), (" ".join(line),))
            yield Statement(rank, claim, Source(Origin.ENGINE, child.move))

    def _structure(self, child: Child, rank: float) -> Iterator[Statement]:
        """The child's own first move and what the engine holds of it."""
        if child.explanation is not None and child.errs is not None:
            kind = "mistake" if child.errs else "sound"
            claim = Claim(kind, (child.move,), (child.explanation.best,))
            yield Statement(rank, claim, Source(Origin.CHILD, child.move, model=True))

    def _lifted(self, child: Child) -> Iterator[Statement]:
        """The true statements of a child's prose, said of the root; the rest is counted."""
        seen: set[Claim] = set()
        for sentence, source in _sentences(child):
            reason, claim = self._lift(child, sentence)
            if claim is not None and claim in seen:
                reason, claim = "duplicate", None
            if claim is None:
                self.cut[reason] += 1
                continue
            seen.add(claim)
            found = grammar.recognise(sentence.text)
            assert found is not None
            yield Statement(self._telling(claim, child), claim, source, found[0])

    def _lift(self, child: Child, sentence: Sentence) -> tuple[str, Claim | None]:
        """A child's sentence as a claim about the root, or why it may not be one."""
        if len(sentence.claims) != 1:
            return "no_claim", None
        claim = self._overwritten(sentence.claims[0].lifted(child.move))
        if claim is None:
            return "unverifiable", None
        if claim.kind == IMPOSSIBLE:
            return "impossible", None
        if _reach(claim) > self.rules.depth:
            return "too_deep", None
        if checkable(claim):
            return ("", claim) if board_holds(claim, self.ground) else ("false", None)
        true = engine_holds(claim, self.facts, self.ground)
        return ("", claim) if true else ("unverifiable" if true is None else "false", None)

    def _overwritten(self, claim: Claim) -> Claim | None:
        """An evaluation gets the engine's number; None if the engine has none."""
        if claim.kind not in ("score", "loss"):
            return claim
        node = self.facts.nodes.get(claim.at)
        move, other, _ = claim.args
        moves = (move, other) if claim.kind == "loss" else (move,)
        if node is None or not all(node.knows(m) for m in moves):
            return None
        value = node.score(move)
        number = value if claim.kind == "score" else node.score(other) - value
        return replace(claim, args=(move, other, f"{number:.2f}"))

    def _telling(self, claim: Claim, child: Child) -> float:
        """How much a statement counts: by kind, nearness and whether its moves will be played."""
        line = (child.move, *self._continuation(child)[0])
        played = claim.at == line[: len(claim.at)]
        return _TELLING.get(claim.kind, 20) - 4 * len(claim.at) + 12 * played

    def _chosen(self, told: list[Statement]) -> list[Statement]:
        """The highest ranked, engine sentences kept in proportion, a model's word among them."""
        ranked = _fresh_first(sorted(told, key=lambda s: -s.rank))
        board = [s for s in ranked if checkable(s.claim)]
        engine = [s for s in ranked if not checkable(s.claim)]
        room = self.rules.sentences
        heard = engine[: max(self.rules.engine_least, min(len(board) // 2, room // 3))]
        kept = heard + board[: room - len(heard)]
        chosen = [s for s in ranked if s in kept][:room]
        spoken = [s for s in ranked if s.source.model]
        if spoken and not any(s.source.model for s in chosen):
            return [spoken[0], *chosen[: room - 1]]
        return chosen


def _sentences(child: Child) -> Iterator[tuple[Sentence, Source]]:
    """A child's sentences: those folded for it first, then the model's own."""
    if child.below is not None:
        sources = child.below.sentences
        for index, sentence in enumerate(child.below.explanation.prose):
            yield sentence, Source(Origin.BELOW, child.move, index, sources[index].model)
    if child.explanation is not None:
        for index, sentence in enumerate(child.explanation.prose):
            yield sentence, Source(Origin.CHILD, child.move, index, True)


def _reach(claim: Claim) -> int:
    """How many plies from the root a claim's last move is."""
    slots = zip(KINDS[claim.kind], claim.args, strict=True)
    spoken = [len(arg.split()) for slot, arg in slots if slot in (Slot.MOVE, Slot.LINE)]
    return len(claim.at) + max(spoken, default=0)


def _fresh_first(ranked: list[Statement]) -> list[Statement]:
    """What was said already, after another line, behind everything else."""
    told = set[tuple[str, tuple[str, ...]]]()
    fresh: list[Statement] = []
    again: list[Statement] = []
    for statement in ranked:
        core = (statement.claim.kind, statement.claim.args)
        (again if core in told else fresh).append(statement)
        told.add(core)
    return fresh + again


def _placed(statements: list[Statement], places: tuple[float, ...]) -> list[Statement]:
    """Statements in order with the ranks given; those beyond follow far behind."""
    return [
        replace(s, rank=places[i] if i < len(places) else _LATER - i)
        for i, s in enumerate(statements)
    ]
