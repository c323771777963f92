"""The shard store: finished pieces of work under a key of all that matters to them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from queen.errors import QueenError
from queen.lineage.artifact import digest_of, file_digest, read_json, write_json, writing
from queen.lineage.lock import exclusive

MANIFEST = "shard.json"
PLACING = "placing.lock"
_BROKEN = (QueenError, AttributeError, KeyError, TypeError)  # what a broken manifest raises


class ShardStore:
    """Folders of files under `<root>/<stage>/<key>`, complete once their manifest is there.

    Shards become outputs by copy, never by hard link: DVC would make the store read-only.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, stage: str, key: str) -> Path:
        return self.root / stage / key

    def get(self, stage: str, key: str) -> Path | None:
        """The finished shard, or None. One whose manifest is broken or whose files changed
        size counts as absent."""
        folder = self.path(stage, key)
        if not (folder / MANIFEST).is_file():
            return None
        try:
            sizes = read_json(folder / MANIFEST)["files"]
            whole = all(
                (folder / name).is_file() and (folder / name).stat().st_size == entry["size"]
                for name, entry in sizes.items()
            )
        except _BROKEN:
            return None
        return folder if whole else None

    def put(self, stage: str, key: str, work: Callable[[Path], object]) -> Path:
        """Do the work into a fresh folder and move it into place; returns the shard's folder."""
        final = self.path(stage, key)
        building = final.parent / f".{key}.{os.getpid()}"
        with writing(final):
            shutil.rmtree(building, ignore_errors=True)
            building.mkdir(parents=True)
        try:
            work(building)
            with writing(final):
                write_json(building / MANIFEST, {"files": _sizes(building)})
                self._place(stage, key, building)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return final

    def adopt(self, stage: str, key: str, folder: Path) -> bool:
        """Take in a shard that another machine finished, if it is what its manifest says."""
        if any(_faults(folder, f"{stage}/{key}")):
            return False
        with writing(folder):
            self.path(stage, key).parent.mkdir(parents=True, exist_ok=True)
            self._place(stage, key, folder)
        return True

    def _place(self, stage: str, key: str, building: Path) -> None:
        """Move a whole shard into place, unless another process was first with the same."""
        final = self.path(stage, key)
        with exclusive(self.root / PLACING):
            if self.get(stage, key) is not None:
                shutil.rmtree(building, ignore_errors=True)
                return
            shutil.rmtree(final, ignore_errors=True)
            os.replace(building, final)

    def keys(self) -> Iterator[tuple[str, str, Path]]:
        """Every shard folder as (stage, key, path), unfinished ones too (key starts with '.')."""
        for stage in sorted(p for p in self.root.glob("*") if p.is_dir()):
            for folder in sorted(p for p in stage.iterdir() if p.is_dir()):
                yield stage.name, folder.name, folder

    def problems(self, stage: str, key: str) -> Iterator[str]:
        """What in a finished shard is not what its manifest says."""
        yield from _faults(self.path(stage, key), f"{stage}/{key}")


def shard_key(parts: dict[str, object]) -> str:
    """The key of a shard: a hash of everything its bytes depend on.

    Raises QueenError if a part cannot be hashed: a value that is no JSON is a mistake.
    """
    try:
        return digest_of(parts)[:40]
    except TypeError as error:
        raise QueenError(
            f"a value cannot be part of a shard's key: {error}",
            where=str(sorted(parts)),
            remedy="make params and shard specs of JSON values only",
        ) from error


def _faults(folder: Path, shard: str) -> Iterator[str]:
    try:
        digests = {n: e["sha256"] for n, e in read_json(folder / MANIFEST)["files"].items()}
    except _BROKEN:
        yield f"shard {shard}: its manifest is missing or broken"
        return
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file() or file_digest(path) != digest:
            yield f"shard {shard}: file {name} is missing or changed"


def _sizes(folder: Path) -> dict[str, dict[str, object]]:
    return {
        path.relative_to(folder).as_posix(): {
            "size": path.stat().st_size,
            "sha256": file_digest(path),
        }
        for path in sorted(p for p in folder.rglob("*") if p.is_file())
    }
