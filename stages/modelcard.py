"""The card of a model: what it came from, under which licences, and how it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.base import Job
from stages.declared import NO_ENCODER, PREFIX, in_words

DECLARED = """
## Not by the published recipe
{said}

Whoever quotes its figures is asked to say so.
"""

FRONT_MATTER = """---
license: gpl-3.0
library_name: transformers
pipeline_tag: text-generation
tags: [chess, explanation, queen]
---
"""
TEMPLATE = (
    FRONT_MATTER
    + """# {name}

A QUEEN model: a small language model {bridged}, which plays chess and
explains its moves. Made by the stage `{stage}`{parent}.

## Sources and licences
{licences}

Players' names are not in the training data unless the project was told to keep them.

## Training
{training}
{declared}
## Limits
Its strength and the truth of its statements are measured by the project's evaluation, not by
this page; see the artifact `data/evaluate/{short}` for figures. It speaks of standard chess only,
in English, in the notation of its training text.
"""
)


def model_card(
    job: Job[Any],
    name: str,
    licences: Mapping[str, str],
    training: Mapping[str, Any],
    figures: Mapping[str, float],
) -> str:
    """The card as Markdown with Hugging Face's front matter; a function of its inputs alone.

    Args:
        figures: of its record, and among them what is declared of it (`stages.declared`).
    """
    said = "\n".join(f"- It {words}." for words in in_words(figures))
    blind = PREFIX + NO_ENCODER in figures
    parent = job.inputs.get("parent")
    return TEMPLATE.format(
        name=name,
        short=name.split("/")[-1],
        stage=job.stage,
        bridged=f"{'without the' if blind else 'bridged to a'} frozen Lc0 network",
        parent=f" from `{parent.name}`" if parent else "",
        licences=listed(licences),
        training=listed(training),
        declared=DECLARED.format(said=said) if said else "",
    )


def listed(items: Mapping[str, Any]) -> str:
    """A list in Markdown, in the order of the names."""
    return "\n".join(f"- {name}: {value}" for name, value in sorted(items.items())) or "- none"
