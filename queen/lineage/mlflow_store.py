"""MLflow, told what the run records say: runs, inputs by content hash, versions, champion.

Everything here is looked up before it is made, so sending twice makes nothing twice. URIs and
digests go in, never weights. `MLFLOW_TRACKING_URI` names the store, else SQLite in the state
folder. MLflow is imported on first use.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from queen.lineage.artifact import read_json, write_json
from queen.lineage.tracking import DONE, figure_rows, read_run, run_name
from queen.lineage.verdicts import Judgement, read_verdicts

EXPERIMENT = "queen"
MODEL = "queen"
CHAMPION = "champion"
SENT_FILE = "mlflow.json"
MODEL_STAGES = ("pawn", "pawn1", "train")
STATUS = {**dict.fromkeys(DONE, "FINISHED"), "killed": "KILLED"}
NAME = re.compile(r"[^\w\-./ :]")
BATCH = 900
LIMIT = 5000


def tracking_uri(state: Path) -> str:
    """Where MLflow's store is."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{state / 'mlflow.db'}"


class MlflowStore:
    """The experiment and the registered model `queen` in one MLflow store."""

    def __init__(self, client: Any, uri: str) -> None:
        self.client, self.uri = client, uri
        self.experiment = self._experiment()

    @classmethod
    def open(cls, state: Path) -> MlflowStore:
        """Connect; MLflow is imported here. Raises whatever MLflow raises."""
        _quiet()
        from mlflow.tracking import MlflowClient

        uri = tracking_uri(state)
        if uri not in _CLIENTS:
            _make_database(uri)
            _CLIENTS[uri] = MlflowClient(tracking_uri=uri, registry_uri=uri)
        return cls(_CLIENTS[uri], uri)

    def _experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(EXPERIMENT)
        if found is None:
            try:
                return str(self.client.create_experiment(EXPERIMENT))
            except MlflowException:
                found = self.client.get_experiment_by_name(EXPERIMENT)
        return str(found.experiment_id)

    def has(self, folder: Path) -> bool:
        """Whether a run is wholly in this store, by the note beside its record."""
        return bool(_sent(folder).get(self.uri, {}).get("finished"))

    def send(self, folder: Path) -> bool:
        """Send a run as far as it has come; returns whether it is finished and all is there."""
        values = read_run(folder)
        note = _sent(folder)
        mine = note.get(self.uri) or {"run": self._run_id(values), "rows": 0, "finished": False}
        note[self.uri] = mine
        write_json(folder / SENT_FILE, note)
        rows = figure_rows(folder, int(mine["rows"]))
        self._send_rows(mine["run"], rows)
        mine["rows"] = int(mine["rows"]) + len(rows)
        if values["status"] != "running" and not mine["finished"]:
            self._finish(mine["run"], values, int(mine["rows"]))
            mine["finished"] = True
        write_json(folder / SENT_FILE, note)
        return bool(mine["finished"])

    def _run_id(self, values: Mapping[str, Any]) -> str:
        """The run of this record: the one a killed sender made, else a new one."""
        query = f"tags.`queen.run` = '{values['id']}'"
        found = self.client.search_runs([self.experiment], query, max_results=1)
        if found:
            return str(found[0].info.run_id)
        run = self.client.create_run(
            self.experiment,
            start_time=int(values["started"] * 1000),
            run_name=run_name(values["stage"], values["key"]),
            tags=_tags(values),
        )
        self._send_inputs(run.info.run_id, values)
        return str(run.info.run_id)

    def _send_inputs(self, run_id: str, values: Mapping[str, Any]) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag, Param

        params = [Param(_name(k), str(v)[:LIMIT]) for k, v in _flat(values["params"])]
        for start in range(0, len(params), 100):
            self.client.log_batch(run_id, params=params[start : start + 100])
        inputs = [
            DatasetInput(
                Dataset(
                    name=entry["name"],
                    digest=entry["digest"][:36],
                    source_type="dvc",
                    source=json.dumps({"uri": dvc_uri(entry["name"], entry["digest"])}),
                ),
                [InputTag("mlflow.data.context", "input"), InputTag("content", entry["digest"])],
            )
            for entry in values["inputs"]
        ]
        if inputs:
            self.client.log_inputs(run_id, inputs)

    def _send_rows(self, run_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(_name(key), float(value), int(row["time"] * 1000), int(row["step"]))
            for row in rows
            for key, value in row["figures"].items()
        ]
        for start in range(0, len(metrics), BATCH):
            self.client.log_batch(run_id, metrics=metrics[start : start + BATCH])

    def _finish(self, run_id: str, values: Mapping[str, Any], rows: int) -> None:
        from mlflow.entities import RunTag

        costs = {k: values[k] for k in ("wall_s", "cpu_s", "peak_mb") if k in values}
        ended = float(values.get("ended", values["started"]))
        row = {"step": rows, "time": ended, "figures": {**values.get("figures", {}), **costs}}
        self._send_rows(run_id, [row])
        outputs = values.get("outputs", ())
        tags = {"status": values["status"], "error": str(values.get("error", ""))[:LIMIT]}
        for entry in outputs[:1]:
            tags.update(artifact=entry["name"], content=entry["digest"])
        self.client.log_batch(run_id, tags=[RunTag(k, v) for k, v in tags.items() if v])
        status = STATUS.get(values["status"], "FAILED")
        self.client.set_terminated(run_id, status, int(ended * 1000))

    def find(self, content: str) -> list[Any]:
        """The runs that wrote an artifact of this content hash, newest first."""
        query = f"tags.content = '{content}'"
        return list(self.client.search_runs([self.experiment], query))

    def register(self, root: Path, runs: Sequence[Mapping[str, Any]]) -> list[str]:
        """A version for every model that the runs wrote; verdicts as tags; the champion's alias.

        Returns:
            The models for which a version was made.
        """
        self._ensure_model()
        known = {(v.tags.get("round"), v.tags.get("content")) for v in self.versions()}
        made = []
        for key, digest, name in _models(runs):
            if (key, digest) not in known:
                known.add((key, digest))
                self._create_version(key, digest, name)
                made.append(key)
        self._tag_verdicts(root)
        return made

    def _ensure_model(self) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self.client.get_registered_model(MODEL)
        except MlflowException:
            self.client.create_registered_model(MODEL)

    def versions(self) -> list[Any]:
        """All versions of the registered model, oldest first."""
        found = self.client.search_model_versions(f"name='{MODEL}'", max_results=10000)
        return sorted(found, key=lambda version: int(version.version))

    def _create_version(self, key: str, digest: str, name: str) -> None:
        runs = self.find(digest)
        self.client.create_model_version(
            MODEL,
            dvc_uri(name, digest),
            run_id=runs[0].info.run_id if runs else None,
            tags={"round": key, "content": digest},
        )

    def _tag_verdicts(self, root: Path) -> None:
        verdicts = read_verdicts(root)
        newest = {version.tags.get("round"): version for version in self.versions()}
        for key, judgement in verdicts.models.items():
            if key in newest:
                self._tag_version(newest[key], judgement)
        if verdicts.champion in newest and self.champion() != verdicts.champion:
            version = newest[verdicts.champion].version
            self.client.set_registered_model_alias(MODEL, CHAMPION, version)

    def _tag_version(self, version: Any, judgement: Judgement) -> None:
        tags = {"verdict": judgement.verdict, "reason": judgement.reason}
        tags |= {"parent": judgement.parent, "set_aside": str(judgement.set_aside).lower()}
        for name, value in tags.items():
            if version.tags.get(name) != value:
                self.client.set_model_version_tag(MODEL, version.version, name, value)

    def champion(self) -> str | None:
        """The model that the alias names, or None."""
        from mlflow.exceptions import MlflowException

        try:
            version = self.client.get_model_version_by_alias(MODEL, CHAMPION)
        except MlflowException:
            return None
        return str(version.tags.get("round"))


_CLIENTS: dict[str, Any] = {}


def _make_database(uri: str) -> None:
    """Make a new SQLite store beside its place and move it there whole (it takes seconds)."""
    path = Path(uri.removeprefix("sqlite:///"))
    if not uri.startswith("sqlite:///") or path.exists():
        return
    from mlflow.tracking import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    building = path.with_name(f".{path.name}.{os.getpid()}")
    building.unlink(missing_ok=True)
    client = MlflowClient(
        tracking_uri=f"sqlite:///{building}", registry_uri=f"sqlite:///{building}"
    )
    client.create_experiment(EXPERIMENT, artifact_location=str(path.with_name("mlflow-artifacts")))
    with contextlib.suppress(FileExistsError):
        os.link(building, path)
    building.unlink()


def dvc_uri(name: str, digest: str) -> str:
    """Where a model or data set is: a path in the DVC project, at a content hash."""
    return f"dvc:///{name}?content={digest}"


def _models(runs: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Key, content hash and path of each model that the runs wrote, oldest run first."""
    for values in sorted(runs, key=lambda run: float(run["started"])):
        if values["stage"] in MODEL_STAGES and values["status"] in DONE:
            for entry in values["outputs"]:
                yield entry["name"].rsplit("/", 1)[-1], entry["digest"], entry["name"]


def _sent(folder: Path) -> dict[str, Any]:
    path = folder / SENT_FILE
    found: dict[str, Any] = read_json(path) if path.is_file() else {}
    return found


def _tags(values: Mapping[str, Any]) -> dict[str, str]:
    tags = {
        "queen.run": values["id"],
        "stage": values["stage"],
        "round": values["key"] or "",
        "commit": values.get("commit", ""),
        "dirty": str(values.get("dirty", "")).lower(),
        "host": values.get("host", ""),
        "prefect.flow_run": values.get("flow_run", ""),
        "mlflow.source.name": f"stages/{values['stage']}.py",
        "mlflow.source.git.commit": values.get("commit", ""),
        **values.get("tags", {}),
    }
    return {key: str(value)[:LIMIT] for key, value in tags.items() if value}


def _flat(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in sorted(params.items()):
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _name(text: str) -> str:
    return NAME.sub("_", text)[:250]


def _quiet() -> None:
    """No telemetry, no chatter, no minutes of retries."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    logging.getLogger("alembic").setLevel(logging.WARNING)
