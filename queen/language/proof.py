"""Proof that a parent's explanation says nothing of its own.

Works from the finished texts and the inputs alone and shares no code with the consolidator: every
sentence is read again, led back to the child's sentence or the engine fact it names, and checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from queen.language import grammar
from queen.language.claims import board_holds, checkable
from queen.language.engine_facts import EngineFacts, engine_holds
from queen.language.explanation import Candidate, Explanation, Sentence
from queen.language.ground import Ground, Line
from queen.language.provenance import CHILD_ORIGINS, Child, Consolidated, Inputs, Origin, Source
from queen.language.vocabulary import ENGINE_KINDS, Claim

EVALUATIONS = ("score", "loss")
FINISHED = ("mates", "stalemate")


@dataclass(frozen=True)
class Violation:
    """One statement that cannot be led back.

    Attributes:
        part: `best`, `line`, `candidate <move>` or `sentence <number>`, from 0.
        reason: a fixed word for counting.
        detail: the statement.
    """

    part: str
    reason: str
    detail: str


def check(consolidated: Consolidated, inputs: Inputs) -> list[Violation]:
    """Everything in a consolidated explanation that its inputs do not bear out; empty if sound."""
    return list(_Proof(consolidated, inputs).violations())


def check_taught(consolidated: Consolidated, inputs: Inputs, facts: EngineFacts) -> list[Violation]:
    """What in a teacher's explanation the engine's facts and the board do not bear out."""
    return list(_Taught(consolidated, inputs, facts).violations())


class _Taught:
    def __init__(self, consolidated: Consolidated, inputs: Inputs, facts: EngineFacts) -> None:
        self.explanation, self.node, self.facts = consolidated.explanation, inputs.node, facts
        self.ground = Ground(inputs.position)

    def violations(self) -> Iterator[Violation]:
        if self.explanation.best != self.node.best_move:
            yield Violation("best", "not_the_engine_s", self.explanation.best)
        if self.ground.after(self.explanation.line) is None:
            yield Violation("line", "illegal", " ".join(self.explanation.line))
        for candidate in self.explanation.candidates:
            move = candidate.move
            if not self.node.knows(move) or candidate.score != self.node.score(move):
                yield Violation(f"candidate {move}", "score_not_engine", f"{candidate.score:.2f}")
        for number, sentence in enumerate(self.explanation.prose):
            claims = grammar.read(sentence.text, self.ground)
            if len(claims) != 1 or claims != sentence.claims:
                yield Violation(f"sentence {number}", "no_claim", sentence.text)
            elif not _holds(claims[0], self.ground, self.facts):
                yield Violation(f"sentence {number}", "false", sentence.text)


def _holds(claim: Claim, ground: Ground, facts: EngineFacts) -> bool:
    if checkable(claim):
        return board_holds(claim, ground)
    return engine_holds(claim, facts, ground) is True


class _Proof:
    def __init__(self, consolidated: Consolidated, inputs: Inputs) -> None:
        self.consolidated, self.inputs = consolidated, inputs
        self.explanation = consolidated.explanation
        self.ground = Ground(inputs.position)
        self.facts = inputs.facts()
        self.children = {child.move: child for child in inputs.children}

    def violations(self) -> Iterator[Violation]:
        yield from self._best()
        if len(self.consolidated.lines) != len(self.explanation.candidates):
            yield Violation("line", "unsourced", "lines and sources differ in number")
        for candidate, source in zip(
            self.explanation.candidates, self.consolidated.lines, strict=False
        ):
            yield from self._candidate(candidate, source)
        if len(self.consolidated.sentences) != len(self.explanation.prose):
            yield Violation("sentence", "unsourced", "sentences and sources differ in number")
        for number, (sentence, source) in enumerate(
            zip(self.explanation.prose, self.consolidated.sentences, strict=False)
        ):
            reason = self._sentence_fault(sentence, source)
            if reason:
                yield Violation(f"sentence {number}", reason, sentence.text)

    def _best(self) -> Iterator[Violation]:
        best, node = self.explanation.best, self.inputs.node
        values = [node.value(move) for move in self.children if node.knows(move)]
        if best not in self.children or not node.knows(best) or node.value(best) < max(values):
            yield Violation("best", "not_highest", best)
        candidate = self.explanation.candidate(best)
        if candidate is None or self.explanation.line != (best, *candidate.line):
            yield Violation("line", "not_of_best", " ".join(self.explanation.line))

    def _candidate(self, candidate: Candidate, source: Source) -> Iterator[Violation]:
        part, node = f"candidate {candidate.move}", self.inputs.node
        child = self.children.get(candidate.move)
        if child is None or source.move != candidate.move:
            yield Violation(part, "no_such_child", candidate.move)
            return
        if not node.knows(candidate.move) or candidate.score != node.score(candidate.move):
            yield Violation(part, "score_not_engine", f"{candidate.score:.2f}")
        allowed = self._lines(child, source)
        if not any(candidate.line == line[: len(candidate.line)] for line in allowed):
            yield Violation(part, "line_not_sourced", " ".join(candidate.line))

    def _lines(self, child: Child, source: Source) -> list[Line]:
        """The lines a source may stand for."""
        if source.origin is Origin.BELOW and child.below is not None:
            return [child.below.explanation.line]
        if source.origin is Origin.CHILD and child.explanation is not None:
            return [] if child.errs is not False else [child.explanation.line]
        if source.origin is Origin.ENGINE:
            root = self.inputs.node.line
            from_root = [root[1:]] if root[:1] == (child.move,) else []
            return [*from_root, *([child.node.line] if child.node else []), ()]
        return []

    def _sentence_fault(self, sentence: Sentence, source: Source) -> str:
        """Why a sentence cannot be led back; empty if it can."""
        claims = grammar.read(sentence.text, self.ground)
        if len(claims) != 1 or claims != sentence.claims:
            return "no_claim"
        child = self.children.get(source.move)
        if child is None:
            return "no_such_child"
        claim = claims[0]
        fault = self._origin_fault(claim, child, source)
        return fault or ("" if _holds(claim, self.ground, self.facts) else "false")

    def _origin_fault(self, claim: Claim, child: Child, source: Source) -> str:
        if source.model != _by_model(child, source):
            return "wrong_author"
        if source.origin is Origin.ENGINE:
            return "" if claim.kind in ENGINE_KINDS else "not_engine_fact"
        if source.origin is Origin.RULES:
            board = self.ground.after((child.move,))
            over = board is not None and board.is_game_over()
            return "" if over and claim.kind in FINISHED else "not_of_a_finished_game"
        return (
            ""
            if claim in self._said(child, source) or self._revalued(claim, child, source)
            else ("not_said_by_child")
        )

    def _said(self, child: Child, source: Source) -> list[Claim]:
        """What the named place of a child's explanation claims, said of the root."""
        explanation = _spoken(child, source)
        if explanation is None:
            return []
        if source.index < 0:
            verdicts = ("sound", "mistake")
            return [Claim(kind, (child.move,), (explanation.best,)) for kind in verdicts]
        if source.index >= len(explanation.prose):
            return []
        text = explanation.prose[source.index].text
        return [c.lifted(child.move) for c in grammar.read(text, self.ground.moved((child.move,)))]

    def _revalued(self, claim: Claim, child: Child, source: Source) -> bool:
        """Whether the child said the same with another number, which the engine's replaced."""
        return claim.kind in EVALUATIONS and any(
            (said.kind, said.at, said.args[:-1]) == (claim.kind, claim.at, claim.args[:-1])
            for said in self._said(child, source)
        )


def _spoken(child: Child, source: Source) -> Explanation | None:
    if source.origin is Origin.BELOW:
        return child.below.explanation if child.below is not None else None
    return child.explanation


def _by_model(child: Child, source: Source) -> bool:
    """Whether a model wrote what a source names."""
    if source.origin not in CHILD_ORIGINS:
        return False
    if source.origin is Origin.CHILD:
        return True
    below = child.below.sentences if child.below is not None else ()
    return 0 <= source.index < len(below) and below[source.index].model
