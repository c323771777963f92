"""verdicts.json: what each round was judged, and which model is champion.

The file is in git and outside every DVC output. A round with a verdict is history: only
`reopen` lets its stages run again. METHOD section 1: the champion is `pawn1` until a round is
better; only `better` is promoted; rollback moves the pointer and deletes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.artifact import RECORD, ArtifactError, open_artifact, read_json, write_json
from queen.lineage.lock import exclusive, lock_folder

FILE = "verdicts.json"
BETTER, WORSE, NO_EVIDENCE = "better", "worse", "no evidence"
VERDICTS = (BETTER, WORSE, NO_EVIDENCE)
FIRST = "pawn1"
BASES = ("pawn", FIRST)
EVALUATIONS = "data/evaluate"


class VerdictError(QueenError):
    """A verdict that is missing, broken or stands in the way."""


class JudgedError(VerdictError):
    """A round that has a verdict is not run again."""


@dataclass(frozen=True)
class Judgement:
    """What a model was judged against its parent.

    Attributes:
        model: content hash of the model.
        verdict: better, worse or no evidence.
        reason: one sentence for people.
        parent: the model it was compared with.
        difference: paired difference in FNMR, model minus parent; None if not measured.
        interval: its 95 % interval.
        elo: fitted rating; None if not played.
        elo_interval: its 95 % interval; an open side is None.
        number: the how-manieth verdict of the project this is.
        reopened: a person lets its stages run again.
        set_aside: a person rolled it back; the pipeline may go on past it.
    """

    model: str
    verdict: str
    reason: str
    parent: str
    difference: float | None = None
    interval: tuple[float | None, float | None] | None = None
    elo: float | None = None
    elo_interval: tuple[float | None, float | None] | None = None
    number: int = 0
    reopened: bool = False
    set_aside: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)

    @property
    def finding(self) -> tuple[object, ...]:
        """What was found, apart from what people then did with it."""
        return (self.model, self.verdict, self.reason, self.parent, self.difference, self.elo)


@dataclass(frozen=True)
class Verdicts:
    """All judgements by model, in the order they were given, and the champion."""

    champion: str = FIRST
    models: Mapping[str, Judgement] = field(default_factory=dict)

    def judged(self, key: str | None) -> bool:
        """Whether a round is history: it has a verdict and is not reopened."""
        found = self.models.get(key or "")
        return found is not None and key not in BASES and not found.reopened

    def halted_by(self) -> str | None:
        """The last round that came out worse and that nobody has rolled back yet."""
        rows = [(j.number, key) for key, j in self.models.items() if _halts(key, j)]
        return max(rows)[1] if rows else None

    def line(self, key: str) -> Iterator[str]:
        """A model and its ancestors, nearest first, as far as they were judged."""
        seen: set[str] = set()
        here: str | None = key
        while here is not None and here not in seen:
            seen.add(here)
            yield here
            found = self.models.get(here)
            here = found.parent if found else None


def _halts(key: str, judgement: Judgement) -> bool:
    worse = judgement.verdict == WORSE and key not in BASES
    return worse and not judgement.set_aside and not judgement.reopened


@dataclass(frozen=True)
class Moved:
    """What a rollback did: the champion before and after, the round set aside, in words."""

    before: str
    after: str
    set_aside: str | None
    note: str


def read_verdicts(root: Path) -> Verdicts:
    """The project's verdicts; none yet if there is no file. Raises VerdictError if it is broken."""
    path = root / FILE
    if not path.is_file():
        return Verdicts()
    raw = read_json(path)
    try:
        models = {key: read_judgement(value, f"{FILE}: {key}") for key, value in _models(raw)}
        return Verdicts(str(raw["champion"]), models)
    except (KeyError, TypeError, AttributeError) as error:
        raise VerdictError(
            f"not a file of verdicts: {error!r}",
            where=str(path),
            remedy="restore it from git, then run `queen rounds`",
        ) from error


def _models(raw: Any) -> list[tuple[str, Any]]:
    return sorted(raw["models"].items(), key=lambda row: (row[1].get("number", 0), row[0]))


def read_judgement(raw: Mapping[str, Any], where: str) -> Judgement:
    """A judgement from plain values. Raises VerdictError on unknown fields or verdicts."""
    try:
        values: dict[str, Any]
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
        found = Judgement(**values)
    except (TypeError, AttributeError) as error:
        raise VerdictError(
            f"not a judgement: {error}", where=where, remedy="restore it, or evaluate again"
        ) from error
    if found.verdict not in VERDICTS:
        raise VerdictError(
            f"unknown verdict {found.verdict!r}",
            where=where,
            remedy=f"it is one of: {', '.join(VERDICTS)}",
        )
    return found


def require_open(root: Path, *, stage: str, key: str | None) -> None:
    """Refuse to run a stage of a judged round.

    Raises:
        JudgedError: the round has a verdict and is not reopened.
    """
    verdicts = read_verdicts(root)
    if not verdicts.judged(key):
        return
    assert key is not None
    raise JudgedError(
        f"the round {key} has its verdict ({verdicts.models[key].verdict}): it is history",
        where=f"{stage}@{key}",
        remedy=f"changed params are a new round (`queen round add NAME --like {key} "
        f"--parent {verdicts.models[key].parent} --set ...`), or `queen round reopen {key}`",
    )


def record(root: Path, key: str, judgement: Judgement) -> Verdicts:
    """Write a model's judgement and promote or demote by the rule.

    Recording again what already stands there changes nothing, so a rollback is not undone.
    """

    def change(verdicts: Verdicts) -> Verdicts:
        known = verdicts.models.get(key)
        if known is not None and known.finding == judgement.finding and not known.reopened:
            return verdicts
        number = 1 + max((j.number for j in verdicts.models.values()), default=0)
        fresh = dataclasses.replace(judgement, number=number, reopened=False, set_aside=False)
        models = {**verdicts.models, key: fresh}
        return Verdicts(_champion_after(Verdicts(verdicts.champion, models), key), models)

    return _update(root, change)


def _champion_after(verdicts: Verdicts, key: str) -> str:
    if promotes(verdicts, key):
        return key
    if verdicts.champion == key and key not in BASES:
        return _fallback(verdicts, key)
    return verdicts.champion


def promotes(verdicts: Verdicts, key: str) -> bool:
    """Whether a model's verdict makes it champion.

    It must be better than its parent, and descend from the champion with nothing worse in
    between: better than a parent that is itself behind the champion proves nothing.
    """
    if key in BASES or verdicts.models[key].verdict != BETTER:
        return False
    for ancestor in list(verdicts.line(key))[1:]:
        if ancestor == verdicts.champion:
            return True
        found = verdicts.models.get(ancestor)
        if found is not None and found.verdict == WORSE:
            return False
    return False


def _fallback(verdicts: Verdicts, key: str) -> str:
    """The nearest ancestor that is better than its own parent; else the first model."""
    for ancestor in list(verdicts.line(key))[1:]:
        found = verdicts.models.get(ancestor)
        if ancestor not in BASES and found is not None and found.verdict == BETTER:
            return ancestor
    return FIRST


def rollback(root: Path, key: str | None = None) -> Moved:
    """Go back: set the last worse round aside, or move the champion; nothing is deleted.

    Args:
        root: the project.
        key: the model to make champion. None: if a round came out worse, set it aside (the
            champion never moved to it); else the champion's nearest better ancestor.

    Raises:
        VerdictError: no such model was ever judged, or there is nothing to go back to.
    """
    moved: list[Moved] = []

    def change(verdicts: Verdicts) -> Verdicts:
        after = _target(verdicts, key)
        aside = _aside(verdicts, after, key)
        models = dict(verdicts.models)
        for name in aside:
            models[name] = dataclasses.replace(models[name], set_aside=True)
        moved.append(_moved(verdicts.champion, after, aside))
        return Verdicts(after, models)

    _update(root, change)
    return moved[0]


def _target(verdicts: Verdicts, key: str | None) -> str:
    if key is not None:
        if key not in verdicts.models and key not in BASES:
            known = ", ".join([*BASES, *(k for k in verdicts.models if k not in BASES)])
            raise VerdictError(
                f"{key!r} has no verdict", where=FILE, remedy=f"models to go back to: {known}"
            )
        return key
    if verdicts.halted_by() is not None:
        return verdicts.champion
    if verdicts.champion == FIRST:
        raise VerdictError(
            f"the champion is {FIRST}, and no round stands open as worse: nothing to roll back",
            where=FILE,
            remedy="`queen rounds` shows where the project stands",
        )
    return _fallback(verdicts, verdicts.champion)


def _aside(verdicts: Verdicts, after: str, key: str | None) -> list[str]:
    """Worse rounds that this rollback answers: the last one, or with a key all that stand open."""
    halting = [name for name, j in verdicts.models.items() if _halts(name, j) and name != after]
    last = verdicts.halted_by()
    if key is None:
        return [last] if last else []
    return halting


def _moved(before: str, after: str, aside: list[str]) -> Moved:
    kept = f"the champion stays {after}" if before == after else f"champion: {before} -> {after}"
    note = f"{', '.join(aside)} set aside with its verdict; {kept}" if aside else kept
    return Moved(before, after, aside[0] if aside else None, note)


def reopen(root: Path, key: str) -> Verdicts:
    """Let the stages of a judged round run again. Raises VerdictError if it has no verdict."""

    def change(verdicts: Verdicts) -> Verdicts:
        if key not in verdicts.models or key in BASES:
            raise VerdictError(
                f"the round {key!r} has no verdict, so there is nothing to reopen",
                where=FILE,
                remedy="`queen rounds` lists the judged rounds",
            )
        changed = dataclasses.replace(verdicts.models[key], reopened=True)
        return Verdicts(verdicts.champion, {**verdicts.models, key: changed})

    return _update(root, change)


def artifact_judgement(root: Path, key: str) -> Judgement | None:
    """The judgement inside the evaluation of a model, if that is complete and holds one.

    Raises ArtifactError or VerdictError if it is broken.
    """
    folder = root / EVALUATIONS / key
    if not (folder / RECORD).is_file():
        return None
    artifact = open_artifact(folder)
    if not any(entry.name == "verdict.json" for entry in artifact.record.files):
        return None
    path = artifact.file("verdict.json")
    return read_judgement(read_json(path), str(path))


def record_artifact(root: Path, key: str) -> Verdicts:
    """Record the judgement that the evaluation of a model holds.

    Raises:
        ArtifactError: there is no complete evaluation, or it holds no verdict.
    """
    found = artifact_judgement(root, key)
    if found is None:
        raise ArtifactError(
            "no complete evaluation with a verdict",
            where=f"{EVALUATIONS}/{key}",
            remedy=f"run `queen run evaluate@{key}`",
        )
    return record(root, key, found)


def mend(root: Path, order: list[str]) -> list[str]:
    """Take up verdicts that evaluations hold and the file does not; returns the models mended.

    A reopened round is left as it is: what its folder holds is the verdict it had.

    Args:
        order: models, parents before children, so that promotion goes as it would have gone.
    """
    mended = []
    for key in order:
        before = read_verdicts(root)
        known = before.models.get(key)
        found = None if known is not None and known.reopened else artifact_judgement(root, key)
        if found is not None and record(root, key, found) != before:
            mended.append(key)
    return mended


def _update(root: Path, change: Callable[[Verdicts], Verdicts]) -> Verdicts:
    """Read, change and write the file under its lock; an unchanged value writes nothing."""
    with exclusive(lock_folder(root) / "verdicts.lock"):
        before = read_verdicts(root)
        after = change(before)
        if after != before:
            models = {key: value.as_dict() for key, value in sorted(after.models.items())}
            write_json(root / FILE, {"champion": after.champion, "models": models})
    return after
