"""Several processes that write: one for each core or GPU, each with the model in its memory.

The runs that a list of requests is cut into (see `requests.runs`) are handed out one at a time,
so the text depends neither on the number of processes nor on which of them wrote it. A process
that dies is replaced and its run tried once more; if that kills another, the run is halved until
the record that does it stands alone and fails alone. The processes die with their parent, even
if that is killed with kill -9.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, Self

from queen.children import follow_parent
from queen.generation.requests import (
    Completion,
    GenerationError,
    Request,
    Sampling,
    Writer,
    runs,
)

TRIES = 2  # of a run, each in a fresh process
LOADING_TRIES = 2
DEATHS_IN_A_ROW = 16  # more than halving a run down to one record takes
JOIN_S = 10.0

Make = Callable[[int], Writer]
Kind = Literal["generate", "move_logprobs"]


@dataclass(frozen=True)
class Run:
    """A piece of work for one process.

    Attributes:
        where: index of its first request in the whole list.
        tries: how often it may still be tried.
    """

    kind: Kind
    where: int
    requests: Sequence[Request]
    sampling: Sampling | None
    tries: int = TRIES

    def halves(self) -> tuple[Run, Run]:
        """Its two halves, to be tried once each."""
        middle = len(self.requests) // 2
        first, second = self.requests[:middle], self.requests[middle:]
        return (
            replace(self, requests=first, tries=1),
            replace(self, requests=second, where=self.where + middle, tries=1),
        )


@dataclass
class _Worker:
    """One process; `run` is what it is at, None while it loads or waits."""

    process: BaseProcess
    connection: Connection
    ready: bool = False
    run: Run | None = None

    def end(self) -> str:
        """Let it go if it waits, kill it otherwise; how it ended, in words."""
        self.connection.close()
        if self.run is None and self.ready:
            self.process.join(JOIN_S)
        if self.process.is_alive():
            self.process.kill()
        self.process.join(JOIN_S)
        code = self.process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"status {code}"


class GeneratorPool:
    """Writes as a `Generator` does, in several processes; they start when first needed.

    Args:
        make: makes a process's generator from its number; must be importable by name.
        workers: how many processes.
        batch_size: the generators' own.
    """

    def __init__(self, make: Make, workers: int, batch_size: int) -> None:
        self.make, self.count, self.batch_size = make, workers, batch_size
        self.workers: dict[int, _Worker] = {}
        self.deaths = self.loading_deaths = 0
        self._identity: dict[str, str] | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What writes, as the first process says."""
        if self._identity is None:
            self._run(iter(()))
        assert self._identity is not None
        return self._identity

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion for each request, in their order; a failure is its record's own."""
        parts = runs(len(requests), self.batch_size)
        found = self._run(
            Run("generate", part.start, requests[part.start : part.stop], sampling)
            for part in parts
            if part
        )
        return [found[index] for index in range(len(requests))]

    def move_logprobs(self, requests: Sequence[Request]) -> list[dict[str, float]]:
        """Log-probability of each legal move, for each request; see `Generator`."""
        starts = range(0, len(requests), self.batch_size)
        found = self._run(
            Run("move_logprobs", start, requests[start : start + self.batch_size], None)
            for start in starts
        )
        return [found[index] for index in range(len(requests))]

    def close(self) -> None:
        """End every process. The pool may be used again and starts others."""
        workers, self.workers = list(self.workers.values()), {}
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- work -------------------------------------------------------------------------------

    def _run(self, work: Iterator[Run]) -> dict[int, Any]:
        """Each request's answer by its index."""
        self.waiting, self.answers = deque(work), dict[int, Any]()
        for number in range(min(self.count, max(1, len(self.waiting)))):
            if number not in self.workers:
                self._start(number)
        try:
            while self.waiting or self._identity is None or self._at_work():
                self._hand_out()
                self._listen()
        except BaseException:
            self.close()
            raise
        return self.answers

    def _at_work(self) -> bool:
        return any(worker.run for worker in self.workers.values())

    def _hand_out(self) -> None:
        for number, worker in list(self.workers.items()):
            if worker.ready and worker.run is None and self.waiting:
                run = worker.run = self.waiting.popleft()
                try:
                    worker.connection.send((run.kind, run.requests, run.sampling))
                except OSError:
                    self._died(number)

    def _listen(self) -> None:
        """Take in what the processes say, once any of them does."""
        busy = {
            worker.connection: number
            for number, worker in self.workers.items()
            if worker.run is not None or not worker.ready
        }
        for connection in busy.keys() & set(wait(list(busy))):
            number = busy[connection]
            try:
                answer = connection.recv()
            except (EOFError, OSError):
                self._died(number)
                continue
            self._take(self.workers[number], answer)

    def _take(self, worker: _Worker, answer: Any) -> None:
        if isinstance(answer, BaseException):
            raise answer
        if worker.run is None:
            worker.ready, self._identity, self.loading_deaths = True, answer, 0
            return
        self.deaths = 0
        self.answers.update(enumerate(answer, worker.run.where))
        worker.run = None

    # -- processes --------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=serve, args=(theirs, self.make, number), name=f"generator-{number}", daemon=True
        )
        process.start()
        theirs.close()
        self.workers[number] = _Worker(process, ours)

    def _died(self, number: int) -> None:
        """Replace a process, and see to the run it was at."""
        worker = self.workers.pop(number)
        worker.process.join(JOIN_S)
        how = worker.end()
        self.deaths += 1
        self.loading_deaths += not worker.ready
        if self.loading_deaths >= LOADING_TRIES or self.deaths >= DEATHS_IN_A_ROW:
            raise GenerationError(
                f"{self.deaths} generation processes died one after another, the last with {how}",
                where="while loading the model" if not worker.ready else "while writing",
                remedy="see whether memory runs out: lower machine.generators or batch_size",
            )
        if worker.run is not None:
            self._again(worker.run, how)
        self._start(number)

    def _again(self, run: Run, how: str) -> None:
        if run.tries > 1:
            self.waiting.appendleft(replace(run, tries=run.tries - 1))
        elif len(run.requests) > 1:
            self.waiting.extendleft(reversed(run.halves()))
        else:
            self._give_up(run, how)

    def _give_up(self, run: Run, how: str) -> None:
        request = run.requests[0]
        what = f"each process that worked on it died, the last with {how}"
        if run.kind == "move_logprobs":
            remedy = "see whether memory runs out: lower machine.generators or batch_size"
            raise GenerationError(what, where=f"request {request.id}", remedy=remedy)
        self.answers[run.where] = Completion(request.id, request.prefix, error=what)


def serve(connection: Connection, make: Make, number: int) -> None:
    """What a process of the pool does: load, then answer until nobody asks any more."""
    follow_parent()
    with suppress(EOFError, OSError):
        try:
            writer = make(number)
            connection.send(writer.identity)
        except Exception as error:
            connection.send(_portable(error))
            return
        while True:
            connection.send(_answer(writer, *connection.recv()))


def _answer(
    writer: Writer, kind: Kind, requests: Sequence[Request], sampling: Sampling | None
) -> Any:
    try:
        if kind == "generate":
            assert sampling is not None
            return writer.generate(requests, sampling)
        return writer.move_logprobs(requests)
    except Exception as error:
        return _portable(error)


def _portable(error: Exception) -> Exception:
    """The error as it is if a person can act on it, else with its traceback as text."""
    from queen.errors import QueenError

    if isinstance(error, QueenError):
        return error
    return RuntimeError(f"in a generation process:\n{traceback.format_exc()}")
