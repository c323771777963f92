"""A folder or bucket that several machines reach, by an fsspec URL: small files, read and written.

Nothing here is cached, since others write there too. What is written or sent appears whole or not
at all: it lies beside its place first and is moved. Only what is created, so that one of several
succeeds, may be met empty or cut short for a moment in a folder; buckets put it whole.
"""

from __future__ import annotations

import posixpath
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from queen.errors import QueenError

T = TypeVar("T")
PAUSES_S = (0.5, 1.0, 2.0, 4.0)  # a store over a network now and then fails and recovers
ANSWERS = (FileNotFoundError, FileExistsError, IsADirectoryError)
PART = ".part"
_creating = threading.Lock()


class StoreError(QueenError):
    """The shared store cannot be reached or written."""


class Remote:
    """Files under one URL.

    Args:
        url: a path, or `file://`, `s3://`, `gs://`, `memory://` ... as fsspec knows them; access
            keys come from the environment or fsspec's own configuration.

    Raises StoreError from every method where the store keeps failing.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url
        try:
            self._fs, self._root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise StoreError(
                f"no file system for this URL: {error}",
                where=url,
                remedy="correct machine.store or QUEEN_STORE, or install fsspec's driver for it",
            ) from error

    def names(self, folder: str) -> set[str]:
        """Names of the files in a folder; none where there is no folder."""
        path = self._path(folder)

        def listed() -> list[str]:
            self._fs.invalidate_cache()
            return list(self._fs.ls(path, detail=False))

        try:
            found = {posixpath.basename(name.rstrip("/")) for name in self._tried(listed)}
        except FileNotFoundError:
            return set()
        return {name for name in found if name and not name.endswith(PART)}

    def exists(self, name: str) -> bool:
        """Whether a file is there now."""

        def there() -> bool:
            self._fs.invalidate_cache()
            return bool(self._fs.exists(self._path(name)))

        return self._tried(there)

    def read(self, name: str) -> bytes | None:
        """A file's bytes; None where it is missing."""
        try:
            return bytes(self._tried(lambda: self._fs.cat_file(self._path(name))))
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it is there: of several at once one succeeds."""
        path = self._path(name)
        try:
            self._tried(lambda: self._make(path, data))
        except FileExistsError:
            return False
        return True

    def _make(self, path: str, data: bytes) -> None:
        """Create a file; FileExistsError if it is there.

        fsspec looks first and writes then, but where a store can do both at once (S3 and its
        like). A folder can, also over NFS; in memory all are threads of one process.
        """
        self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
        if "file" in _protocols(self._fs):
            with open(path, "xb") as made:
                made.write(data)
            return
        with _creating:
            self._fs.pipe_file(path, data, mode="create")

    def write(self, name: str, data: bytes) -> None:
        """Write a small file over what is there, in place when whole."""
        self._placed(name, lambda part: self._fs.pipe_file(part, data))

    def send(self, source: Path, name: str) -> None:
        """Copy a local file to the store, in place when whole."""
        self._placed(name, lambda part: self._fs.put_file(str(source), part))

    def fetch(self, name: str, target: Path) -> bool:
        """Copy a file of the store here; False where it is missing."""
        try:
            self._tried(lambda: self._fs.get_file(self._path(name), str(target)))
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Delete a file if it is there."""
        try:
            self._tried(lambda: self._fs.rm_file(self._path(name)))
        except FileNotFoundError:
            return

    def _placed(self, name: str, fill: Callable[[str], object]) -> None:
        """Fill a file beside its place, then move it there."""
        path = self._path(name)
        part = f"{path}.{secrets.token_hex(6)}{PART}"

        def put() -> None:
            self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
            fill(part)
            self._fs.mv(part, path)

        self._tried(put)

    def _path(self, name: str) -> str:
        return posixpath.join(self._root, name)

    def _tried(self, action: Callable[[], T]) -> T:
        """Do it, again after pauses where the store fails; a plain yes or no is an answer."""
        for pause in (*PAUSES_S, None):
            try:
                return action()
            except ANSWERS:
                raise
            except OSError as error:
                if pause is None or isinstance(error, PermissionError):
                    raise self._out_of_reach(error) from error
            time.sleep(pause)
        raise AssertionError("unreachable")

    def _out_of_reach(self, error: Any) -> StoreError:
        return StoreError(
            f"the shared store fails: {error}",
            where=self.url,
            remedy="mend the folder or bucket and run again: finished shards are kept; with "
            "machine.store and QUEEN_STORE empty this machine works alone",
        )


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
