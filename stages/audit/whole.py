"""The whole of a round: every hash, count and link, every proof, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.artifact import Artifact
from queen.lineage.state import State
from queen.lineage.store import ShardStore
from queen.lineage.verdicts import read_verdicts
from stages.audit import books, judged, links
from stages.audit.opened import Opened, in_order, open_round
from stages.audit.proofs import prove
from stages.decontaminate import Guard

MOST_SHOWN = 20


@dataclass
class Audit:
    """What was looked at and what does not hold.

    Attributes:
        key: the round or model.
        artifacts: name and content hash of each artifact looked at, ancestors first.
        checked: how many of each thing were checked.
        problems: what does not hold, each naming its artifact.
        notes: what could not be checked, or is not made yet.
        absent_shards: how many shards of the records the store no longer has.
    """

    key: str
    artifacts: list[tuple[str, str]] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    absent_shards: int = 0

    @property
    def holds(self) -> bool:
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**asdict(self), "holds": self.holds}

    def add(self, what: str, count: int) -> None:
        self.checked[what] = self.checked.get(what, 0) + count

    def note_faults(self, name: str, found: Sequence[str]) -> None:
        """Add faults of one artifact; beyond the first ones of a kind they are counted alone."""
        self.problems += [f"{name}: {fault}" for fault in found[:MOST_SHOWN]]
        if len(found) > MOST_SHOWN:
            self.problems.append(f"{name}: and {len(found) - MOST_SHOWN} more of the kind")


Check = Callable[[Opened, Artifact], Iterator[str]]


def audit_round(project: Path, state: State, key: str) -> Audit:
    """Audit a round (or a base model) and everything it was made from.

    Raises QueenError: no such round, or nothing of it is there yet.
    """
    opened = open_round(project, key)
    audit = Audit(key)
    store = ShardStore(state.shards)
    for name, reason in sorted(opened.broken.items()):
        audit.problems.append(f"{name}: {reason}")
    for artifact in in_order(opened):
        _audit_artifact(opened, artifact, store, audit)
    if audit.absent_shards:
        shards = f"{audit.absent_shards} of {audit.checked['shards']} shards"
        audit.notes.append(f"{shards} are not in this state folder; outputs stand without them")
    _audit_missing(opened, audit)
    unread: set[tuple[str, str]] = set()
    _guarded(audit, f"data/consolidate/{key}", _proofs(opened, audit, unread))
    _guarded(audit, f"data/filter/{key}", _wrongly_kept(opened, audit, unread))
    evaluation = opened.own("evaluate")
    if evaluation is not None:
        _guarded(audit, evaluation.name, judged.verdict_faults(opened, evaluation))
        audit.add("verdicts", 1)
    _guarded(audit, "verdicts.json", judged.champion_faults(opened))
    return audit


def _audit_artifact(opened: Opened, artifact: Artifact, store: ShardStore, audit: Audit) -> None:
    name, record = artifact.name, artifact.record
    audit.artifacts.append((name, artifact.content))
    audit.add("files", len(record.files))
    audit.add("links", len(record.inputs))
    audit.add("shards", len(record.shards))
    audit.add("counts", len(record.counts) + len(record.drops))
    before = len(audit.problems)
    checks: tuple[Check, ...] = (links.hash_faults, links.link_faults, links.parent_faults)
    for check in checks:
        _guarded(audit, name, check(opened, artifact))
    _guarded(audit, name, links.shard_faults(store, artifact))
    audit.absent_shards += links.absent_shards(store, artifact)
    if not any("file " in problem for problem in audit.problems[before:]):
        _guarded(audit, name, books.count_faults(opened, artifact))


def _guarded(audit: Audit, name: str, faults: Iterator[str]) -> None:
    """Note faults; a table that cannot be read, or lacks a field, is a fault itself."""
    found: list[str] = []
    try:
        found.extend(faults)
    except QueenError as error:
        found.append(error.what)
    except (KeyError, ValueError, TypeError) as error:
        found.append(f"cannot be checked: {error!r}")
    audit.note_faults(name, found)


def _audit_missing(opened: Opened, audit: Audit) -> None:
    """A judged round must be whole; another may still be growing."""
    if not opened.missing:
        return
    missing = ", ".join(opened.missing)
    if opened.key in read_verdicts(opened.project).models:
        audit.problems.append(f"{opened.key} has a verdict, but is missing: {missing}")
    else:
        audit.notes.append(f"not made yet: {missing}")


def _proofs(opened: Opened, audit: Audit, unread: set[tuple[str, str]]) -> Iterator[str]:
    consolidated = opened.own("consolidate")
    trees = opened.input_of(consolidated, "trees") if consolidated else None
    if consolidated is None or trees is None:
        return
    proved = prove(opened, consolidated, trees)
    audit.add("explanations proved", proved.explanations)
    audit.add("sentences led back", proved.sentences)
    audit.add("of them written by the model", proved.by_model)
    unread |= proved.unread
    if unread:
        audit.notes.append(f"{consolidated.name}: {len(unread)} folded texts cannot be read")
    yield from proved.faults


def _wrongly_kept(opened: Opened, audit: Audit, unread: set[tuple[str, str]]) -> Iterator[str]:
    """Kept examples that cannot be read, or are in an evaluation set, by position or by game."""
    filtered = opened.own("filter")
    evalset = opened.input_of(filtered, "evalset") if filtered else None
    if filtered is None or evalset is None:
        return
    guard = Guard.of(evalset)
    kept = [row for row in opened.table(filtered).to_pylist() if not row["dropped"]]
    audit.add("kept examples held against the evaluation sets", len(kept))
    for row in kept:
        barred = guard.reason(row)
        if barred is not None:
            yield f"example {row['pid']} is kept, though barred: {barred}"
        if (row["root"], row["path"]) in unread:
            yield f"example {row['pid']} is kept, though its text cannot be read"
