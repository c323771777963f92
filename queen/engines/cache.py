"""Searches kept between runs: one SQLite file shared by every stage, round and process."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from queen.engines.closing import ClosedAtExit
from queen.errors import QueenError

APPLICATION = 0x5155454E  # "QUEN", SQLite's application_id
FORMAT = 1
CHUNK = 500
DAY = 86_400
_HEADER = b"SQLite format 3\x00"

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS keys (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS searches (
    id INTEGER PRIMARY KEY, key INTEGER NOT NULL, fen TEXT NOT NULL,
    answer BLOB NOT NULL, day INTEGER NOT NULL, UNIQUE (key, fen));
CREATE TABLE IF NOT EXISTS labels (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS uses (
    label INTEGER NOT NULL, search INTEGER NOT NULL, PRIMARY KEY (label, search)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS uses_by_search ON uses (search);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {FORMAT};
"""


class CacheError(QueenError):
    """The search cache cannot be read or written."""


@dataclass
class CacheStatistics:
    """Counts since the cache was opened by this object."""

    hits: int = 0
    misses: int = 0
    written: int = 0


@dataclass(frozen=True)
class Pruned:
    """What a pruning removes: labels, searches, and bytes of keys and answers."""

    labels: int
    searches: int
    bytes: int


_label: ContextVar[str | None] = ContextVar("search_cache_label", default=None)
_inherited: list[sqlite3.Connection] = []  # a parent's connections: never closed in a child


class SearchCache(ClosedAtExit):
    """Answers of engines by (key, FEN); see `queen.engines.analysis.search_key` for the key.

    Safe with several threads and processes, and against kill -9 at any point (write-ahead log).
    A damaged file is moved aside with a warning when it is opened; damage met later, a full
    disk or a lock held too long raise CacheError with the remedy.

    Args:
        path: the database; its folder is made.
        busy_timeout_s: how long to wait for other processes' writes.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = 60.0) -> None:
        self.path = Path(path)
        self.statistics = CacheStatistics()
        self._busy_timeout_s = busy_timeout_s
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._keys: dict[str, int] = {}
        self._connection = self._open()

    # -- opening ----------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._error(f"its folder cannot be made: {error}", "choose another") from error
        inode = _inode(self.path)
        with self._explained():
            try:
                return self._connect()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as error:
                self._move_aside(error, inode)
                return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            self._check_kind(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            self._make_tables(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_kind(self, connection: sqlite3.Connection) -> None:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if tables and application != APPLICATION:
            raise self._error("a database of another program", "choose another path")
        if tables and version != FORMAT:
            what = f"a search cache of format {version}, this program reads {FORMAT}"
            raise self._error(what, "move the file away: searches are computed again")

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        if connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT:
            connection.execute("SELECT id FROM searches LIMIT 1").fetchone()
            return
        connection.executescript("BEGIN IMMEDIATE;" + _SCHEMA + "COMMIT;")

    def _move_aside(self, error: sqlite3.DatabaseError, inode: int | None) -> None:
        """Keep a damaged file under another name, unless another process has just done so."""
        with self.path.open("rb") as file:
            if file.read(len(_HEADER)) != _HEADER:
                raise self._error("not a search cache", "choose another path, or delete the file")
        if _inode(self.path) != inode:
            return
        aside = _free_name(self.path)
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")
        warnings.warn(
            f"search cache {self.path} is damaged ({error}); kept as {aside.name}, "
            "its searches are computed again",
            stacklevel=4,
        )

    def _error(self, what: str, remedy: str) -> CacheError:
        return CacheError(what, where=f"search cache {self.path}", remedy=remedy)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """SQLite's errors as ours, each with its remedy."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(str(error), _remedy(error)) from error

    @contextlib.contextmanager
    def _session(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        with self._lock, self._explained():
            self._after_fork()
            if not write:
                yield self._connection
                return
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._keys.clear()
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _after_fork(self) -> None:
        if self._pid != os.getpid():
            _inherited.append(self._connection)
            self._pid, self._connection = os.getpid(), self._open()

    # -- reading and writing ----------------------------------------------------------------

    def get_many(self, key: str, fens: Sequence[str]) -> dict[str, bytes]:
        """The answers there are, by FEN; the label being recorded is marked as using them."""
        wanted, found = list(dict.fromkeys(fens)), {}
        used: list[int] = []
        stale: list[int] = []
        today = int(time.time()) // DAY
        with self._session(write=False) as connection:
            number = self._key_number(connection, key, make=False)
            for fen, answer, row, day in _select(connection, number, wanted):
                found[fen] = answer
                used.append(row)
                if day != today:
                    stale.append(row)
        self.statistics.hits += len(found)
        self.statistics.misses += len(wanted) - len(found)
        self._mark(used, stale, today)
        return found

    def _mark(self, used: Sequence[int], stale: Sequence[int], today: int) -> None:
        label = _label.get()
        if not stale and (label is None or not used):
            return
        with self._session(write=True) as connection:
            rows = [(today, row) for row in stale]
            connection.executemany("UPDATE searches SET day = ? WHERE id = ?", rows)
            _record(connection, label, used)

    def put_many(self, key: str, answers: Mapping[str, bytes]) -> None:
        """Keep answers by FEN, in one transaction. One that is there already stays."""
        if not answers:
            return
        today = int(time.time()) // DAY
        with self._session(write=True) as connection:
            number = self._key_number(connection, key, make=True)
            connection.executemany(
                "INSERT INTO searches (key, fen, answer, day) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO NOTHING",
                [(number, fen, answer, today) for fen, answer in answers.items()],
            )
            if _label.get() is not None:
                rows = [row for _, _, row, _ in _select(connection, number, list(answers))]
                _record(connection, _label.get(), rows)
        self.statistics.written += len(answers)

    def _key_number(self, connection: sqlite3.Connection, key: str, *, make: bool) -> int | None:
        if key not in self._keys:
            if make:
                connection.execute("INSERT OR IGNORE INTO keys (text) VALUES (?)", (key,))
            row = connection.execute("SELECT id FROM keys WHERE text = ?", (key,)).fetchone()
            if row is None:
                return None
            self._keys[key] = row[0]
        return self._keys[key]

    @contextlib.contextmanager
    def recording(self, label: str) -> Iterator[None]:
        """Within it, searches read or written by this thread or task count as used by `label`.

        A label is what `prune` keeps or drops by: a shard's key, say.
        """
        token = _label.set(label)
        try:
            yield
        finally:
            _label.reset(token)

    # -- housekeeping -----------------------------------------------------------------------

    def count(self) -> int:
        """Searches kept."""
        with self._session(write=False) as connection:
            return int(connection.execute("SELECT count(*) FROM searches").fetchone()[0])

    def labels(self) -> dict[str, int]:
        """Searches used, by label."""
        with self._session(write=False) as connection:
            rows = connection.execute(
                "SELECT text, count(search) FROM labels LEFT JOIN uses ON label = labels.id "
                "GROUP BY labels.id ORDER BY text"
            )
            return dict(rows.fetchall())

    def prune(
        self, keep: Callable[[str], bool], *, used_since: float | None = None, dry_run: bool = False
    ) -> Pruned:
        """Forget the labels that `keep` refuses, then the searches no label uses any more.

        Args:
            keep: says of a label whether it stays.
            used_since: seconds since the epoch; searches used on that day or later stay even
                without a label.
            dry_run: only count.
        """
        with self._session(write=True) as connection:
            rows = connection.execute("SELECT id, text FROM labels ORDER BY id").fetchall()
            dropped = [(number,) for number, text in rows if not keep(text)]
            connection.execute("SAVEPOINT pruning")
            connection.executemany("DELETE FROM uses WHERE label = ?", dropped)
            connection.executemany("DELETE FROM labels WHERE id = ?", dropped)
            searches, size = _delete_unused(connection, used_since)
            if dry_run:
                connection.execute("ROLLBACK TO pruning")
            connection.execute("RELEASE pruning")
            self._keys.clear()
        if searches and not dry_run:
            self._shrink()
        return Pruned(len(dropped), searches, size)

    def _shrink(self) -> None:
        """Give the space back; not possible while others read, and then not needed today."""
        with self._lock, contextlib.suppress(sqlite3.OperationalError):
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                self._connection.close()


def _select(
    connection: sqlite3.Connection, key: int | None, fens: Sequence[str]
) -> Iterator[tuple[str, bytes, int, int]]:
    if key is None:
        return
    for start in range(0, len(fens), CHUNK):
        chunk = fens[start : start + CHUNK]
        marks = ",".join("?" * len(chunk))
        yield from connection.execute(
            f"SELECT fen, answer, id, day FROM searches WHERE key = ? AND fen IN ({marks})",
            (key, *chunk),
        ).fetchall()


def _record(connection: sqlite3.Connection, label: str | None, searches: Sequence[int]) -> None:
    if label is None or not searches:
        return
    connection.execute("INSERT OR IGNORE INTO labels (text) VALUES (?)", (label,))
    number = connection.execute("SELECT id FROM labels WHERE text = ?", (label,)).fetchone()[0]
    connection.executemany(
        "INSERT OR IGNORE INTO uses (label, search) VALUES (?, ?)",
        [(number, search) for search in searches],
    )


def _delete_unused(connection: sqlite3.Connection, used_since: float | None) -> tuple[int, int]:
    where = "id NOT IN (SELECT search FROM uses) AND day < ?"
    before = (1 << 40 if used_since is None else int(used_since) // DAY,)
    count, size = connection.execute(
        f"SELECT count(*), coalesce(sum(length(fen) + length(answer)), 0) "
        f"FROM searches WHERE {where}",
        before,
    ).fetchone()
    connection.execute(f"DELETE FROM searches WHERE {where}", before)
    connection.execute("DELETE FROM keys WHERE id NOT IN (SELECT key FROM searches)")
    return int(count), int(size)


def _remedy(error: sqlite3.Error) -> str:
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return (
            "free disk space (`queen gc` deletes unused searches), then run again: kept "
            "searches are not repeated"
        )
    if "locked" in text or "busy" in text:
        return "another process holds the cache: end it or wait, then run again"
    if "readonly" in text or "unable to open" in text:
        return "make the file and its folder writable, or set QUEEN_STATE to a folder that is"
    return "move the file (and its -wal and -shm) away: searches are computed again"


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return aside
