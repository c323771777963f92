"""Bringing MLflow to where the project is: the outbox, missing lineage, the champion."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from queen.errors import QueenError
from queen.lineage.artifact import Artifact, whole_artifacts
from queen.lineage.lock import exclusive
from queen.lineage.mlflow_store import MODEL_STAGES, MlflowStore, tracking_uri
from queen.lineage.tracking import (
    Input,
    Output,
    StageRun,
    announced,
    read_run,
    retract,
    run_folders,
)


class TrackingError(QueenError):
    """MLflow cannot be reached, or refuses."""


@dataclass(frozen=True)
class Synced:
    """What `sync` did: runs sent, lineage filled from records, versions made, the champion."""

    uri: str
    sent: int
    filled: tuple[str, ...]
    versions: tuple[str, ...]
    champion: str | None


def send_outbox(root: Path, state: Path) -> str:
    """Send what waits in the outbox, finished or not; returns the fault, or nothing."""
    folders = announced(state)
    if not folders:
        return ""
    try:
        with exclusive(state / "outbox.lock"):
            store = MlflowStore.open(state)
            sent = [folder for folder in folders if store.send(folder)]
            if any(_is_model_work(folder) for folder in sent):
                store.register(root, [read_run(folder) for folder in sent])
        for folder in sent:
            retract(state, folder)
    except Exception as error:  # whatever MLflow, its database or its server does
        return _first_line(error)
    return ""


def sync(root: Path, state: Path) -> Synced:
    """Bring MLflow to where the state folder, the artifacts and verdicts.json are.

    Sends every run it does not have, fills the lineage of artifacts that no run made here (they
    came out of DVC's cache), registers models, moves the alias `champion`.

    Raises:
        TrackingError: MLflow cannot be reached.
    """
    filled = fill_lineage(root, state)
    try:
        with exclusive(state / "outbox.lock"):
            store = MlflowStore.open(state)
            folders = run_folders(state)
            sent = [folder for folder in folders if not store.has(folder) and store.send(folder)]
            versions = store.register(root, [read_run(folder) for folder in folders])
            champion = store.champion()
    except Exception as error:
        raise TrackingError(
            f"MLflow did not take it: {_first_line(error)}",
            where=tracking_uri(state),
            remedy="start or name the server (MLFLOW_TRACKING_URI); nothing is lost meanwhile",
        ) from error
    for folder in sent:
        retract(state, folder)
    return Synced(store.uri, len(sent), tuple(filled), tuple(versions), champion)


def follow_verdicts(root: Path, state: Path) -> str:
    """Bring versions' verdicts and the alias up to verdicts.json; returns the fault, or nothing."""
    try:
        with exclusive(state / "outbox.lock"):
            runs = [read_run(folder) for folder in run_folders(state)]
            MlflowStore.open(state).register(root, runs)
    except Exception as error:
        return _first_line(error)
    return ""


def fill_lineage(root: Path, state: Path) -> list[str]:
    """Make a run record for each artifact whose content no run has written; returns their names."""
    known = {
        (entry["name"], entry["digest"])
        for folder in run_folders(state)
        for entry in read_run(folder).get("outputs", ())
    }
    filled = []
    for artifact in sorted(whole_artifacts(root), key=lambda each: each.path):
        if (artifact.name, artifact.content) not in known:
            _restored_run(root, state, artifact)
            filled.append(artifact.name)
    return filled


def _restored_run(root: Path, state: Path, artifact: Artifact) -> None:
    record = artifact.record
    keyed = record.stage == "train" or artifact.name.count("/") > 1
    values = {
        "stage": record.stage,
        "key": artifact.name.rsplit("/", 1)[-1] if keyed else None,
        "params": dict(record.params),
        "inputs": [asdict(Input(entry.name, entry.content)) for entry in record.inputs],
        "tags": {"origin": "restored from DVC"},
    }
    run = StageRun(root, state, values, send=False)
    figures = {**{f"count.{k}": float(v) for k, v in record.counts.items()}, **record.figures}
    run.finish("restored", [Output(artifact.name, artifact.content)], figures)


def _is_model_work(folder: Path) -> bool:
    return folder.parent.name.split("@")[0] in (*MODEL_STAGES, "evaluate", "judge")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__
