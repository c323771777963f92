"""The shared store: shards, inputs and open work that several machines exchange.

| under the URL | what |
|---|---|
| `shards/<stage>/<key>.tar` | a finished shard, its manifest inside |
| `leases/<stage>/<key>.<n>` | who is at work on one (`queen.lineage.leases`) |
| `offers/<recipe>.json` | work that a run waits for |
| `artifacts/<content>/` | inputs of offered work, the record last |

All of it may be deleted while nobody runs; shards are then worked again, or found in the state
folders of those who made them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from queen.errors import QueenError
from queen.lineage.artifact import RECORD, Artifact, hash_problems, open_artifact, read_record
from queen.lineage.remote import Remote
from queen.lineage.store import ShardStore

STORE = "QUEEN_STORE"
SHARD = ".tar"
OFFER = ".json"


def store_url(chosen: str) -> str:
    """The shared store's URL: QUEEN_STORE, else what the params choose; empty for none."""
    return os.environ.get(STORE, chosen)


class SharedStore:
    """One shared store.

    Args:
        remote: where it is.
        local: this machine's shards.
    """

    def __init__(self, remote: Remote, local: ShardStore) -> None:
        self.remote, self._local = remote, local

    # -- shards -----------------------------------------------------------------------------

    def finished(self, stage: str) -> set[str]:
        """Keys of the shards of a stage that are there."""
        names = self.remote.names(f"shards/{stage}")
        return {name.removesuffix(SHARD) for name in names if name.endswith(SHARD)}

    def has(self, stage: str, key: str) -> bool:
        return self.remote.exists(_shard(stage, key))

    def push(self, stage: str, key: str) -> None:
        """Send this machine's shard, unless it is there."""
        if self.has(stage, key):
            return
        with tempfile.TemporaryDirectory(dir=self._local.root) as folder:
            packed = Path(folder) / "shard.tar"
            with tarfile.open(packed, "w") as tar:
                for path in sorted(self._local.path(stage, key).rglob("*")):
                    tar.add(path, path.relative_to(self._local.path(stage, key)), recursive=False)
            self.remote.send(packed, _shard(stage, key))

    def pull(self, stage: str, key: str) -> bool:
        """Take a shard over into this machine's store; False if it is missing or damaged there.

        A damaged one is deleted, so that somebody works it again.
        """
        self._local.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._local.root) as folder:
            packed = Path(folder) / "shard.tar"
            if not self.remote.fetch(_shard(stage, key), packed):
                return False
            try:
                _unpack(packed, Path(folder) / key)
            except (tarfile.TarError, OSError):
                (Path(folder) / key).mkdir(exist_ok=True)
            if self._local.adopt(stage, key, Path(folder) / key):
                return True
        self.remote.remove(_shard(stage, key))
        return False

    # -- inputs -----------------------------------------------------------------------------

    def push_artifact(self, artifact: Artifact) -> None:
        """Send an artifact's files, the record last, unless it is there."""
        name = f"artifacts/{artifact.content}"
        if self.remote.exists(f"{name}/{RECORD}"):
            return
        for entry in artifact.record.files:
            self.remote.send(artifact.path / entry.name, f"{name}/{entry.name}")
        self.remote.send(artifact.path / RECORD, f"{name}/{RECORD}")

    def pull_artifact(self, content: str, folder: Path) -> Artifact:
        """An artifact by its content hash, fetched into `<folder>/<content>` unless it is there.

        Raises QueenError if the store has none, or what it has is not what its record says.
        """
        final = folder / content
        if not (final / RECORD).is_file():
            building = folder / f".{content}.{secrets.token_hex(6)}"
            try:
                self._fetch_artifact(content, building)
                if not final.exists():
                    os.replace(building, final)
            finally:
                shutil.rmtree(building, ignore_errors=True)
        return open_artifact(final)

    def _fetch_artifact(self, content: str, building: Path) -> None:
        name, where = f"artifacts/{content}", f"{self.remote.url}: artifact {content[:12]}"
        building.mkdir(parents=True)
        if not self.remote.fetch(f"{name}/{RECORD}", building / RECORD):
            raise QueenError(
                "the store has no such input",
                where=where,
                remedy="let the run that offers this work send it (machine.send_inputs=true), or "
                "`dvc pull` it here",
            )
        record = read_record(building)
        for entry in record.files:
            (building / entry.name).parent.mkdir(parents=True, exist_ok=True)
            self.remote.fetch(f"{name}/{entry.name}", building / entry.name)
        for problem in hash_problems(building, record):
            raise QueenError(problem, where=where, remedy="delete it in the store; it is sent anew")

    # -- open work --------------------------------------------------------------------------

    def offer(self, name: str, value: Mapping[str, Any]) -> None:
        """Say that a run waits for work."""
        self.remote.write(f"offers/{name}{OFFER}", orjson.dumps(value))

    def withdraw(self, name: str) -> None:
        self.remote.remove(f"offers/{name}{OFFER}")

    def offers(self) -> Iterator[dict[str, Any]]:
        """What runs wait for now, in order of names."""
        for name in sorted(self.remote.names("offers")):
            data = self.remote.read(f"offers/{name}")
            try:
                value = orjson.loads(data or b"")
            except orjson.JSONDecodeError:
                continue  # withdrawn meanwhile, or damaged
            if isinstance(value, dict):
                yield value


def _shard(stage: str, key: str) -> str:
    return f"shards/{stage}/{key}{SHARD}"


def _unpack(packed: Path, folder: Path) -> None:
    """Unpack a shard: plain files below the folder, nothing else. Raises tarfile.TarError."""
    folder.mkdir()
    with tarfile.open(packed) as tar:
        for member in tar:
            target = (folder / member.name).resolve()
            if member.isdir():
                continue
            source = tar.extractfile(member) if member.isreg() else None
            if source is None or not target.is_relative_to(folder.resolve()):
                raise tarfile.ReadError(f"{member.name!r} has no place in a shard")
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, target.open("wb") as out:
                shutil.copyfileobj(source, out)
