"""Which language models behind an API the project would ask, and what is lacking to ask them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from queen.language.api.client import find_key
from queen.language.api.ledger import require_price
from queen.language.api.settings import Budget, Endpoint
from queen.lineage.rounds import read_rounds
from queen.lineage.verdicts import read_verdicts
from stages.settings import build


def endpoints(root: Path, params: Mapping[str, Any]) -> Iterator[tuple[str, Endpoint]]:
    """The teacher, if it is `frontier`, and the consolidators of rounds that may still run."""
    teacher = params.get("teacher", {})
    if teacher.get("kind") == "frontier":
        yield "teacher", build(Endpoint, teacher.get("llm") or {}, "teacher.llm")
    judged = read_verdicts(root)
    for key, entry in read_rounds(root).items():
        step = entry.values.get("consolidate", {})
        if step.get("consolidator") == "llm" and not judged.judged(key):
            where = f"rounds.{key}.consolidate.llm"
            yield f"consolidator of {key}", build(Endpoint, step.get("llm") or {}, where)


def require_usable(endpoint: Endpoint, params: Mapping[str, Any]) -> None:
    """Raise QueenError unless the endpoint could be asked; nothing is sent."""
    endpoint.require_sound()
    budget = params.get("api", {}).get("budget") or {}
    require_price(endpoint, build(Budget, budget, "api.budget"))
    find_key(endpoint, os.environ)
