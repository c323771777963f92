"""A UCI engine as a stream of searches that know the game so far.

Analysis of bare positions, cached and counted, is `Analyser`'s work. Playing is another matter:
an engine has to know the moves before a position to see repetitions, and nothing is cached.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import chess

from queen.engines.score import Score
from queen.errors import QueenError

# Commands in flight must fit in a pipe (64 KiB): an engine that cannot write its answers stops
# reading, and then neither side moves.
IN_FLIGHT = 16
PR_SET_PDEATHSIG = 1


class EngineGoneError(QueenError):
    """An engine that cannot be started, died, hung or answered rubbish, twice."""


@dataclass(frozen=True)
class Query:
    """One search: a UCI position, a UCI go command, and how many lines to report."""

    position: str
    go: str
    multipv: int = 1

    @classmethod
    def of(cls, board: chess.Board, go: str, multipv: int = 1) -> Query:
        """From a board with its move stack."""
        played = "".join(f" {move.uci()}" for move in board.move_stack)
        return cls(f"fen {board.root().fen()}" + (f" moves{played}" if played else ""), go, multipv)


@dataclass(frozen=True)
class Choice:
    """A root move with its score, seen by the side to move."""

    move: str
    score: Score


@dataclass(frozen=True)
class Reply:
    """An engine's move (None where it has none) and its searched root moves, best first."""

    best: str | None
    choices: tuple[Choice, ...]


def die_with_parent() -> None:
    """Ask the kernel (Linux) to end this process when its parent ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class EngineStream:
    """Searches in order through one engine process: one thread, state cleared before each.

    Started when first needed and after a failure; closed by `close` or with this process.
    """

    def __init__(
        self, command: str, options: Mapping[str, str | int], timeout_s: float = 60.0
    ) -> None:
        self._command, self._timeout_s = command, timeout_s
        self._options = {"Threads": 1, "Hash": 1, **options}
        self._process: subprocess.Popen[bytes] | None = None
        self._pending = b""
        self._name = command

    @property
    def name(self) -> str:
        """What the engine calls itself."""
        if self._process is None:
            self._start()
        return self._name

    def search(self, queries: Sequence[Query]) -> list[Reply]:
        """One reply for each query, in order. Raises EngineGoneError after two failures."""
        replies: list[Reply] = []
        for first in range(0, len(queries), IN_FLIGHT):
            group = queries[first : first + IN_FLIGHT]
            try:
                replies += self._search(group)
            except EngineGoneError:
                self.close()
                replies += self._search(group)
        return replies

    def close(self) -> None:
        """End the process; a later search starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._process, self._pending = None, b""

    def __enter__(self) -> EngineStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                [self._command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            raise self._gone(f"cannot be started: {error}") from error
        self._send(["uci"])
        for line in self._lines_until("uciok"):
            if line.startswith("id name "):
                self._name = line.removeprefix("id name ").strip()
        options = (f"setoption name {name} value {value}" for name, value in self._options.items())
        self._send([*options, "isready"])
        for _ in self._lines_until("readyok"):
            pass

    def _search(self, queries: Sequence[Query]) -> list[Reply]:
        if self._process is None:
            self._start()
        # ucinewgame waits for the search before it; the other commands do not.
        commands = [
            f"ucinewgame\nsetoption name MultiPV value {query.multipv}\n"
            f"position {query.position}\n{query.go}"
            for query in queries
        ]
        self._send(commands)
        return [_reply(list(self._lines_until("bestmove"))) for _ in queries]

    def _send(self, commands: Sequence[str]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(("\n".join(commands) + "\n").encode())
            self._process.stdin.flush()
        except OSError as error:
            raise self._gone(f"died: {error}") from error

    def _lines_until(self, last: str) -> Iterator[str]:
        """The engine's lines up to and with the one that begins with `last`."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            line = self._line(deadline)
            yield line
            if line.split(" ", 1)[0] == last:
                return

    def _line(self, deadline: float) -> str:
        while b"\n" not in self._pending:
            self._pending += self._read(deadline)
        line, self._pending = self._pending.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def _read(self, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        if not select.select([out], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise self._gone(f"gave no answer within {self._timeout_s:g} s")
        data = os.read(out, 1 << 16)
        if not data:
            raise self._gone("died")
        return data

    def _gone(self, what: str) -> EngineGoneError:
        return EngineGoneError(
            f"the engine {what}",
            where=self._command,
            remedy="run it by hand, type `uci`, and see what it says",
        )


def _reply(lines: Sequence[str]) -> Reply:
    """From the lines of one search, the last of which is its bestmove."""
    depths: dict[int, dict[int, Choice]] = {}
    for line in lines[:-1]:
        words = line.split()
        if "pv" in words and "score" in words and "bound" not in line:
            slot = _number(words, "multipv", 1)
            choice = Choice(words[words.index("pv") + 1], _score(words))
            depths.setdefault(_number(words, "depth", 0), {})[slot] = choice
    # A search cut short mixes two depths: the deepest that lists most moves is whole.
    slots = max(sorted(depths.items(), reverse=True), key=lambda d: len(d[1]), default=(0, {}))[1]
    best = lines[-1].split()[1:2]
    move = best[0] if best and best[0] not in ("(none)", "0000") else None
    return Reply(move, _distinct([slots[slot] for slot in sorted(slots)]))


def _number(words: Sequence[str], field: str, default: int) -> int:
    return int(words[words.index(field) + 1]) if field in words else default


def _score(words: Sequence[str]) -> Score:
    at = words.index("score")
    kind, value = words[at + 1], int(words[at + 2])
    return Score(mate=value) if kind == "mate" else Score(cp=value)


def _distinct(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """A search cut short may still list a move of the depth before: keep each move's best slot."""
    seen: dict[str, Choice] = {}
    for choice in choices:
        seen.setdefault(choice.move, choice)
    return tuple(seen.values())
