"""Engine processes in parallel, each with many commands in flight, none trusted to stay alive."""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from queen.engines.analysis import EngineFailure
from queen.engines.closing import ClosedAtExit
from queen.engines.locate import find_engine
from queen.engines.uci import EngineFaultError, EngineProcess, EngineStartError
from queen.errors import QueenError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
IN_FLIGHT = 32
MAX_IN_FLIGHT = 128  # keeps what is in flight below a pipe's 64 KiB, so that writing never blocks
FAILURES_IN_A_ROW = 8
# A nap is a fraction of the time that what is in flight will take; its output must fit in a pipe.
NAPS = 8
SHORTEST_NAP_S, LONGEST_NAP_S = 0.001, 0.025
# Engines that finish one search before they read on; others may drop what comes meanwhile.
QUEUING_ENGINES = ("stockfish", "fairy-stockfish")


class EngineBrokenError(QueenError):
    """An engine that fails position after position."""


@dataclass(frozen=True)
class EngineSettings:
    """How to run an engine.

    Attributes:
        command: a path or command line, or "auto" (see `queen.engines.locate.find_engine`).
        options: UCI options by name, beside Threads = 1 and a small Hash.
        workers: processes; 0 means one for each CPU this process may use.
        timeout_s: seconds one position may take before the engine counts as hung.
        depth_in_flight: commands in flight for each process; 0 means 32 for engines known to
            queue them, 1 for others.
        start_timeout_s: seconds the engine may take to start.
    """

    command: str = "auto"
    options: Mapping[str, str | int] = field(default_factory=dict)
    workers: int = 0
    timeout_s: float = 60.0
    depth_in_flight: int = 0
    start_timeout_s: float = 20.0

    @property
    def processes(self) -> int:
        if self.workers > 0:
            return self.workers
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


@dataclass(frozen=True)
class Job(Generic[T_co]):
    """One exchange: what to send, the start of the answer's last line, how to read the answer.

    `read` raises EngineFaultError("rubbish", ...) on an answer that makes no sense. With nothing
    to send, no engine is asked, and `read` knows the answer.
    """

    fen: str
    request: str
    last: bytes
    read: Callable[[list[bytes]], T_co]


class _Tasks:
    """Numbers of the jobs nobody works on yet, shared by the workers."""

    def __init__(self, count: int, workers: int) -> None:
        self._waiting = deque(range(count))
        self._workers, self._lock = workers, threading.Lock()
        self.stopped = False

    def take(self, pending: int, most: int) -> list[int]:
        """More for a worker that has `pending` in flight, up to `most`.

        Fewer near the end, so that all workers end together; none while half are still there,
        so that commands go out in batches.
        """
        with self._lock:
            room = min(most, 2 + len(self._waiting) // (2 * self._workers))
            if pending > room // 2:
                return []
            count = min(room - pending, len(self._waiting))
            return [self._waiting.popleft() for _ in range(count)]

    def give_back(self, numbers: Sequence[int]) -> None:
        with self._lock:
            if not self.stopped:
                self._waiting.extendleft(reversed(numbers))

    def stop(self) -> None:
        with self._lock:
            self.stopped = True
            self._waiting.clear()


class EnginePool(ClosedAtExit):
    """Processes of one engine, started when needed and kept until `close`.

    Args:
        settings: how to run it.
        defaults: options to set where the engine has them and the settings do not speak of them.
    """

    def __init__(self, settings: EngineSettings, defaults: Mapping[str, str | int]) -> None:
        self.settings = settings
        self.command = find_engine(settings.command)
        self._defaults = dict(defaults)
        self._engines: dict[int, EngineProcess] = {}
        self._lock, self._running = threading.Lock(), threading.Lock()
        self._failures = 0

    # -- processes --------------------------------------------------------------------------

    def engine(self, slot: int = 0) -> EngineProcess:
        """The slot's process, started and configured if need be. Raises EngineStartError."""
        with self._lock:
            found = self._engines.get(slot)
        if found is not None:
            return found
        started = EngineProcess(self.command, self.settings.start_timeout_s)
        try:
            started.configure(self.options(started))
        except EngineStartError:
            started.kill()
            raise
        with self._lock:
            self._engines[slot] = started
        return started

    def options(self, engine: EngineProcess) -> dict[str, str | int]:
        """What is set on an engine: the defaults it knows, then the settings' options."""
        given = {name.lower() for name in self.settings.options}
        chosen = {
            name: value
            for name, value in self._defaults.items()
            if name.lower() in engine.options and name.lower() not in given
        }
        return {**chosen, **self.settings.options}

    def discard(self, slot: int) -> None:
        """Kill the slot's process; the next use starts another."""
        with self._lock:
            engine = self._engines.pop(slot, None)
        if engine is not None:
            engine.kill()

    @functools.cached_property
    def in_flight(self) -> int:
        """Commands in flight for each process."""
        asked = self.settings.depth_in_flight
        if asked <= 0:
            asked = IN_FLIGHT if self.engine().name.lower().startswith(QUEUING_ENGINES) else 1
        return min(asked, MAX_IN_FLIGHT)

    # -- work -------------------------------------------------------------------------------

    def run(
        self, jobs: Sequence[Job[T]], setup: str = ""
    ) -> Generator[tuple[int, T | EngineFailure], None, None]:
        """Answers with the numbers of their jobs, as they come.

        Each process is sent `setup` first. An engine that fails is started anew and the job
        tried once more, then it becomes an EngineFailure; other jobs lose nothing. Raises
        EngineStartError if it cannot be started, EngineBrokenError if nothing works any more.
        Close the iterator to stop early.
        """
        with self._running:
            count = min(self.settings.processes, len(jobs))
            tasks = _Tasks(len(jobs), max(1, count))
            answers: queue.SimpleQueue[tuple[int, T | EngineFailure] | BaseException] = (
                queue.SimpleQueue()
            )
            workers = [_Worker(self, slot, jobs, tasks, setup, answers) for slot in range(count)]
            done = False
            try:
                for worker in workers:
                    worker.start()
                for _ in range(len(jobs)):
                    answer = answers.get()
                    if isinstance(answer, BaseException):
                        raise answer
                    yield answer
                done = True
            finally:
                self._finish(tasks, workers, done)

    def _finish(self, tasks: _Tasks, workers: Sequence[threading.Thread], done: bool) -> None:
        tasks.stop()
        started = [worker for worker in workers if worker.ident is not None]
        while any(worker.is_alive() for worker in started):
            if not done:
                self._abort()
            for worker in started:
                worker.join(0.1)
        if not done:
            self.close()

    def _abort(self) -> None:
        with self._lock:
            engines = list(self._engines.values())
        for engine in engines:
            engine.abort()

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, failure: EngineFailure) -> None:
        """Count a failure; raise EngineBrokenError after too many with no success between."""
        with self._lock:
            self._failures += 1
            count, self._failures = self._failures, self._failures % FAILURES_IN_A_ROW
        if count >= FAILURES_IN_A_ROW:
            raise EngineBrokenError(
                f"failed {count} positions in a row, the last: {failure.reason}, {failure.detail}",
                where=f"engine {self.command!r}, position {failure.fen}",
                remedy="try the engine by hand on that position; if it is only slow, raise "
                f"timeout_s (now {self.settings.timeout_s:g}) or lower the limit",
            )

    def close(self) -> None:
        """End every process. The pool may be used again and starts others."""
        with self._lock:
            engines, self._engines = list(self._engines.values()), {}
        for engine in engines:
            engine.close()


class _Worker(threading.Thread, Generic[T]):
    """One process and the thread that keeps it fed."""

    def __init__(
        self,
        pool: EnginePool,
        slot: int,
        jobs: Sequence[Job[T]],
        tasks: _Tasks,
        setup: str,
        answers: queue.SimpleQueue[tuple[int, T | EngineFailure] | BaseException],
    ) -> None:
        super().__init__(name=f"engine-{slot}", daemon=True)
        self._pool, self._slot, self._jobs, self._tasks = pool, slot, jobs, tasks
        self._setup, self._answers, self._most = setup, answers, pool.in_flight
        self._pending: deque[int] = deque()
        self._suspect: int | None = None  # failed once: tried again alone in a fresh process
        self._engine: EngineProcess | None = None
        self._pace_s = 0.0  # from answer to answer, of late

    def run(self) -> None:
        try:
            while self._step():
                pass
        except BaseException as error:
            self._answers.put(error)

    def _step(self) -> bool:
        """Send what fits, read one answer. False when there is nothing left to do."""
        if self._tasks.stopped:
            return False
        try:
            self._feed()
            if not self._pending:
                return False
            self._read_one()
        except EngineFaultError as fault:
            self._recover(fault)
        return True

    def _feed(self) -> None:
        if self._suspect is not None:
            numbers = [] if self._pending else [self._suspect]
        else:
            numbers = self._tasks.take(len(self._pending), self._most)
        if numbers:
            self._pending.extend(numbers)  # before sending: nothing is lost if the engine is gone
            self._live().send("".join(self._jobs[number].request for number in numbers))

    def _live(self) -> EngineProcess:
        if self._engine is None:
            engine = self._pool.engine(self._slot)
            self._engine = engine
            if self._setup:
                engine.send(self._setup)
        return self._engine

    def _read_one(self) -> None:
        job = self._jobs[self._pending[0]]
        lines = self._answer(job.last) if job.request else []
        try:
            value = job.read(lines)
        except (ValueError, IndexError) as error:
            raise EngineFaultError("rubbish", f"an answer that cannot be read: {error}") from error
        self._suspect = None
        self._pool.succeeded()
        self._answers.put((self._pending.popleft(), value))

    def _answer(self, last: bytes) -> list[bytes]:
        """Lines of the oldest answer. While the engine has enough to do, naps take the place of
        being woken by its every line, which costs more than all else here."""
        nap = min(LONGEST_NAP_S, self._pace_s * len(self._pending) / NAPS)
        started = time.monotonic()
        timeout = self._pool.settings.timeout_s
        lines = self._live().frame(last, timeout, nap if nap >= SHORTEST_NAP_S else 0.0)
        self._pace_s += (time.monotonic() - started - self._pace_s) / NAPS
        return lines

    def _recover(self, fault: EngineFaultError) -> None:
        """Blame the position the engine was at; try it once more, alone in a fresh process."""
        self._pool.discard(self._slot)
        self._engine = None
        if self._tasks.stopped or not self._pending:
            return
        head = self._pending.popleft()
        self._tasks.give_back(list(self._pending))
        self._pending.clear()
        if head != self._suspect:
            self._suspect = head
            return
        self._suspect = None
        failure = EngineFailure(self._jobs[head].fen, fault.reason, fault.detail)
        self._answers.put((head, failure))
        self._pool.failed(failure)
