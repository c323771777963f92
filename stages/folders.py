"""Who explains a parent in the stage `consolidate`: the rules or a language model, which fold its
children; or, as a control, the hce teacher, who does not look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from queen.errors import QueenError
from queen.language.api.forms import Unusable
from queen.language.api.messages import Reply
from queen.language.api.settings import Endpoint
from queen.language.consolidate import Material, consolidate, material
from queen.language.consolidate_llm import folded, question
from queen.language.engine_facts import EngineFacts
from queen.language.explanation import Explanation
from queen.language.ground import Line
from queen.language.proof import Violation, check, check_taught
from queen.language.provenance import Consolidated, Inputs, Origin, Source
from queen.language.teacher_hce import Style, TeacherInput, write
from queen.search.tree import Tree
from stages import asking
from stages.base import Job
from stages.positions import pid_of
from stages.teaching import with_terms


@dataclass(frozen=True)
class Place:
    """An expanded node of a tree, and all that it may draw on.

    Attributes:
        number: of the tree among those of the shard.
    """

    number: int
    tree: Tree
    path: Line
    inputs: Inputs

    @property
    def name(self) -> tuple[int, Line]:
        """What tells it from the others of the shard."""
        return self.number, self.path

    @property
    def wording(self) -> int:
        """A number for the choice of words, of the position alone."""
        return int(pid_of(self.inputs.position.key)[:8], 16)


class Folder(Protocol):
    """Folds nodes of one depth; None where no candidate has a value."""

    def __call__(self, places: Sequence[Place]) -> list[Consolidated | None]: ...

    def facts(self, place: Place) -> EngineFacts:
        """The engine facts that its explanation of a node rests on."""

    def violations(self, place: Place, folded: Consolidated) -> list[Violation]:
        """What in its explanation of a node these do not bear out."""

    def finish(self, out: Path) -> None:
        """Write beside the shard what is to be told of its making."""


class _Proved:
    """What is folded from children must be traceable to them."""

    def facts(self, place: Place) -> EngineFacts:
        return place.inputs.facts()

    def violations(self, place: Place, folded: Consolidated) -> list[Violation]:
        return check(folded, place.inputs)


class RulesFolder(_Proved):
    """The rule-based consolidator."""

    def __init__(self, job: Job[Any]) -> None:
        self.seed, self.rules = job.seed, job.params.rules

    def __call__(self, places: Sequence[Place]) -> list[Consolidated | None]:
        return [self.fold(place) for place in places]

    def fold(self, place: Place) -> Consolidated | None:
        try:
            return consolidate(place.inputs, self.seed, place.wording, self.rules)
        except QueenError:
            return None

    def finish(self, out: Path) -> None:
        """Nothing is to be told."""


class LlmFolder(_Proved):
    """A language model; the rules where its answer cannot be used.

    Args:
        job: of the stage.
        llm: who is asked.
    """

    def __init__(self, job: Job[Any], llm: Endpoint) -> None:
        self.job, self.llm, self.rules = job, llm, RulesFolder(job)
        self.replies: list[Reply] = []
        self.counts: Counter[str] = Counter()

    def __call__(self, places: Sequence[Place]) -> list[Consolidated | None]:
        known = [self._known(place) for place in places]
        rules = self.rules.rules
        asked = {
            i: question(self._name(place), place.inputs, may, rules, closed=self.llm.closed)
            for i, (place, may) in enumerate(zip(places, known, strict=True))
            if may is not None and may.said
        }
        replies = dict(zip(asked, asking.ask(self.job, self.llm, [*asked.values()]), strict=True))
        self.replies += replies.values()
        result: list[Consolidated | None] = []
        for i, (place, may) in enumerate(zip(places, known, strict=True)):
            made: Consolidated | Unusable | None = None
            if i in asked and may is not None:
                made = folded(replies[i], asked[i], place.inputs, may, rules)
            result.append(self._made(place, made))
        return result

    def finish(self, out: Path) -> None:
        asking.write_told(out, self.replies, len(self.replies), self.counts)

    def _known(self, place: Place) -> Material | None:
        rules = self.rules
        try:
            return material(place.inputs, rules.seed, place.wording, rules.rules)
        except QueenError:
            return None

    def _made(self, place: Place, made: Consolidated | Unusable | None) -> Consolidated | None:
        """What the model made; else what the rules make, with the reason counted."""
        if isinstance(made, Consolidated):
            self.counts["folded"] += 1
            return made
        self.counts["by_rules"] += 1
        if made is not None:
            self.counts[f"unusable.{made.reason}"] += 1
        return self.rules.fold(place)

    def _name(self, place: Place) -> str:
        return f"root {place.tree.id} after {' '.join(place.path) or 'no move'}"


class LinesFolder:
    """Another folder's moves, values and lines, without prose.

    Args:
        fold: who chooses them.
    """

    def __init__(self, fold: Folder) -> None:
        self.fold = fold

    def __call__(self, places: Sequence[Place]) -> list[Consolidated | None]:
        return [told and _wordless(told) for told in self.fold(places)]

    def facts(self, place: Place) -> EngineFacts:
        return self.fold.facts(place)

    def violations(self, place: Place, folded: Consolidated) -> list[Violation]:
        return self.fold.violations(place, folded)

    def finish(self, out: Path) -> None:
        """The other tells of its making itself."""


def _wordless(told: Consolidated) -> Consolidated:
    return replace(told, explanation=replace(told.explanation, prose=()), sentences=())


class TeacherFolder:
    """The hce teacher on the round's own nodes, told what the round's own searches found: a control
    that shows what folding the children adds to fresh engine values.

    Args:
        job: of the stage; the rules' sizes hold for the teacher too.
    """

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        rules = job.params.rules
        self.style = Style(rules.plies, job.params.teacher_candidates, rules.sentences)
        self.known: dict[tuple[int, Line], EngineFacts] = {}

    def __call__(self, places: Sequence[Place]) -> list[Consolidated | None]:
        given = {place.name: self._given(place) for place in places}
        with self.job.searches() as cache:
            told = with_terms(self.job, cache, given, self.style)
        self.known.update((name, one.facts) for name, one in told.items())
        return [
            _taught(write(told[place.name], self.job.seed, place.wording, self.style))
            for place in places
        ]

    def facts(self, place: Place) -> EngineFacts:
        return self.known[place.name]

    def violations(self, place: Place, folded: Consolidated) -> list[Violation]:
        return check_taught(folded, place.inputs, self.facts(place))

    def finish(self, out: Path) -> None:
        """Nothing is to be told."""

    def _given(self, place: Place) -> TeacherInput:
        """A node's verdict and its candidates', without the terms that children's claims needed."""
        inputs = place.inputs
        moves = tuple(child.move for child in inputs.children)
        return TeacherInput(inputs.position, EngineFacts(inputs.facts().nodes), moves)


def _taught(told: Explanation) -> Consolidated:
    lines = tuple(Source(Origin.TEACHER, candidate.move) for candidate in told.candidates)
    sentences = tuple(Source(Origin.TEACHER, told.best, i) for i in range(len(told.prose)))
    return Consolidated(told, lines, sentences)
