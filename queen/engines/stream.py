"""A UCI engine as a stream of searches that know the game so far.

Analysis of bare positions, cached and counted, is `Analyser`'s work. Playing is another matter:
an engine has to know the moves before a position to see repetitions, and nothing is cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import chess

from queen.engines.locate import find_engine
from queen.engines.score import Score
from queen.engines.uci import EngineFaultError, EngineProcess
from queen.errors import QueenError

# Commands in flight must fit in a pipe (64 KiB): an engine that cannot write its answers stops
# reading, and then neither side moves.
IN_FLIGHT = 16


class EngineGoneError(QueenError):
    """An engine that died, hung or answered rubbish, twice."""


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


class EngineStream:
    """Searches in order through one engine process: one thread, state cleared before each.

    Started when first needed and after a failure; closed by `close` or with this process.

    Args:
        command: the engine's program, or "auto".
        options: UCI options; by default one thread and the smallest hash, quick to clear.
        timeout_s: a search that takes longer counts as a hang.
    """

    def __init__(
        self, command: str, options: Mapping[str, str | int], timeout_s: float = 60.0
    ) -> None:
        self._command, self._timeout_s = command, timeout_s
        self._options = {"Threads": 1, "Hash": 1, **options}
        self._process: EngineProcess | None = None

    @property
    def name(self) -> str:
        """What the engine calls itself, version included."""
        engine = self._engine()
        return f"{engine.name} {engine.version}".strip()

    def search(self, queries: Sequence[Query]) -> list[Reply]:
        """One reply for each query, in order.

        Raises EngineGoneError after two failures, EngineStartError where it cannot be started.
        """
        replies: list[Reply] = []
        for first in range(0, len(queries), IN_FLIGHT):
            group = queries[first : first + IN_FLIGHT]
            try:
                replies += self._search(group)
            except EngineFaultError:
                replies += self._again(group)
        return replies

    def close(self) -> None:
        """End the process; a later search starts another."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def __enter__(self) -> EngineStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _engine(self) -> EngineProcess:
        if self._process is None:
            self._process = EngineProcess(find_engine(self._command))
            self._process.configure(self._options)
        return self._process

    def _again(self, queries: Sequence[Query]) -> list[Reply]:
        self.close()
        try:
            return self._search(queries)
        except EngineFaultError as fault:
            self.close()
            raise EngineGoneError(
                f"the engine {fault.reason} twice: {fault.detail}",
                where=self._command,
                remedy="run it by hand on the positions of this match, or play another engine",
            ) from fault

    def _search(self, queries: Sequence[Query]) -> list[Reply]:
        engine = self._engine()
        # ucinewgame waits for the search before it; the other commands do not.
        engine.send(
            "".join(
                f"ucinewgame\nsetoption name MultiPV value {query.multipv}\n"
                f"position {query.position}\n{query.go}\n"
                for query in queries
            )
        )
        return [self._read() for _ in queries]

    def _read(self) -> Reply:
        lines = self._engine().frame(b"bestmove", self._timeout_s)
        try:
            return _reply([line.decode() for line in lines])
        except (ValueError, IndexError) as error:
            raise EngineFaultError("rubbish", f"{lines[-1]!r}: {error}") from error


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
    if move is not None:
        chess.Move.from_uci(move)  # ValueError where it is none
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
