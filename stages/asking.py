"""What stages that ask a language model over an API do alike: asking, and what is told of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from queen.language.api.messages import Answer, Question, Reply
from queen.language.api.settings import Endpoint
from stages.base import Job

FILE = "asked.json"


def ask(job: Job[Any], endpoint: Endpoint, questions: Sequence[Question]) -> list[Reply]:
    """A reply to each question; what it cost so far goes to the run's figures, even if the run
    has to stop."""
    try:
        return job.api.ask(endpoint, questions, job.progress)
    finally:
        figures = job.api.figures()
        job.sink(int(figures.get("api.requests", 0)), figures)


def write_told(
    out: Path, replies: Iterable[Reply], questions: int, counts: Mapping[str, int]
) -> None:
    """Keep beside a shard what the endpoint said of itself and what became of its answers.

    All of it is a function of the answers, however often and at whatever cost they were fetched.
    """
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    own = Counter(
        asked=questions,
        answered=len(answers),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        answer_tokens=sum(answer.answer_tokens for answer in answers),
    )
    own.update({name: n for name, n in counts.items() if n})
    told = {
        "counts": dict(sorted(own.items())),
        "models": sorted({answer.model for answer in answers}),
    }
    (out / FILE).write_bytes(orjson.dumps(told))


def counted(folders: Sequence[Path]) -> Counter[str]:
    """The counts of all shards: `asked`, `answered`, tokens, what was kept and cut."""
    total: Counter[str] = Counter()
    for folder in folders:
        total.update(orjson.loads((folder / FILE).read_bytes())["counts"])
    return total


def identity(endpoint: Endpoint, prompts: str, folders: Sequence[Path]) -> dict[str, Any]:
    """Who answered, and by which prompts, for an artifact's record."""
    named = {m for f in folders for m in orjson.loads((f / FILE).read_bytes())["models"]}
    return {
        "model": endpoint.model,
        "base_url": endpoint.base_url,
        "answered_by": sorted(named - {""}),
        "prompts": prompts,
    }
