"""Positions of a part of a game archive: filtered, counted, as a table of OCCURRENCES."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from queen.games.chess.pgn import BAD_FEN, ENCODING, NO_MOVES
from queen.positions import comments
from queen.positions.cutting import GameText, Part, games_of
from queen.positions.headers import (
    CHESS960,
    RESULTS,
    SPEEDS,
    STANDARD,
    UNFINISHED,
    Facts,
    Start,
    facts_of,
    start_of,
)
from queen.positions.packed import POSITION_BYTES, SIDE, Packed
from queen.positions.reading import Movetext, Plies, Reader
from queen.positions.schema import GAME_BYTES, OCCURRENCES

GAMES_AT_ONCE = 2048
LONGEST_PLY = 32_767
DETAIL = 160  # characters of a fault's detail that are kept
OVERSIZE = "oversize"
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\v\f"))
FAULTS = pa.schema(
    [
        ("reason", pa.string()),
        ("source", pa.string()),
        ("offset", pa.int64()),
        ("kept", pa.int32()),
        ("detail", pa.string()),
    ]
)


@dataclass(frozen=True)
class Rating:
    """Bounds of both players' ratings; 0 for none. With a bound, unrated games are left out."""

    min: int = 0
    max: int = 0

    def holds(self, facts: Facts) -> bool:
        if not self.min and not self.max:
            return True
        sides = (facts.white_elo, facts.black_elo)
        return all(e is not None and self.min <= e <= (self.max or e) for e in sides)


@dataclass(frozen=True)
class Filters:
    """Which games and positions are taken.

    Attributes:
        skip_plies: positions after the first so many moves of a game are left out.
        rating: bounds of both players' ratings.
        time_control: speeds as Lichess has them (`queen.positions.headers.SPEEDS`); none for all.
        variants: of standard and chess960.
        results: `1-0`, `0-1`, `1/2-1/2` and `*`; none for all.
        share: of the positions, by hash of the position: a position is in for all games or none.
    """

    skip_plies: int = 0
    rating: Rating = Rating()
    time_control: tuple[str, ...] = ()
    variants: tuple[str, ...] = (STANDARD, CHESS960)
    results: tuple[str, ...] = ()
    share: float = 1.0

    def unknown(self) -> dict[str, list[str]]:
        """Words that name nothing, by field; empty if all is well."""
        known = {
            "time_control": set(SPEEDS),
            "variants": {STANDARD, CHESS960},
            "results": {*RESULTS, UNFINISHED},
        }
        wrong = {name: sorted(set(getattr(self, name)) - words) for name, words in known.items()}
        return {name: words for name, words in wrong.items() if words}

    def refused(self, facts: Facts) -> str | None:
        """Why a game is left out, by its headers; None if it is not."""
        if facts.variant not in self.variants:
            return "variant"
        if not self.rating.holds(facts):
            return "rating"
        if self.time_control and facts.speed not in self.time_control:
            return "time_control"
        return None


@dataclass
class Tally:
    """What a part held.

    Attributes:
        counts: `games` read, `taken`, `broken`, and `positions`.
        drops: games and positions left out, by reason.
        faults: rows of FAULTS but for the source.
    """

    counts: Counter[str] = field(default_factory=Counter)
    drops: Counter[str] = field(default_factory=Counter)
    faults: list[dict[str, object]] = field(default_factory=list)

    def fault(self, reason: str, offset: int, detail: str, kept: int = 0) -> None:
        self.faults.append(
            {"reason": reason, "offset": offset, "kept": kept, "detail": detail[:DETAIL]}
        )
        self.drops[f"fault.{reason}"] += 1


@dataclass(slots=True)
class _Wanted:
    """A game that is read: its text, headers and start."""

    game: GameText
    facts: Facts
    start: Start


def extract(part: Part, filters: Filters, reader: Reader) -> tuple[pa.Table, Tally]:
    """The positions after each move of a part's games, as OCCURRENCES, and what was left out."""
    tally, tables, group = Tally(), [], list[_Wanted]()
    for wanted in _wanted(part, filters, tally):
        group.append(wanted)
        if len(group) == GAMES_AT_ONCE:
            tables.append(_table(group, filters, reader, tally))
            group = []
    tables.append(_table(group, filters, reader, tally))
    if part.failure is not None:
        tally.fault(part.failure.reason, part.end, part.failure.what)
    table = pa.concat_tables(tables)
    tally.counts["positions"] = table.num_rows
    return table, tally


def _wanted(part: Part, filters: Filters, tally: Tally) -> Iterator[_Wanted]:
    clean = len(part.data.translate(None, _CONTROL)) == len(part.data)
    for game in games_of(part):
        tally.counts["games"] += 1
        facts = facts_of(game.head)
        if game.oversize:
            tally.fault(OVERSIZE, game.offset, "the game is too long")
        elif not clean and game.body.translate(None, _CONTROL) != game.body:
            tally.fault(ENCODING, game.offset, "control characters: no UTF-8 or Latin-1 text")
        elif reason := filters.refused(facts):
            tally.drops[f"games.{reason}"] += 1
        else:
            try:
                start = start_of(facts.fen, facts.variant == CHESS960)
            except ValueError as error:
                tally.fault(BAD_FEN, game.offset, str(error))
            else:
                if start.chess960 and CHESS960 not in filters.variants:
                    tally.drops["games.variant"] += 1
                else:
                    yield _Wanted(game, facts, start)


def _table(group: Sequence[_Wanted], filters: Filters, reader: Reader, tally: Tally) -> pa.Table:
    """The rows of some games."""
    plies = reader.read([Movetext(w.game.body, w.start, w.game.plain, w.game.cut) for w in group])
    for number, (reason, detail) in sorted(plies.faults.items()):
        # What broke off is told once, by its archive.
        if not group[number].game.cut:
            tally.fault(reason, group[number].game.offset, detail, int(plies.lengths[number]))
    broken = [n for n, (reason, _) in plies.faults.items() if reason != NO_MOVES]
    tally.counts["broken"] += len(broken)
    results = _results(group, plies)
    keep = _kept(plies, results, filters, tally)
    tally.counts["taken"] += len(np.unique(_numbers(plies)[keep]))
    return _columns(group, plies, results, keep)


def _numbers(plies: Plies) -> npt.NDArray[np.int64]:
    """The game of each ply, [n]."""
    return np.repeat(np.arange(len(plies.lengths)), plies.lengths)


def _ply(plies: Plies) -> npt.NDArray[np.int64]:
    """Half-moves made, [n]: 1 after the first."""
    begun = np.cumsum(plies.lengths) - plies.lengths
    return np.arange(len(plies.move)) - np.repeat(begun, plies.lengths) + 1


def _results(group: Sequence[_Wanted], plies: Plies) -> npt.NDArray[np.int8]:
    """White's result of each game, [g], -2 for none: the headers' if they have one."""
    told = [-2 if w.facts.result is None else w.facts.result for w in group]
    header = np.array(told, np.int8)
    return np.where(header == -2, plies.endings, header)


def _kept(
    plies: Plies, results: npt.NDArray[np.int8], filters: Filters, tally: Tally
) -> npt.NDArray[np.int64]:
    """Row numbers of the positions that are taken; the others are counted."""
    keep = np.ones(len(plies.move), np.bool_)
    if filters.results:
        wanted = [RESULTS.get(name, -2) for name in filters.results]
        fits = np.isin(results, wanted)
        tally.drops["games.result"] += int((~fits).sum())
        keep &= np.repeat(fits, plies.lengths)
    ply = _ply(plies)
    for reason, fits in (
        ("skip_plies", ply > filters.skip_plies),
        ("too_long", ply <= LONGEST_PLY),
        ("share", sampled(plies.packed, filters.share)),
    ):
        tally.drops[f"positions.{reason}"] += int((keep & ~fits).sum())
        keep &= fits
    tally.drops = +tally.drops
    return np.flatnonzero(keep)


def sampled(packed: Packed, share: float) -> npt.NDArray[np.bool_]:
    """Whether each position, [n, 36], is in a share of all, by its hash alone, [n]."""
    if share >= 1.0:
        return np.ones(len(packed), np.bool_)
    words = np.ascontiguousarray(packed).view("<u4").astype(np.uint64)
    mixed = np.zeros(len(packed), np.uint64)
    for column in range(words.shape[1]):
        mixed = (mixed ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    return mixed < np.uint64(max(share, 0.0) * 2.0**64)


def _columns(
    group: Sequence[_Wanted],
    plies: Plies,
    results: npt.NDArray[np.int8],
    keep: npt.NDArray[np.int64],
) -> pa.Table:
    numbers = _numbers(plies)[keep]
    white = plies.packed[keep, SIDE] == 0
    cp, mate = comments.scores(plies.evals[keep], white)
    result = results[numbers]
    clock = plies.clock[keep]
    elos = [_elos([w.facts.white_elo for w in group]), _elos([w.facts.black_elo for w in group])]
    columns = [
        fixed(plies.packed[keep], POSITION_BYTES),
        fixed(_ids(group, plies)[numbers], GAME_BYTES),
        pa.array(_ply(plies)[keep].astype(np.int16)),
        pa.array(plies.halfmove[keep]),
        pa.array(plies.move[keep]),
        pa.array(_played(plies)[keep]),
        *(pa.array(elo[numbers], mask=elo[numbers] == 0) for elo in elos),
        pa.array(clock, mask=np.isnan(clock)),
        pa.array(cp.data, mask=np.ma.getmaskarray(cp)),
        pa.array(mate.data, mask=np.ma.getmaskarray(mate)),
        pa.array(result, mask=result == -2),
    ]
    return pa.Table.from_arrays(columns, schema=OCCURRENCES)


def _elos(told: list[int | None]) -> npt.NDArray[np.int16]:
    return np.array([elo or 0 for elo in told], np.int16)


def _played(plies: Plies) -> npt.NDArray[np.uint16]:
    """The move made in each position, [n]; 0 where the game ends."""
    played = np.append(plies.move[1:], np.uint16(0)) if len(plies.move) else plies.move
    played[np.cumsum(plies.lengths)[plies.lengths > 0] - 1] = 0
    return played


def _ids(group: Sequence[_Wanted], plies: Plies) -> npt.NDArray[np.uint8]:
    """A hash for each game, [g, 16]: of its start, its moves with clocks and evaluations, and
    headers without names. So two rows of the same game and ply are the same row."""
    told = np.zeros(len(plies.move), [("move", "<u2"), ("clock", "<f4"), ("eval", "<f4")])
    told["move"] = plies.move
    told["clock"] = np.where(np.isnan(plies.clock), np.float32(np.nan), plies.clock)
    told["eval"] = np.where(np.isnan(plies.evals), np.float32(np.nan), plies.evals)
    data, size = memoryview(told.tobytes()), told.dtype.itemsize
    out = bytearray()
    stop = 0
    for wanted, length, result in zip(group, plies.lengths, _results(group, plies), strict=True):
        first, stop = stop, stop + size * int(length)
        facts = wanted.facts
        head = b"%d %d %d\0%s\0" % (
            result,
            facts.white_elo or 0,
            facts.black_elo or 0,
            facts.identifying,
        )
        out += xxhash.xxh3_128_digest(b"".join((wanted.start.row, head, data[first:stop])))
    return np.frombuffer(bytes(out), np.uint8).reshape(len(group), GAME_BYTES)


def fixed(rows: npt.NDArray[np.uint8], width: int) -> pa.Array:
    """Rows of bytes, [n, width], as an Arrow column."""
    data = pa.py_buffer(np.ascontiguousarray(rows).data)
    return pa.Array.from_buffers(pa.binary(width), len(rows), [None, data])
