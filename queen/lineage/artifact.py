"""Artifacts: a folder of data files and the record that says they are complete.

`record.json` is written last, by rename. With a record a folder is an artifact, without one it
is rubble. The record holds nothing that differs between two honest runs of the same work: DVC
hashes it with the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from queen.errors import QueenError

SCHEMA = 1
RECORD = "record.json"


class ArtifactError(QueenError):
    """An artifact that is missing, incomplete or not what its record says."""


@dataclass(frozen=True)
class FileEntry:
    """One data file: name relative to the folder, bytes, SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class InputEntry:
    """One input: the role it plays, the artifact's name, its content hash."""

    role: str
    name: str
    content: str


@dataclass(frozen=True)
class Draft:
    """What a stage says about an artifact it has written.

    Attributes:
        counts: how many went in, came out, were kept, by name.
        drops: how many were dropped, by reason.
        figures: results that are a function of the inputs (accuracy, Elo ...).
        identities: engines and models that took part, by role.
        licences: licences of the sources that flowed in, by source.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    drops: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    identities: Mapping[str, Any] = field(default_factory=dict)
    licences: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """The deterministic record of an artifact."""

    name: str
    stage: str
    version: int
    recipe: str
    seed: int
    params: Mapping[str, Any]
    inputs: tuple[InputEntry, ...]
    shards: tuple[str, ...]
    files: tuple[FileEntry, ...]
    counts: Mapping[str, int]
    drops: Mapping[str, int]
    figures: Mapping[str, float]
    identities: Mapping[str, Any]
    licences: Mapping[str, str]
    schema: int = SCHEMA

    @property
    def content(self) -> str:
        """Hash of the data files alone: like work under another name has the same."""
        return content_hash(self.files)


@dataclass(frozen=True)
class Artifact:
    """A complete artifact on disk."""

    path: Path
    record: Record

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def content(self) -> str:
        return self.record.content

    def file(self, name: str) -> Path:
        """The path of one data file. Raises ArtifactError if the record does not list it."""
        if not any(entry.name == name for entry in self.record.files):
            raise ArtifactError(
                f"the artifact holds no file {name!r}",
                where=str(self.path),
                remedy=f"run the stage {self.record.stage!r} again",
            )
        return self.path / name


def file_digest(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_hash(files: tuple[FileEntry, ...]) -> str:
    """One SHA-256 over names, sizes and hashes of the data files, in name order."""
    rows = [[entry.name, entry.size, entry.sha256] for entry in sorted_files(files)]
    return hashlib.sha256(orjson.dumps(rows)).hexdigest()


def sorted_files(files: tuple[FileEntry, ...]) -> list[FileEntry]:
    return sorted(files, key=lambda entry: entry.name)


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value with sorted keys. Raises TypeError on what JSON cannot hold."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def describe_files(folder: Path) -> tuple[FileEntry, ...]:
    """Every file under a folder but the record itself."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != RECORD)
    return tuple(
        FileEntry(p.relative_to(folder).as_posix(), p.stat().st_size, file_digest(p)) for p in paths
    )


def partial_folder(final: Path) -> Path:
    """Where an artifact is built before it is whole: beside its place, hidden."""
    return final.parent / f".{final.name}.partial"


def fresh_partial(final: Path) -> Path:
    """An empty folder to build in; what a killed run left there goes."""
    folder = partial_folder(final)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def publish(partial: Path, final: Path, record: Record) -> Artifact:
    """Write the record, then move the folder into place; an older artifact there goes last."""
    write_json(partial / RECORD, asdict(record))
    retired = final.parent / f".{final.name}.retired"
    shutil.rmtree(retired, ignore_errors=True)
    if final.exists():
        os.replace(final, retired)
    os.replace(partial, final)
    shutil.rmtree(retired, ignore_errors=True)
    return Artifact(final, record)


def write_json(path: Path, value: Any) -> None:
    """JSON with sorted keys, written beside and renamed, so never half there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    option = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    with temporary.open("wb") as stream:
        stream.write(orjson.dumps(value, option=option))
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def read_json(path: Path) -> Any:
    """A JSON file. Raises ArtifactError naming it if it is missing or broken."""
    try:
        return orjson.loads(path.read_bytes())
    except FileNotFoundError:
        raise ArtifactError("the file is missing", where=str(path), remedy="rebuild it") from None
    except orjson.JSONDecodeError as error:
        raise ArtifactError(
            f"not JSON: {error}", where=str(path), remedy="restore it with dvc checkout or rebuild"
        ) from error


def read_record(folder: Path) -> Record:
    """The record of an artifact. Raises ArtifactError if there is none or it is broken."""
    if not (folder / RECORD).is_file():
        raise ArtifactError(
            "no complete artifact here (record.json is missing)",
            where=str(folder),
            remedy="run the stage that makes it: `queen run`",
        )
    raw = read_json(folder / RECORD)
    try:
        raw["inputs"] = tuple(InputEntry(**row) for row in raw["inputs"])
        raw["files"] = tuple(FileEntry(**row) for row in raw["files"])
        raw["shards"] = tuple(raw["shards"])
        return Record(**raw)
    except (KeyError, TypeError) as error:
        raise ArtifactError(
            f"the record does not have this version's fields: {error}",
            where=str(folder / RECORD),
            remedy="run the stage again",
        ) from error


def open_artifact(folder: Path) -> Artifact:
    """Open an artifact, its files' sizes checked (hashes are `verify`'s matter)."""
    record = read_record(folder)
    for problem in size_problems(folder, record):
        raise ArtifactError(problem, where=str(folder), remedy="dvc checkout, or run it again")
    return Artifact(folder, record)


def artifact_folders(root: Path) -> list[Path]:
    """The folders of a project that hold a record: those of data, of data by key, models; sorted.

    What is released stands aside: it is no output of the pipeline.
    """
    patterns = (f"data/*/{RECORD}", f"data/*/*/{RECORD}", f"models/*/{RECORD}")
    found = [path.parent for pattern in patterns for path in sorted(root.glob(pattern))]
    return [p for p in found if not any(s.startswith(".") for s in p.relative_to(root).parts)]


def whole_artifacts(root: Path) -> Iterator[Artifact]:
    """Every artifact of a project that can be opened, as `artifact_folders` orders them."""
    for folder in artifact_folders(root):
        with contextlib.suppress(QueenError):
            yield open_artifact(folder)


def size_problems(folder: Path, record: Record) -> Iterator[str]:
    """What is missing or has another size than the record says."""
    for entry in record.files:
        path = folder / entry.name
        if not path.is_file():
            yield f"file {entry.name} is missing"
        elif path.stat().st_size != entry.size:
            yield f"file {entry.name} has {path.stat().st_size} bytes, recorded {entry.size}"


def hash_problems(folder: Path, record: Record) -> Iterator[str]:
    """Everything in the folder that is not what the record says, down to one byte."""
    yield from size_problems(folder, record)
    listed = {entry.name for entry in record.files}
    for entry in record.files:
        path = folder / entry.name
        same_size = path.is_file() and path.stat().st_size == entry.size
        if same_size and file_digest(path) != entry.sha256:
            yield f"file {entry.name} has another hash than recorded"
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if name != RECORD and name not in listed:
            yield f"file {name} is not in the record"


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a full or read-only disk into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise ArtifactError(
            f"cannot write: {error.strerror or error}",
            where=str(error.filename or folder),
            remedy="make room or mend permissions, then run again: finished shards are kept",
        ) from error
