"""Who is at work on which shard: leases that expire, so that no worker's death costs a shard.

A lease is a file `leases/<stage>/<key>.<n>` that only one can create, rewritten by its holder
while it works. Whoever sees one unchanged for the lease's time by its *own* clock (machines' clocks
differ) takes the shard over by creating number n + 1. A holder that was only slow loses nothing
and harms nothing: a shard's bytes are a function of its key, so both write the same.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import orjson

from queen.lineage.remote import Remote, StoreError

FOLDER = "leases"
BEATS = 5  # rewrites of a lease within its time


def worker_name() -> str:
    """This process, for people: host and number."""
    return f"{socket.gethostname()}-{os.getpid()}"


class Leases:
    """The leases on one stage's shards, as one worker sees them.

    Args:
        remote: the shared store.
        stage: whose shards.
        seconds: a lease unchanged for so long has expired.
        worker: who claims.
        clock: seconds that only ever grow.
    """

    def __init__(
        self,
        remote: Remote,
        stage: str,
        seconds: float,
        worker: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._remote, self._folder, self._seconds = remote, f"{FOLDER}/{stage}", seconds
        self._worker, self._clock = worker or worker_name(), clock
        self._standing: dict[str, int] = {}
        self._seen: dict[tuple[str, int], tuple[bytes | None, float]] = {}

    def look(self) -> None:
        """See what leases stand now; what is claimed later is found out by claiming."""
        self._standing = {}
        for name in self._remote.names(self._folder):
            key, _, number = name.rpartition(".")
            if key and number.isdigit():
                self._standing[key] = max(self._standing.get(key, 0), int(number))
        held = set(self._standing.items())
        self._seen = {lease: seen for lease, seen in self._seen.items() if lease in held}

    @contextlib.contextmanager
    def claimed(self, key: str) -> Iterator[bool]:
        """Hold a shard's lease for the block, if it is to be had: whether it is."""
        number = self._claim(key)
        if not number:
            yield False
            return
        stop = threading.Event()
        beating = threading.Thread(target=self._beat, args=(key, number, stop), daemon=True)
        beating.start()
        try:
            yield True
        finally:
            stop.set()
            beating.join()
            with contextlib.suppress(StoreError):
                self.release(key)

    def release(self, key: str) -> None:
        """Remove every lease on a shard: it is finished, or free for others."""
        for name in self._remote.names(self._folder):
            if name.rpartition(".")[0] == key:
                self._remote.remove(f"{self._folder}/{name}")
        self._standing.pop(key, None)

    def _claim(self, key: str) -> int:
        """The number of the lease now ours, or 0; the first look at another's starts its time."""
        number = self._standing.get(key, 0)
        if number and not self._expired(key, number):
            return 0
        made = self._remote.create(self._name(key, number + 1), self._word(0))
        self._standing[key] = number + 1
        return number + 1 if made else 0

    def _expired(self, key: str, number: int) -> bool:
        word, now = self._remote.read(self._name(key, number)), self._clock()
        before = self._seen.get((key, number))
        if before is None or before[0] != word:
            self._seen[key, number] = (word, now)
            return False
        return now - before[1] >= self._seconds

    def _beat(self, key: str, number: int, stop: threading.Event) -> None:
        """Rewrite the lease until told to stop, or until another took the shard over."""
        for count in range(1, 1 << 62):
            if stop.wait(self._seconds / BEATS):
                return
            with contextlib.suppress(StoreError):
                if self._remote.exists(self._name(key, number + 1)):
                    return
                self._remote.write(self._name(key, number), self._word(count))

    def _word(self, count: int) -> bytes:
        return orjson.dumps({"worker": self._worker, "beat": count})

    def _name(self, key: str, number: int) -> str:
        return f"{self._folder}/{key}.{number}"
