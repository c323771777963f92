"""The engine's side of the UCI protocol: commands in, moves out, a clock that is kept.

One thread takes the commands, so that `isready` and `stop` are answered during a search; one
other loads the player, when it is first needed, and thinks. Unknown words are passed over, as the
protocol says. A move that cannot be thought of is replaced by a legal one, and that is said.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import chess

from queen.engines.thinking import (
    OVERHEAD,
    Limits,
    Option,
    OptionError,
    Search,
    Thinker,
    Value,
    defaults,
)
from queen.errors import QueenError
from queen.games.chess.position import Position, PositionError, played

AUTHOR = "the Queen project"
CHUNK = 1 << 16


@dataclass(frozen=True)
class Engine:
    """What is served.

    Attributes:
        name: told at `uci`, before anything is loaded.
        load: makes the player; may take seconds, and raise QueenError.
    """

    name: str
    options: Sequence[Option]
    load: Callable[[], Thinker]


class UciServer:
    """Serves one engine until `quit` or the end of the commands.

    Args:
        engine: what is served.
        write: takes each line that is said.
    """

    def __init__(self, engine: Engine, write: Callable[[str], None]) -> None:
        self.engine, self.write = engine, write
        self.options = {option.name.lower(): option for option in engine.options}
        self.values = defaults(engine.options)
        self.board: chess.Board | None = chess.Board()
        self.search: Search | None = None
        self.status: int | None = None
        self._loading: Future[Thinker] | None = None
        self._answer: Future[None] | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="thinker")
        self._mouth = threading.Lock()
        self._events: queue.Queue[str | None] = queue.Queue()
        self._commands: Mapping[str, Callable[[list[str]], None]] = {
            "uci": self._uci,
            "isready": self._isready,
            "setoption": self._setoption,
            "ucinewgame": self._ucinewgame,
            "position": self._position,
            "go": self._go,
            "stop": self._stop,
            "ponderhit": self._ponderhit,
            "quit": self._quit,
        }

    def serve(self, lines: Iterable[str]) -> int:
        """Take commands until the last; the exit status, 1 if the player could not be loaded."""
        threading.Thread(target=self._listen, args=(lines,), daemon=True).start()
        while self.status is None and (line := self._events.get()) is not None:
            self.take(line)
        self._stop([])
        self._worker.shutdown()
        return self.status or 0

    def take(self, line: str) -> None:
        """One command line; words before the first known one are passed over."""
        words = line.split()
        while words and words[0] not in self._commands:
            words.pop(0)
        try:
            if words:
                self._commands[words[0]](words[1:])
        except QueenError as error:
            self._tell(error)

    def _listen(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._events.put(line)
        self._events.put(None)

    def _say(self, text: str) -> None:
        with self._mouth:
            self.write(text)

    def _tell(self, error: Exception) -> None:
        for row in str(error).splitlines():
            self._say(f"info string error: {row.strip()}")

    # -- commands ---------------------------------------------------------------------------

    def _uci(self, words: list[str]) -> None:
        self._say(f"id name {self.engine.name}")
        self._say(f"id author {AUTHOR}")
        for option in self.engine.options:
            self._say(str(option))
        self._say("uciok")

    def _isready(self, words: list[str]) -> None:
        self._load().add_done_callback(self._ready)

    def _ready(self, loading: Future[Thinker]) -> None:
        if not loading.cancelled() and loading.exception() is None:
            self._say("readyok")

    def _setoption(self, words: list[str]) -> None:
        name, value = _named(words)
        option = self.options.get(name.lower())
        if option is None:
            raise OptionError("no such option", where=name, remedy="`uci` lists them")
        self.values[option.name] = option.read(value)

    def _ucinewgame(self, words: list[str]) -> None:
        self._stop([])
        self.board = chess.Board()

    def _position(self, words: list[str]) -> None:
        self.board = None  # if it cannot be read, nothing is thought about
        self.board = read_board(words)

    def _go(self, words: list[str]) -> None:
        self._stop([])
        limits = Limits.parse(words)
        if self.board is None:
            self._say("info string error: no position to think about")
            self._say("bestmove 0000")
            return
        if not any(self.board.generate_legal_moves()):
            score = "mate 0" if self.board.is_check() else "cp 0"
            self._say(f"info depth 0 score {score}")
            self._say("bestmove (none)")
            return
        seconds = limits.seconds(self.board.turn, float(self.values[OVERHEAD]))
        search = self.search = Search(limits, lambda text: self._say(f"info {text}"), seconds)
        self._load()
        board, values = self.board.copy(), dict(self.values)
        self._answer = self._worker.submit(self._think, board, search, values)

    def _stop(self, words: list[str]) -> None:
        """End the search, if there is one, and wait for its answer."""
        if self.search is not None and self._answer is not None:
            self.search.stopped.set()
            self._answer.result()
        self.search = None

    def _ponderhit(self, words: list[str]) -> None:
        if self.search is not None and self.search.limits.endless:
            self.search.stopped.set()

    def _quit(self, words: list[str]) -> None:
        self.status = 0 if self.status is None else self.status

    # -- the thinking thread ----------------------------------------------------------------

    def _load(self) -> Future[Thinker]:
        if self._loading is None:
            self._loading = self._worker.submit(self.engine.load)
            self._loading.add_done_callback(self._loaded)
        return self._loading

    def _loaded(self, loading: Future[Thinker]) -> None:
        error = loading.exception()
        if error is not None:
            self._tell(error if isinstance(error, QueenError) else RuntimeError(repr(error)))
            self.status = 1
            self._events.put(None)

    def _think(self, board: chess.Board, search: Search, values: dict[str, Value]) -> None:
        """Answer a `go`; what is endless is answered only once it is stopped."""
        if self._loading is None or self._loading.exception() is not None:
            return
        move = self._move(self._loading.result(), board, search, values)
        if search.limits.endless:
            search.stopped.wait()
        self._say(f"bestmove {move.uci()}")

    def _move(
        self, thinker: Thinker, board: chess.Board, search: Search, values: dict[str, Value]
    ) -> chess.Move:
        try:
            move = thinker.think(board.copy(), search, values)
        except Exception as error:
            self._tell(error if isinstance(error, QueenError) else RuntimeError(repr(error)))
        else:
            if board.is_legal(move):
                return move
            self._say(f"info string error: {move.uci()} is not legal here")
        fallback = min(board.legal_moves, key=chess.Move.uci)
        self._say(f"info string no move was found; {fallback.uci()} is any legal one")
        return fallback


def read_board(words: Sequence[str]) -> chess.Board:
    """The board of `startpos` or `fen FEN`, then `moves ...`, with its move stack.

    Raises PositionError on what is no position, or on the first move that cannot be played.
    """
    kind, rest = (words[0], list(words[1:])) if words else ("", [])
    cut = rest.index("moves") if "moves" in rest else len(rest)
    if kind not in ("startpos", "fen"):
        raise PositionError(
            "neither `startpos` nor `fen`", where="position", remedy="say position fen FEN"
        )
    fen = chess.STARTING_FEN if kind == "startpos" else " ".join(rest[:cut])
    board = Position.from_fen(fen).board()
    for ply, word in enumerate(rest[cut + 1 :], start=1):
        try:
            move = played(board, word)
        except ValueError as error:
            raise PositionError(
                f"move {ply}, {word!r}, cannot be played",
                where=board.fen(en_passant="legal"),
                remedy="send legal moves in UCI, like e2e4",
            ) from error
        board.push(move)
    return board


def read_lines(stream: int) -> Iterator[str]:
    """Lines from a file descriptor as they come, with no lock held while waiting."""
    rest = b""
    while chunk := os.read(stream, CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in lines)
    if rest:
        yield rest.decode("utf-8", "replace")


def _named(words: Sequence[str]) -> tuple[str, str]:
    """Name and value of `name N value V`, both of any number of words."""
    words = list(words[1:]) if words[:1] == ["name"] else list(words)
    cut = words.index("value") if "value" in words else len(words)
    return " ".join(words[:cut]), " ".join(words[cut + 1 :])
