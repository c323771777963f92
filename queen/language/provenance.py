"""What a parent's explanation is folded from, and where each of its statements comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from queen.games.chess.position import Position
from queen.language.engine_facts import EngineFacts, Node
from queen.language.explanation import Explanation


class Origin(StrEnum):
    """Who said it first: an engine, the child's own text, the text folded for the child when it
    became a root itself, the rules of a finished game; or the hce teacher, who writes a control's
    explanations and draws on no child."""

    ENGINE = "engine"
    CHILD = "child"
    BELOW = "below"
    RULES = "rules"
    TEACHER = "teacher"


CHILD_ORIGINS = (Origin.CHILD, Origin.BELOW)
STRUCTURE = -1
"""The index of a child's best move, line and candidates, as against its sentences."""


@dataclass(frozen=True)
class Source:
    """Where one statement of a parent comes from.

    Attributes:
        origin: who said it first.
        move: the candidate (UCI) whose child said it, or which the engine fact is about.
        index: the sentence in that child's prose, or STRUCTURE.
        model: whether a model wrote it, here or further down.
    """

    origin: Origin
    move: str
    index: int = STRUCTURE
    model: bool = False

    def to_json(self) -> list[str | int | bool]:
        """Plain data for JSON."""
        return [self.origin.value, self.move, self.index, self.model]

    @classmethod
    def from_json(cls, data: list[Any]) -> Source:
        """From `to_json`'s data."""
        return cls(Origin(data[0]), *data[1:])


@dataclass(frozen=True)
class Consolidated:
    """A parent's explanation and its provenance.

    Attributes:
        explanation: of the root.
        lines: for each candidate, in order, where its line comes from; the principal variation
            is the best candidate's. Scores are always the engine's.
        sentences: for each sentence, in order, where it comes from.
        cut: how many statements of the children were left out, by reason.
    """

    explanation: Explanation
    lines: tuple[Source, ...]
    sentences: tuple[Source, ...]
    cut: Mapping[str, int] = field(default_factory=dict)

    @property
    def taught(self) -> bool:
        """Whether a teacher wrote it instead of folding children."""
        return any(source.origin is Origin.TEACHER for source in self.lines)

    @property
    def model_sentences(self) -> int:
        """How many of the kept sentences model-written children said."""
        return sum(source.model for source in self.sentences)

    @property
    def model_share(self) -> float:
        """Their share of all kept sentences; 0 if there are none."""
        return self.model_sentences / len(self.sentences) if self.sentences else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON; `from_json` reads it back."""
        return {
            "explanation": self.explanation.to_json(),
            "lines": [source.to_json() for source in self.lines],
            "sentences": [source.to_json() for source in self.sentences],
            "cut": dict(sorted(self.cut.items())),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Consolidated:
        """From `to_json`'s data."""
        return cls(
            Explanation.from_json(data["explanation"]),
            tuple(map(Source.from_json, data["lines"])),
            tuple(map(Source.from_json, data["sentences"])),
            dict(data["cut"]),
        )


@dataclass(frozen=True)
class Child:
    """The position after one candidate, explained.

    Attributes:
        move: the candidate, UCI.
        explanation: what the model wrote about the position, parsed; None if it could not be.
        reason: why there is none.
        facts: what engines know there, lines counted from the child; its node at `()` holds the
            value of the explanation's own first move.
        below: what was folded for the child, if it became a root itself.
    """

    move: str
    explanation: Explanation | None = None
    reason: str = ""
    facts: EngineFacts = field(default_factory=EngineFacts)
    below: Consolidated | None = None

    @property
    def node(self) -> Node | None:
        """The engine's verdict on the child."""
        return self.facts.nodes.get(())

    @property
    def errs(self) -> bool | None:
        """Whether the explanation's own first move is a mistake; None if nobody knows."""
        if self.explanation is None or self.node is None:
            return None
        best = self.explanation.best
        return self.node.is_mistake(best) if self.node.knows(best) else None


@dataclass(frozen=True)
class Inputs:
    """All that a parent may draw on.

    Attributes:
        position: the root.
        node: the engine's verdict on it, with the value of each candidate.
        children: one for each candidate, the model's favourite first.
    """

    position: Position
    node: Node
    children: tuple[Child, ...]

    def facts(self) -> EngineFacts:
        """The root's and all children's facts, lines counted from the root."""
        lifted = [child.facts.lifted(child.move) for child in self.children]
        return EngineFacts({(): self.node}).merged(lifted)
