"""The verdict of a round: in its evaluation, in verdicts.json, and from the rows again."""

from __future__ import annotations

from collections.abc import Iterator

from queen.lineage.artifact import Artifact, read_json
from queen.lineage.verdicts import BASES, FILE, Judgement, read_judgement, read_verdicts
from stages.audit.opened import Opened
from stages.evaluate import VERDICT, outcomes

DIGITS = 6


def verdict_faults(opened: Opened, evaluation: Artifact) -> Iterator[str]:
    """Whether the verdict stands alike in both places and is about this model and its parent."""
    if not any(entry.name == VERDICT for entry in evaluation.record.files):
        if opened.parent is not None:
            yield "the evaluation holds no verdict, though there is a parent"
        return
    path = evaluation.file(VERDICT)
    held = read_judgement(read_json(path), str(path))
    known = read_verdicts(opened.project).models.get(opened.key)
    if known is None:
        yield f"{FILE} does not know its verdict ({held.verdict}); `queen rounds` mends that"
    elif known.finding != held.finding or known.interval != held.interval:
        yield f"{FILE} says {known.verdict} ({known.reason}); the evaluation {held.verdict}"
    model = opened.artifacts.get(f"models/{opened.key}")
    if model is not None and held.model != model.content:
        yield f"its verdict is about model {held.model[:12]}, models/{opened.key} is another"
    if held.parent != opened.parent:
        yield f"its verdict compares with {held.parent}, its parent is {opened.parent}"
    yield from _difference(opened, evaluation, held)


def _difference(opened: Opened, evaluation: Artifact, held: Judgement) -> Iterator[str]:
    """The paired difference in FNMR, taken again from both evaluations' rows."""
    before = opened.input_of(evaluation, "before")
    if before is None or held.difference is None:
        return
    by = str(evaluation.record.params.get("verdict_by", "free"))
    mine, theirs = (
        {pid: value for pid, (value, _) in outcomes(opened.table(one), by).items()}
        for one in (evaluation, before)
    )
    shared = sorted(mine.keys() & theirs.keys())
    if not shared:
        return
    found = sum(mine[pid] - theirs[pid] for pid in shared) / len(shared)
    if abs(found - held.difference) > 2 * 10**-DIGITS:
        yield f"difference in FNMR: {held.difference} in its verdict, {found:.6f} from the rows"


def champion_faults(opened: Opened) -> Iterator[str]:
    """A champion that nobody judged."""
    verdicts = read_verdicts(opened.project)
    if verdicts.champion not in (*BASES, *verdicts.models):
        yield f"the champion {verdicts.champion} was never judged"
