"""The analyser: positions in, searched lines out, by cache, rules or many engines at once."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import chess

from queen.engines.analysis import (
    Analysis,
    EngineFailure,
    EngineIdentity,
    Limit,
    Line,
    decode_analysis,
    encode_analysis,
    search_key,
)
from queen.engines.cache import SearchCache
from queen.engines.closing import ClosedAtExit
from queen.engines.identity import identify
from queen.engines.kept import KeptAnswers
from queen.engines.rules import Ready, examine, first_illegal
from queen.engines.score import Score
from queen.engines.uci import EngineFaultError
from queen.engines.workers import EnginePool, EngineSettings, Job
from queen.errors import QueenError

__all__ = [
    "Analyser",
    "Analysis",
    "EngineFailure",
    "EngineIdentity",
    "EngineSettings",
    "Limit",
    "Line",
    "Score",
]

DEFAULTS: dict[str, str | int] = {"Threads": 1, "Hash": 1, "UCI_ShowWDL": "false"}
_MULTIPV = re.compile(rb" multipv (\d+)")


class Analyser(ClosedAtExit):
    """Searches positions, each from a clean state: the answer depends on nothing else.

    Not on the order, the number of workers, or what was searched before (one thread and a
    cleared hash; source: METHOD section 1). Starts engines when first needed. One `analyse` at
    a time; other threads wait.

    Args:
        settings: the engine and how to run it.
        cache: kept searches; None searches everything anew.
    """

    def __init__(self, settings: EngineSettings, cache: SearchCache | None = None) -> None:
        threads = {k: v for k, v in settings.options.items() if k.lower() == "threads"}
        if any(str(value) != "1" for value in threads.values()):
            raise QueenError(
                f"{threads} would make searches depend on timing",
                where="engine options",
                remedy="leave Threads out (it is 1) and raise the number of workers instead",
            )
        self.settings, self.cache = settings, cache
        self._pool = EnginePool(settings, DEFAULTS)
        self._kept = KeptAnswers(self._pool, cache, encode_analysis, decode_analysis)

    @functools.cached_property
    def identity(self) -> EngineIdentity:
        """Name, version, network and options of the engine. Raises EngineStartError."""
        engine = self._pool.engine()
        return identify(engine, self._pool.options(engine))

    def analyse(
        self, fens: Sequence[str], limit: Limit, multipv: int = 1
    ) -> list[Analysis | EngineFailure]:
        """Search positions; equal FENs once.

        Args:
            fens: positions with clocks.
            limit: how long each.
            multipv: lines wanted.

        Returns: one answer for each FEN, in order. Games that are over are answered by the
        rules; illegal positions and those the engine fails on twice are EngineFailures.
        Raises EngineStartError, EngineBrokenError, CacheError.
        """
        key = search_key(self.identity, limit, multipv)
        wanted = list(dict.fromkeys(fens))
        answers: dict[str, Analysis | EngineFailure] = dict(self._kept.recall(key, wanted))
        ready: dict[str, Ready] = {}
        for fen in wanted:
            if fen not in answers:
                outcome = examine(fen)
                if isinstance(outcome, Ready):
                    ready[fen] = outcome
                else:
                    answers[fen] = outcome
        found = self._search(key, ready, limit, multipv)
        answers |= {fen: _as_asked(fen, found[x.fen]) for fen, x in ready.items()}
        return [answers[fen] for fen in fens]

    def _search(
        self, key: str, ready: dict[str, Ready], limit: Limit, multipv: int
    ) -> dict[str, Analysis | EngineFailure]:
        """By canonical FEN: those spelt otherwise may be kept, the others are searched."""
        known = self._kept.recall(key, [x.fen for fen, x in ready.items() if fen != x.fen])
        boards = {x.fen: x.board for x in ready.values() if x.fen not in known}
        jobs = [search_job(fen, board, limit, multipv) for fen, board in boards.items()]
        return {**known, **self._kept.ask(key, jobs, self._setup(multipv))}

    def _setup(self, multipv: int) -> str:
        option = self._pool.engine().options.get("multipv")
        most = 1 if option is None else option.high or multipv
        if not 1 <= multipv <= most:
            raise QueenError(
                f"{multipv} lines asked for, the engine gives 1 to {most}",
                where=f"engine {self._pool.command!r}, option MultiPV",
                remedy="ask for fewer lines",
            )
        return "" if option is None else f"setoption name MultiPV value {multipv}\n"

    def close(self) -> None:
        """End the engines; the cache stays open."""
        self._pool.close()


def _as_asked(fen: str, answer: Analysis | EngineFailure) -> Analysis | EngineFailure:
    if isinstance(answer, EngineFailure):
        return EngineFailure(fen, answer.reason, answer.detail)
    return Analysis(fen, answer.lines, answer.depth, answer.nodes, answer.source)


def search_job(fen: str, board: chess.Board, limit: Limit, multipv: int) -> Job[Analysis]:
    """A search from a clean state. The `isready` marks where its answer begins."""
    request = f"ucinewgame\nisready\nposition fen {fen}\n{limit.go}\n"
    read = functools.partial(read_search, fen, board, multipv)
    return Job(fen, request, b"bestmove", read)


def read_search(fen: str, board: chess.Board, multipv: int, lines: Sequence[bytes]) -> Analysis:
    """The last info of each line, checked against the rules.

    A line is cut before its first illegal move. Raises EngineFaultError("rubbish") where the best
    move is illegal, a score is missing, or the output belongs to no request.
    """
    marks = [number for number, line in enumerate(lines) if line.startswith(b"readyok")]
    if not marks:
        raise EngineFaultError("rubbish", f"an answer nobody asked for: {_show(lines[-1])}")
    words = lines[-1].split()
    best = words[1].decode() if len(words) > 1 else ""
    if first_illegal(board, (best,)) is not None:
        raise EngineFaultError("rubbish", f"no legal best move: {_show(lines[-1])}")
    infos = _last_infos(lines[marks[0] + 1 :], multipv)
    if not infos:
        raise EngineFaultError("rubbish", f"no score before {_show(lines[-1])}")
    found = [_read_info(info) for info in infos]
    depth, nodes, first = found[0]
    if not first.moves or (multipv == 1 and first.moves[0] != best):
        found[0] = (depth, nodes, Line(first.score, (best,)))
    checked = tuple(_legal_part(board, line) for _, _, line in found)
    if not all(line.moves for line in checked):
        raise EngineFaultError("rubbish", f"a line without a legal move before {_show(lines[-1])}")
    return Analysis(fen, checked, depth, nodes)


def _last_infos(lines: Sequence[bytes], multipv: int) -> list[bytes]:
    """The last scored info of each line from 1 on, in order."""
    last: dict[int, bytes] = {}
    for line in reversed(lines):
        if not line.startswith(b"info ") or b" score " not in line:
            continue
        match = _MULTIPV.search(line)
        last.setdefault(int(match[1]) if match else 1, line)
        if len(last) == multipv:
            break
    return [last[number] for number in range(1, multipv + 1) if number in last]


def _read_info(line: bytes) -> tuple[int, int, Line]:
    """Depth, nodes and the scored line of one info. Raises ValueError."""
    head, _, moves = line.decode("ascii", "replace").partition(" pv ")
    words = head.split()
    unit, value = words[words.index("score") + 1 :][:2]
    if unit not in ("cp", "mate"):
        raise ValueError(f"score in {unit!r}")
    score = Score(cp=int(value)) if unit == "cp" else Score(mate=int(value))
    number = {
        name: int(words[words.index(name) + 1]) if name in words else 0
        for name in ("depth", "nodes")
    }
    return number["depth"], number["nodes"], Line(score, tuple(moves.split()))


def _legal_part(board: chess.Board, line: Line) -> Line:
    here, moves = board.copy(stack=False), []
    for uci in line.moves:
        try:
            here.push(here.parse_uci(uci))
        except ValueError:
            break
        moves.append(uci)
    return Line(line.score, tuple(moves))


def _show(line: bytes) -> str:
    return repr(line[:80].decode("utf-8", "replace"))
