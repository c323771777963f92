"""Why a position is good or bad: Stockfish's hand-crafted evaluation, term by term, in pawns."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import chess
import orjson

from queen.engines.analysis import EngineFailure, EngineIdentity
from queen.engines.cache import SearchCache
from queen.engines.closing import ClosedAtExit
from queen.engines.identity import identify
from queen.engines.kept import KeptAnswers
from queen.engines.locate import INSTALL_TABLE, find_classical
from queen.engines.rules import examine
from queen.engines.table import (
    TERMS,
    Pair,
    Row,
    Table,
    eval_request,
    has_classical_table,
    parse_table,
)
from queen.engines.uci import EngineFaultError, EngineStartError
from queen.engines.workers import EnginePool, EngineSettings, Job

__all__ = [
    "TERMS",
    "ClassicalEvaluator",
    "ClassicalTerms",
    "find_classical",
    "game_phase",
    "has_classical_table",
]

DEFAULTS: dict[str, str | int] = {"Threads": 1, "Hash": 1, "Use NNUE": "false"}
_PHASE = {"n": 1, "b": 1, "r": 2, "q": 4}
_FULL_PHASE = 24
_PIECES_AND_KING = ("Knights", "Bishops", "Rooks", "Queens", "Mobility", "King safety")
# Stockfish 15.1 leaves threats and space out from middlegame + endgame = 2084 internal units on,
# 208 of them a pawn (evaluate.cpp, LazyThreshold2); its Winnable may take some off afterwards.
_LEFT_OUT_FROM = 8.0


def game_phase(fen: str) -> float:
    """1 with all pieces on the board, 0 with kings and pawns only.

    Minor pieces count 1, rooks 2, queens 4, of 24 in all; promoted pieces never lift it above 1.
    *Ours*: the engine's own phase goes by the value of the pieces within two bounds.
    """
    pieces = fen.split(maxsplit=1)[0].lower()
    weight = sum(value * pieces.count(piece) for piece, value in _PHASE.items())
    return min(weight, _FULL_PHASE) / _FULL_PHASE


@dataclass(frozen=True)
class ClassicalTerms:
    """The classical evaluation of one position, all in pawns.

    Attributes:
        fen: the position.
        phase: see `game_phase`.
        terms: by name (`queen.engines.table.TERMS`), (middlegame, endgame) of White, Black and
            White minus Black; the sides None for Material, Imbalance, Winnable and Total.
        evaluation: the engine's own single number, White's view; None if it prints none.
    """

    fen: str
    phase: float
    terms: Mapping[str, Row]
    evaluation: float | None

    @property
    def complete(self) -> bool:
        """False where the engine left terms out: printed as 0, they say nothing.

        It counts material alone in endgames it knows and where one side is far ahead; Stockfish
        also leaves out threats and space where the lead is about five pawns.
        """
        lead = abs(sum(self.terms["Total"].total))
        counted = self._any_of(_PIECES_AND_KING)
        return counted and (lead < _LEFT_OUT_FROM or self._any_of(("Threats", "Space")))

    def _any_of(self, names: Sequence[str]) -> bool:
        rows = [self.terms[name] for name in names]
        return any(any(side) for row in rows for side in (row.white, row.black) if side)

    def blended(self, name: str) -> float:
        """White's minus Black's share of a term as one number, middlegame to endgame by phase."""
        return self._blend(self.terms[name].total)

    def side(self, name: str, color: chess.Color) -> float | None:
        """One side's own share of a term as one number; None where only the difference exists."""
        row = self.terms[name]
        pair = row.white if color == chess.WHITE else row.black
        return None if pair is None else self._blend(pair)

    def _blend(self, pair: Pair) -> float:
        return self.phase * pair[0] + (1 - self.phase) * pair[1]


class ClassicalEvaluator(ClosedAtExit):
    """Classical tables of many positions, several in flight.

    Args:
        settings: the engine, or its command; "auto" takes the first that prints the table.
        cache: kept tables; None asks the engine anew.

    Attributes: `failures` holds the positions the engine failed on, or that chess forbids.
    Raises EngineStartError if no engine prints the table.
    """

    def __init__(self, settings: EngineSettings | str = "auto", cache: SearchCache | None = None):
        if isinstance(settings, str):
            settings = EngineSettings(command=settings, workers=1)
        settings = replace(settings, command=find_classical(settings.command))
        self.failures: list[EngineFailure] = []
        self._pool = EnginePool(settings, DEFAULTS)
        self._kept = KeptAnswers(self._pool, cache, _encode, _decode)

    @functools.cached_property
    def identity(self) -> EngineIdentity:
        """The engine that prints; the network plays no part and is left out."""
        engine = self._pool.engine()
        return replace(identify(engine, self._pool.options(engine)), network_digest="")

    @functools.cached_property
    def unit(self) -> float:
        """A pawn's endgame value in the table's units (Stockfish 15.1 .58, Fairy-Stockfish 1).

        Measured: the mean of Material where one black pawn is missing from the start position,
        over the eight files, so that what its square is worth cancels nearly.
        """
        found = self._tables([_without_pawn(file) for file in range(8)])
        values = [table.rows["Material"].total[1] for table in found.values()]
        if len(values) < 8 or (unit := statistics.mean(values)) <= 0:
            raise EngineStartError(
                "a missing pawn does not change Material in its classical table",
                where=f"engine {self._pool.command!r}",
                remedy=INSTALL_TABLE,
            )
        return unit

    def terms(self, fens: Sequence[str]) -> list[ClassicalTerms | None]:
        """The terms of each position, in order.

        None where the side to move is in check (the engine prints no table then), and where the
        engine failed twice or the position is illegal: those are added to `failures`.
        """
        wanted = list(dict.fromkeys(fens))
        tables = dict(self._kept.recall(self._key, wanted))
        canonical = {fen: self._fit(fen) for fen in wanted if fen not in tables}
        found = self._tables([name for name in canonical.values() if name is not None])
        tables |= {fen: found[name] for fen, name in canonical.items() if name in found}
        unit = self.unit
        terms = {fen: _in_pawns(fen, table, unit) for fen, table in tables.items()}
        return [terms.get(fen) for fen in fens]

    def _fit(self, fen: str) -> str | None:
        """The canonical FEN of a position the engine prints a table for."""
        outcome = examine(fen)
        if isinstance(outcome, EngineFailure):
            self.failures.append(outcome)
            return None
        board = chess.Board(fen)
        return None if board.is_check() else board.fen(en_passant="legal")

    def _tables(self, fens: Sequence[str]) -> dict[str, Table]:
        """Tables by canonical FEN; failures are noted and left out."""
        fens = list(dict.fromkeys(fens))
        tables = self._kept.recall(self._key, fens)
        jobs = [Job(fen, eval_request(fen), b"readyok", _read) for fen in fens if fen not in tables]
        for fen, answer in self._kept.ask(self._key, jobs).items():
            if isinstance(answer, EngineFailure):
                self.failures.append(answer)
            else:
                tables[fen] = answer
        return tables

    @functools.cached_property
    def _key(self) -> str:
        return self.identity.key({"do": "eval"})

    def close(self) -> None:
        """End the engine; the cache stays open."""
        self._pool.close()


def _without_pawn(file: int) -> str:
    board = chess.Board()
    board.remove_piece_at(chess.square(file, 6))
    return board.fen()


def _read(lines: Sequence[bytes]) -> Table:
    table = parse_table([line.decode("utf-8", "replace") for line in lines])
    if table is None:
        raise EngineFaultError("rubbish", "in check where the rules say otherwise")
    return table


def _in_pawns(fen: str, table: Table, unit: float) -> ClassicalTerms:
    def scaled(pair: Pair) -> Pair:
        return pair[0] / unit, pair[1] / unit

    rows = {
        name: Row(
            None if row.white is None else scaled(row.white),
            None if row.black is None else scaled(row.black),
            scaled(row.total),
        )
        for name, row in table.rows.items()
    }
    evaluation = None if table.evaluation is None else table.evaluation / unit
    return ClassicalTerms(fen, game_phase(fen), rows, evaluation)


def _encode(table: Table) -> bytes:
    rows = [[row.white, row.black, row.total] for row in table.rows.values()]
    return orjson.dumps([rows, table.evaluation])


def _decode(fen: str, data: bytes) -> Table:
    rows, evaluation = orjson.loads(data)
    pairs = [(_pair(white), _pair(black), (total[0], total[1])) for white, black, total in rows]
    named = {n: Row(w, b, t) for n, (w, b, t) in zip(TERMS, pairs, strict=True)}
    return Table(named, evaluation)


def _pair(numbers: list[float] | None) -> Pair | None:
    return None if numbers is None else (numbers[0], numbers[1])
