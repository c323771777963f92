"""DVC as the project drives it: what is stale and why, in which order, one stage at a time.

DVC stores, versions and skips; nothing here decides what a stage does. Stages are walked from
upstream down, rounds after the rounds they stand on, and the lock ends as `dvc repro` leaves it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.artifact import RECORD, read_json
from queen.lineage.params import STEPS, nearest
from queen.lineage.rounds import ordered, read_rounds
from queen.lineage.verdicts import Verdicts, read_verdicts
from queen.lineage.yamlio import read_yaml

PIPELINE_FILE, LOCK_FILE = "dvc.yaml", "dvc.lock"
REFUSED = 2
STOPPED = (130, -2, 143, -15)  # by a person: SIGINT, SIGTERM


class PipelineError(QueenError):
    """The pipeline cannot be read, or a stage of it failed."""


class StageFailedError(PipelineError):
    """A stage's command ended with an error.

    Attributes:
        stage: its name.
        status: exit status of the command; None if it failed before or after the command.
    """

    def __init__(self, stage: str, status: int | None, why: str, remedy: str) -> None:
        self.stage, self.status = stage, status
        super().__init__(why, where=stage, remedy=remedy)

    def __reduce__(self) -> tuple[object, ...]:
        return StageFailedError, (self.stage, self.status, self.what, self.remedy)

    @property
    def crashed(self) -> bool:
        """Whether trying again may help: the process died, and neither refused nor was stopped."""
        return self.status not in (None, REFUSED, *STOPPED)


@dataclass(frozen=True)
class Step:
    """One stage of the walk.

    Attributes:
        name: `stage` or `stage@key`.
        reasons: why it is stale by itself; empty if it is not.
        after: stale stages upstream of it, nearest last; it may turn out unchanged after them.
        judged: its round has a verdict, so it is not run.
    """

    name: str
    reasons: tuple[str, ...]
    after: tuple[str, ...]
    judged: bool

    @property
    def stale(self) -> bool:
        return bool(self.reasons)


class Pipeline:
    """The stages of a project as dvc.yaml, dvc.lock and the workspace now say.

    Args:
        root: the project.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.repo = _open_repo(root)

    @functools.cached_property
    def _graph(self) -> Any:
        from dvc.repo.reproduce import get_active_graph

        with _dvc_errors():
            return get_active_graph(self.repo.index.graph)

    @functools.cached_property
    def _stages(self) -> dict[str, Any]:
        return {_short(stage): stage for stage in self._graph.nodes}

    def names(self, target: str | None = None) -> list[str]:
        """Stages to walk for a target, upstream first, each round after its parent.

        Without a target these are those of the project's own dvc.yaml, as for `dvc repro`; lines
        in files below it run only when named.
        """
        wanted = self._own() if target is None else {target, *self._above(target)}
        places = {name: place for place, name in enumerate(self._dvc_order())}
        rounds = {key: place for place, key in enumerate(ordered(read_rounds(self.root)))}

        def rank(name: str) -> tuple[int, int]:
            return (rounds.get(name.partition("@")[2], -1), places[name])

        return _topological(sorted(wanted, key=rank), self._direct)

    def every(self) -> list[str]:
        """All stages, those that only run when named too, in no order."""
        return list(self._stages)

    def _own(self) -> set[str]:
        return {n for n, stage in self._stages.items() if stage.path_in_repo == PIPELINE_FILE}

    def _dvc_order(self) -> list[str]:
        """The order in which `dvc repro` would go."""
        from dvc.repo.reproduce import plan_repro

        stages = [stage for stage in self.repo.index.stages if stage in self._graph]
        return [_short(stage) for stage in plan_repro(self._graph, stages)]

    def _direct(self, name: str) -> list[str]:
        return [_short(stage) for stage in self._graph.successors(self._find(name))]

    def _above(self, name: str) -> set[str]:
        import networkx  # type: ignore[import-untyped]

        return {_short(stage) for stage in networkx.descendants(self._graph, self._find(name))}

    def _find(self, name: str) -> Any:
        if name not in self._stages:
            raise _no_stage(name, list(self._stages))
        return self._stages[name]

    def walk(self, target: str | None = None) -> list[Step]:
        """What stands where now, from upstream down. Starts nothing and changes nothing."""
        names = self.names(target)
        reasons = self.reasons(names)
        verdicts = read_verdicts(self.root)
        stale: dict[str, tuple[str, ...]] = {}
        steps = []
        for name in names:
            judged = is_judged(verdicts, name)
            after: list[str] = []
            for above in self._direct(name):
                after.extend(n for n in stale.get(above, ()) if n not in after)
            runs = not judged and (reasons[name] or after)
            stale[name] = (*after, name) if runs else tuple(after)
            steps.append(Step(name, reasons[name], tuple(after), judged))
        return steps

    def reasons(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Why each stage is stale, by the present files; an empty tuple if it is not."""
        with _dvc_errors(), self.repo.lock:
            return {name: tuple(_reasons(self._find(name))) for name in names}

    def cached(self, name: str) -> bool:
        """Whether DVC's run cache holds this stage's outputs for what its inputs now are."""
        stage = self._find(name)
        with _dvc_errors(), self.repo.lock, contextlib.suppress(FileNotFoundError):
            stage.save_deps(allow_missing=False)
            return bool(self.repo.stage_cache._load(stage))
        return False


def reproduce(root: Path, name: str) -> bool:
    """Let DVC bring one stage up to date; what is upstream is taken as it is.

    Returns:
        Whether anything was done; False if DVC found it unchanged.

    Raises:
        StageFailedError: its command failed, with its exit status.
        PipelineError: DVC itself failed.
    """
    from dvc.exceptions import ReproductionError
    from dvc.stage.exceptions import StageCmdFailedError

    repo = _open_repo(root)
    try:
        with _dvc_errors(), _python_on_path(), contextlib.chdir(root):
            return bool(repo.reproduce(_address(repo, name), single_item=True))
    except ReproductionError as error:
        cause = error.__cause__
        if isinstance(cause, StageCmdFailedError):
            status = _status(cause)
            raise StageFailedError(
                name, status, f"the stage ended with status {status}", _what_next(name, status)
            ) from error
        why = str(cause or error).splitlines()[0]
        raise StageFailedError(name, None, why, "mend it, then run again") from error
    finally:
        repo.close()


def _address(repo: Any, name: str) -> str:
    """How DVC is told of a stage: by its file too, where that is not the project's own."""
    found = (str(stage.addressing) for stage in repo.index.stages if _short(stage) == name)
    return next(found, name)


def _what_next(name: str, status: int | None) -> str:
    if status == REFUSED:
        return "its message stands above; mend that and run again, finished shards are kept"
    return f"run again, finished shards are kept; `python -m stages {name}` runs it alone"


@contextlib.contextmanager
def lock_as_dvc(root: Path) -> Iterator[None]:
    """Let entries that are added to dvc.lock in this block end in the order `dvc repro` adds them.

    The walk keeps rounds together, DVC goes by its own order; the lock shall not tell them apart.
    """
    before = _locked_names(root)
    try:
        yield
    finally:
        added = [name for name in _locked_names(root) if name not in before]
        if len(added) > 1:
            _reorder(root, before, added)


def _locked_names(root: Path) -> list[str]:
    path = root / LOCK_FILE
    return list(read_yaml(path).get("stages") or {}) if path.is_file() else []


def _reorder(root: Path, before: Sequence[str], added: Sequence[str]) -> None:
    from dvc.utils.serialize import modify_yaml

    places = {name: place for place, name in enumerate(Pipeline(root)._dvc_order())}
    ranked = sorted(added, key=lambda name: places.get(name, len(places)))
    if ranked == list(added):
        return
    with modify_yaml(str(root / LOCK_FILE)) as data:
        stages = data["stages"]
        for name in [*before, *ranked]:
            stages.move_to_end(name)


def locked_shards(root: Path) -> set[str]:
    """Keys of the shards that artifacts in dvc.lock are made of, as far as DVC's cache has them."""
    pipeline = Pipeline(root)
    keys: set[str] = set()
    with _dvc_errors():
        for stage in pipeline.repo.index.stages:
            for path in filter(None, map(_cached_record, stage.outs)):
                keys.update(read_json(path).get("shards", ()))
    return keys


def _cached_record(out: Any) -> Path | None:
    """Where DVC's cache keeps record.json of an output folder, if it does."""
    tree = out.get_obj() if out.hash_info and out.hash_info.isdir else None
    for key, _, found in tree or ():
        if key == (RECORD,):
            path = Path(out.cache.oid_to_path(found.value))
            return path if path.is_file() else None
    return None


def is_judged(verdicts: Verdicts, name: str) -> bool:
    """Whether a stage belongs to a round that is history."""
    stage, _, key = name.partition("@")
    return stage in STEPS and verdicts.judged(key)


def round_of(name: str) -> str | None:
    """The round a stage belongs to, or None."""
    stage, _, key = name.partition("@")
    return key if stage in STEPS and key else None


def _open_repo(root: Path) -> Any:
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    logging.getLogger("dvc").setLevel(logging.WARNING)
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo

    try:
        return Repo(str(root))
    except NotDvcRepoError as error:
        raise PipelineError(
            "no DVC repository here", where=str(root), remedy="run `dvc init` in the project"
        ) from error


@contextlib.contextmanager
def _dvc_errors() -> Iterator[None]:
    """DVC's own errors as ours, but for a failed reproduction, which the caller reads."""
    from dvc.exceptions import DvcException, ReproductionError

    try:
        yield
    except ReproductionError:
        raise
    except DvcException as error:
        text = [line for line in str(error).splitlines() if line.strip()]
        raise PipelineError(
            " ".join(text[:2]) or type(error).__name__,
            where="dvc",
            remedy="mend dvc.yaml or the workspace (`dvc status` shows it), then run again",
        ) from error


@contextlib.contextmanager
def _python_on_path() -> Iterator[None]:
    """Let `python` in dvc.yaml mean the interpreter that runs us."""
    before = os.environ.get("PATH", "")
    here = str(Path(sys.executable).parent)
    if before.split(os.pathsep)[0] != here:
        os.environ["PATH"] = os.pathsep.join([here, before])
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _short(stage: Any) -> str:
    return str(getattr(stage, "name", None) or stage.addressing)


def _reasons(stage: Any) -> Iterator[str]:
    for entry in stage.status().get(stage.addressing, ()):
        if isinstance(entry, Mapping):
            for kind, changes in entry.items():
                yield from (f"{kind.removeprefix('changed ')}: {line}" for line in _lines(changes))
        else:
            yield str(entry)


def _lines(changes: Any) -> Iterator[str]:
    if not isinstance(changes, Mapping):
        yield str(changes)
        return
    for name, change in changes.items():
        if isinstance(change, Mapping):
            yield from (f"{key} {how}" for key, how in change.items())
        else:
            yield f"{name} {change}"


def _status(cause: Any) -> int | None:
    """The exit status DVC puts at the end of its message: `failed to run: CMD, exited with N`."""
    tail = str(cause).rsplit("exited with", 1)[-1].strip()
    return int(tail) if tail.lstrip("-").isdigit() else None


def _topological(names: Sequence[str], above: Callable[[str], Iterable[str]]) -> list[str]:
    """The names with everything above before what is below, else in the given order."""
    places = {name: place for place, name in enumerate(names)}
    done: dict[str, None] = {}

    def visit(name: str) -> None:
        if name not in done:
            for other in sorted((o for o in above(name) if o in places), key=places.__getitem__):
                visit(other)
            done[name] = None

    for name in names:
        visit(name)
    return list(done)


def _no_stage(name: str, names: Sequence[str]) -> PipelineError:
    near = nearest(name, sorted(names))
    return PipelineError(
        f"no stage {name!r}",
        where="dvc.yaml",
        remedy=f"did you mean {near!r}?" if near else f"known: {', '.join(sorted(names))}",
    )
