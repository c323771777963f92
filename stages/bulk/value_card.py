"""The card of a value network: what it came from, under which licences, and how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stages.base import Job
from stages.modelcard import listed

TEMPLATE = """---
license: gpl-3.0
tags: [chess, value-network, queen]
---
# models/value

A value network for chess: 18 planes of a position from the side to move in, its expected score as
101 buckets and two classes of mates out. A {kind} of {blocks}, {parameters:,} parameters.
Made by the stage `{stage}`; `queen.networks.value.load_value` reads it.

## Sources and licences
{licences}

Labels: {labels}. No player's name is in the data.

## Training
{training}

## Held-out games
Means over {heldout:,} positions, 95 % intervals by bootstrap over {games:,} games; beside them what
always saying the training set's frequencies gets.

| measure | network | 95 % | constant |
|---|---|---|---|
{measures}

## Limits
It sees one position and its fifty-move clock, no history: a repetition is nothing to it. Scores are
on the scale of whoever labelled (Lichess's logistic of centipawns), whose mistakes it learns too.
"""


def value_card(job: Job[Any], told: Mapping[str, Any], licences: Mapping[str, str]) -> str:
    """The card as Markdown with front matter; a function of its inputs alone."""
    network = job.params.network
    return TEMPLATE.format(
        kind=network.kind,
        blocks=f"{network.residual_blocks} residual and {network.transformer_blocks} transformer "
        f"blocks of width {network.width}",
        parameters=told["parameters"],
        stage=job.stage,
        licences=listed(licences),
        labels=", ".join(f"{n:,} by {who}" for who, n in sorted(told["labels"].items()) if n),
        training=listed({k: told[k] for k in ("steps", "positions", "final_loss")}),
        heldout=told["rows"]["heldout"],
        games=told["games"],
        measures="\n".join(_measure(name, told) for name in told["heldout"]),
    )


def _measure(name: str, told: Mapping[str, Any]) -> str:
    low, high = told["intervals"][name]
    constant = told["constant"].get(name)
    beside = "" if constant is None else f"{constant:.4g}"
    bounds = "" if low is None else f"{low:.4g} to {high:.4g}"
    return f"| {name} | {told['heldout'][name]:.4g} | {bounds} | {beside} |"
