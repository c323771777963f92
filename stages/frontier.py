"""The frontier teacher at work for the stage `seeds`: a shard's positions asked, answers read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from queen.games.chess.position import Position
from queen.language.api.settings import Endpoint
from queen.language.teacher_frontier import Told, explanation_of, question
from queen.language.teacher_hce import Style
from stages import asking
from stages.base import Job


def explain(
    job: Job[Any],
    llm: Endpoint,
    style: Style,
    rows: Sequence[Mapping[str, Any]],
    positions: Sequence[Position],
    out: Path,
) -> list[Told]:
    """What became of each position; an answer that cannot be used has its reason."""
    going_on = [i for i, position in enumerate(positions) if not position.is_over]
    questions = [question(rows[i]["pid"], positions[i], style, closed=llm.closed) for i in going_on]
    replies = asking.ask(job, llm, questions)
    told = [Told(None, "game_over")] * len(positions)
    for i, asked, reply in zip(going_on, questions, replies, strict=True):
        told[i] = explanation_of(reply, asked, positions[i], style)
    counts: Counter[str] = Counter()
    for one in told:
        counts.update(one.counts)
    asking.write_told(out, replies, len(questions), counts)
    return told
