"""What sets a model apart from the published recipe, said wherever its figures stand.

A declaration is a figure of a record, `declared.NAME`, so that it goes where figures go: from the
curriculum to the models that learn it, to their children and evaluations, to MLflow, the report
and `queen rounds`. A model by the recipe has none. Source: METHOD section 1, Curriculum (the
question of ours) and Evaluation (ablations).
"""

from __future__ import annotations

from collections.abc import Mapping

from queen.language.questions.bank import EXPERT_MOVE

PREFIX = "declared."
NO_ENCODER, NO_CURRICULUM = "no_encoder", "no_curriculum"
WORDS = {
    EXPERT_MOVE: "was also asked which move the expert prefers (a question of ours, weight {:g}): "
    "it has learnt moves by imitating the encoder's policy",
    NO_ENCODER: "reads no encoder: its prompts give it the FEN as text (an ablation)",
    NO_CURRICULUM: "never met the curriculum: its PAWN was not trained at all (an ablation)",
}


def declare(name: str, value: float = 1.0) -> dict[str, float]:
    """A declaration as a figure."""
    assert name in WORDS, name
    return {PREFIX + name: value}


def declarations(figures: Mapping[str, float]) -> dict[str, float]:
    """The declarations among figures."""
    return {name: value for name, value in figures.items() if name.startswith(PREFIX)}


def without(figures: Mapping[str, float], name: str) -> dict[str, float]:
    """Figures without a declaration that is no longer true."""
    return {key: value for key, value in figures.items() if key != PREFIX + name}


def in_words(figures: Mapping[str, float]) -> list[str]:
    """What the declarations among figures say of the model, one sentence part each."""
    found = declarations(figures)
    return [WORDS[name.removeprefix(PREFIX)].format(found[name]) for name in sorted(found)]
