"""What the hce teacher is told besides searches, wherever it teaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from queen.engines.cache import SearchCache
from queen.language.engine_facts import EngineFacts, TermTable
from queen.language.ground import Line
from queen.language.teacher_hce import Style, TeacherInput, lines_to_evaluate
from stages.base import Job
from stages.engine import classical_tables, position_after

K = TypeVar("K")


def with_terms(
    job: Job[Any], cache: SearchCache, given: Mapping[K, TeacherInput], style: Style
) -> dict[K, TeacherInput]:
    """Add the classical terms at the lines the teacher asks for, the engine asked once."""
    wanted = [
        (key, line, position_after(one.position, line).fen)
        for key, one in given.items()
        for line in lines_to_evaluate(one, style)
    ]
    tables = classical_tables(job, cache, [fen for _, _, fen in wanted])
    terms: dict[K, dict[Line, TermTable]] = {key: {} for key in given}
    for key, line, fen in wanted:
        if fen in tables:
            terms[key][line] = tables[fen]
    return {
        key: replace(one, facts=EngineFacts(one.facts.nodes, terms[key]))
        for key, one in given.items()
    }
