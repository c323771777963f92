"""Labels of many positions: one score and move each, from a clean state, as fast as a bare pipe.

`Analyser` checks whole lines and keeps searches for others; a data set of millions needs neither.
Here a position is unpacked, checked and worded while its engine is still at those before it, and
of the answer only the last score and the best move are read.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal, overload

import chess
import numpy as np

from queen.engines.analysis import EngineFailure, EngineIdentity, Limit
from queen.engines.identity import identify
from queen.engines.pool import DEFAULTS
from queen.engines.rules import final_score
from queen.engines.uci import EngineFaultError
from queen.engines.workers import EnginePool, EngineSettings, Job
from queen.positions.boards import boards_of
from queen.positions.comments import LARGEST_CP
from queen.positions.fens import fens
from queen.positions.packed import POSITION_BYTES
from queen.positions.schema import move_code

CHESS960 = "uci_chess960"
AT_ONCE = 64


@dataclass(frozen=True)
class Asked:
    """A position to label.

    Attributes:
        position: its 36 bytes.
        halfmove: clock of the fifty-move rule.
        ply: half-moves made before it; searches do not depend on it.
    """

    position: bytes
    halfmove: int = 0
    ply: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A score from the side to move.

    Attributes:
        cp, mate: one of the two; mate 0: the side to move is mated.
        best: code of the engine's move, 0 where the rules answered.
        depth, nodes: as the engine counted them; 0 where the rules answered.
        source: who answered.
    """

    cp: int | None
    mate: int | None
    best: int
    depth: int
    nodes: int
    source: Literal["engine", "rules"] = "engine"


class Labeller:
    """Engines kept ready to label; each position from a clean state, so that nothing else matters.

    Args:
        settings: the engine and how many processes of it.
        limit: of each search.
    """

    def __init__(self, settings: EngineSettings, limit: Limit) -> None:
        self._pool, self._limit = EnginePool(settings, DEFAULTS), limit

    @functools.cached_property
    def identity(self) -> EngineIdentity:
        """Name, version, network and options of the engine. Raises EngineStartError."""
        engine = self._pool.engine()
        return identify(engine, self._pool.options(engine))

    def label(self, asked: Sequence[Asked]) -> Iterator[tuple[int, Label | EngineFailure]]:
        """Answers with the numbers of their positions, as they come.

        Games that are over are answered by the rules. A position that is illegal, or that the
        engine fails on twice (the second time alone, in a fresh process), is an EngineFailure.
        Raises EngineStartError, EngineBrokenError.
        """
        if not asked:
            return
        jobs = _Jobs(asked, self._limit, CHESS960 in self._pool.engine().options)
        with closing(self._pool.run(jobs)) as stream:
            for number, answer in stream:
                jobs.forget(number)
                yield number, answer

    def close(self) -> None:
        """End the engines."""
        self._pool.close()


Answer = Label | EngineFailure


class _Jobs(Sequence[Job[Answer]]):
    """Exchanges made when an engine is about to need them, and kept until they are answered."""

    def __init__(self, asked: Sequence[Asked], limit: Limit, chess960: bool) -> None:
        self._asked, self._limit, self._chess960 = asked, limit, chess960
        self._boards: dict[int, tuple[chess.Board, str]] = {}
        self._made: dict[int, Job[Answer]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._asked)

    @overload
    def __getitem__(self, at: int) -> Job[Answer]: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Job[Answer]]: ...
    def __getitem__(self, at: int | slice) -> Job[Answer] | Sequence[Job[Answer]]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        with self._lock:
            if at not in self._made:
                if at not in self._boards:
                    self._unpack(at - at % AT_ONCE)
                self._made[at] = self._make(*self._boards.pop(at))
            return self._made[at]

    def forget(self, number: int) -> None:
        with self._lock:
            self._made.pop(number, None)

    def _unpack(self, first: int) -> None:
        """Boards and FENs of some neighbours at once, which is cheaper than each alone."""
        some = self._asked[first : first + AT_ONCE]
        packed = np.frombuffer(b"".join(one.position for one in some), np.uint8)
        packed = packed.reshape(-1, POSITION_BYTES)
        halfmoves, fullmoves = [x.halfmove for x in some], [x.ply // 2 + 1 for x in some]
        boards = boards_of(packed, halfmoves, fullmoves)
        texts = fens(packed, np.array(halfmoves), np.array(fullmoves))
        self._boards.update(enumerate(zip(boards, texts, strict=True), start=first))

    def _make(self, board: chess.Board, fen: str) -> Job[Answer]:
        known = self._known(board, fen)
        if known is not None:
            return Job(fen, "", b"", lambda _: known)
        request = f"ucinewgame\nisready\n{self._rules(board)}position fen {fen}\n{self._limit.go}\n"
        return Job(fen, request, b"bestmove", functools.partial(read_label, board))

    def _rules(self, board: chess.Board) -> str:
        """Said before every search: `ucinewgame` has waited for the one before to end."""
        if not self._chess960:
            return ""
        return f"setoption name UCI_Chess960 value {str(board.chess960).lower()}\n"

    def _known(self, board: chess.Board, fen: str) -> Answer | None:
        """What needs no engine: illegal positions, and games that are over."""
        status = board.status()
        if status != chess.STATUS_VALID:
            return EngineFailure(fen, "illegal", f"not a legal chess position: {status!r}")
        score = final_score(board)
        if score is not None:
            return Label(score.cp, score.mate, 0, 0, 0, "rules")
        if board.chess960 and not self._chess960:
            return EngineFailure(fen, "illegal", "the engine does not castle as in Chess960")
        return None


def read_label(board: chess.Board, lines: Sequence[bytes]) -> Label:
    """The last score before the best move, as `Analyser` and python-chess take it.

    Raises EngineFaultError("rubbish") where the move is illegal, a score is missing, or the output
    belongs to no request; ValueError or IndexError where it cannot be read.
    """
    if not any(line.startswith(b"readyok") for line in lines):
        raise EngineFaultError("rubbish", f"an answer nobody asked for: {lines[-1][:200]!r}")
    words = lines[-1].split()
    try:
        move = board.parse_uci(words[1].decode())
    except (ValueError, IndexError) as error:
        raise EngineFaultError("rubbish", f"no legal best move: {lines[-1][:200]!r}") from error
    info = _last_info(lines)
    if info is None:
        raise EngineFaultError("rubbish", f"no score before {lines[-1][:200]!r}")
    said = info.split()
    unit, value = said[said.index(b"score") + 1 :][:2]
    if unit not in (b"cp", b"mate"):
        raise EngineFaultError("rubbish", f"score in {unit!r}")
    score = max(-LARGEST_CP, min(LARGEST_CP, int(value)))
    cp, mate = (score, None) if unit == b"cp" else (None, score)
    return Label(cp, mate, move_code(move), _number(said, b"depth"), _number(said, b"nodes"))


def _last_info(lines: Sequence[bytes]) -> bytes | None:
    """The last scored info of this search; where it was cut short, that may be a bound."""
    for line in reversed(lines):
        if line.startswith(b"readyok"):
            break
        if line.startswith(b"info ") and b" score " in line:
            return line
    return None


def _number(words: Sequence[bytes], name: bytes) -> int:
    return int(words[words.index(name) + 1]) if name in words else 0
