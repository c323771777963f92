"""`queen run`: what is stale, from upstream down, each stage one Prefect flow run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from queen.errors import QueenError
from queen.lineage.dvcio import Pipeline, StageFailedError, Step, lock_as_dvc, round_of
from queen.lineage.lock import NO_WAIT, workspace
from queen.lineage.params import chosen, compose, read_params
from queen.lineage.rounds import Round, read_rounds
from queen.lineage.server import prefect_server
from queen.lineage.state import State
from queen.lineage.syncing import fill_lineage
from queen.lineage.tracking import sender
from queen.lineage.verdicts import read_verdicts

OK, FAILED, STOPPED = 0, 1, 3
Say = Callable[[str], None]


def run_pipeline(root: Path, state: State, target: str | None, *, wait: bool, say: Say) -> int:
    """Bring a target, or everything, up to date.

    Args:
        root: the project.
        state: its state folder.
        target: `stage`, `stage@key`, a round's name for all of it, or None.
        wait: wait for another run in this workspace, or leave.
        say: told what happens, a line at a time.

    Returns:
        0 done or nothing to do; 1 a stage failed; 3 stopped before rounds after a worse one.

    Raises:
        BusyError: another run holds the workspace and `wait` is off.
        QueenError: no such target; rounds or params are not resolved; DVC cannot be read.
    """
    os.environ["QUEEN_PROJECT"] = str(root)
    if not wait:
        os.environ[NO_WAIT] = "1"
    with workspace(root, what="queen run", wait=wait):
        require_resolved(root)
        target = full_target(target, read_rounds(root))
        if params_changed(root):
            say("params/ says something else than params.yaml: `queen configure` takes it over")
        steps = Pipeline(root).walk(target)
        for key in judged_and_stale(steps):
            say(f"the round {key} has its verdict and is left alone (`queen round reopen {key}`)")
        waiting = [step for step in steps if step.stale and not step.judged]
        if not waiting:
            say("nothing to do: everything is up to date")
            return OK
        stopped = _stopped_at_once(root, target, waiting)
        if stopped is not None:
            return _say_stopped(stopped, say)
        return _run_flows(root, state, target, say)


def _run_flows(root: Path, state: State, target: str | None, say: Say) -> int:
    """Start what flows need, then run the flow of the target."""
    _quiet_prefect()
    server = prefect_server(state.root, meanwhile=_import_flows)
    with sender(root, state.root), server as url, lock_as_dvc(root):
        say(f"Prefect: {url}")
        from flows.pipeline import pipeline_flow
        from flows.walking import drain, stage_flow

        try:
            if target is None:
                walked = pipeline_flow()
            else:
                key = target.partition("@")[2]
                walked = stage_flow(target)(**({"key": key} if key else {}))
        except StageFailedError as error:
            say(str(error))
            return FAILED
        except QueenError:
            raise
        except Exception as error:
            raise _flow_failed(error, url) from error
        finally:
            drain()
        fill_lineage(root, state.root)
    say(f"done: {', '.join(walked.ran) or 'nothing had to run'}")
    return OK if walked.stopped_by is None else _say_stopped(walked.stopped_by, say)


def _flow_failed(error: Exception, url: str) -> QueenError:
    """Prefect itself failed, not a stage."""
    lines = str(error).strip().splitlines() or [""]
    return QueenError(
        f"the flow failed: {type(error).__name__}: {lines[0][:300]}",
        where=url,
        remedy="run again, what is finished is kept; `dvc repro` does the same without Prefect",
    )


def _import_flows() -> None:
    import flows.pipeline  # noqa: F401


def _quiet_prefect() -> None:
    """The terminal belongs to the stages; Prefect's own lines go to its server."""
    os.environ["QUEEN_ON_TERMINAL"] = "1"
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


def _stopped_at_once(root: Path, target: str | None, waiting: Sequence[Step]) -> str | None:
    """The worse round before which nothing is left to do but further rounds."""
    only_rounds = all(round_of(step.name) is not None for step in waiting)
    if target is not None or not only_rounds:
        return None
    if not read_params(root).get("flow", {}).get("stop_after_worse"):
        return None
    return read_verdicts(root).halted_by()


def _say_stopped(key: str, say: Say) -> int:
    say(
        f"stopped: the round {key} is worse than its parent. `queen rounds` shows it; "
        "`queen rollback` sets it aside and lets further rounds run"
    )
    return STOPPED


def judged_and_stale(steps: Sequence[Step]) -> list[str]:
    """Rounds with a verdict that would be stale, were they not history."""
    keys = [round_of(step.name) for step in steps if step.judged and (step.stale or step.after)]
    return [key for key in dict.fromkeys(keys) if key is not None]


def full_target(target: str | None, rounds: dict[str, Round]) -> str | None:
    """A round's bare name means all of it, that is its last step."""
    return f"evaluate@{target}" if target in rounds else target


def params_changed(root: Path) -> bool:
    """Whether somebody edited params/ after the last `queen configure`."""
    return compose(root, chosen(root)) != read_params(root)


def require_resolved(root: Path) -> None:
    """Raise QueenError unless `queen configure` has written params and every round's values."""
    read_params(root)
    open_rounds = [key for key, entry in read_rounds(root).items() if not entry.resolved]
    if open_rounds:
        raise QueenError(
            f"rounds without values: {', '.join(open_rounds)}",
            where="params/rounds.yaml",
            remedy="run `queen configure`, which writes them out",
        )
