"""Each position once: which of its records survives, and what all of them counted.

Rows are ordered by the hash of their position, then by its bytes. The survivor is the least by
(has no eval, game, ply); should two records agree in all of these, by the rest of their bytes. So
nothing depends on the order in which records come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from queen.positions.hashing import Hashes
from queen.positions.records import COUNTED, COUNTS, OCCURRENCE, Records, positions_of, present

Indices = npt.NDArray[np.int64]
_RESULTS = (("white_wins", 1), ("draws", 0), ("black_wins", -1))
_AT_ONCE = 1 << 15
_FEW = 1 << 12
_NO_EVAL, _ONE = np.uint64(1 << 63), np.uint64(1)


@dataclass(frozen=True)
class Groups:
    """The distinct positions among some records, in order.

    Attributes:
        survivor: which record stands for each position.
        counts: of each position, by the names in COUNTS.
    """

    survivor: Indices
    counts: dict[str, npt.NDArray[np.uint32]]

    def __len__(self) -> int:
        return len(self.survivor)

    def take(self, records: Records, start: int, stop: int) -> Records:
        """The positions from `start` to `stop` as records with counts."""
        out = np.empty(stop - start, COUNTED)
        rows = records.take(self.survivor[start:stop], mode="clip")
        for name in OCCURRENCE.names or ():
            out[name] = rows[name]
        for name in COUNTS:
            out[name] = self.counts[name][start:stop]
        return out


def group(records: Records, hashes: Hashes) -> Groups:
    """Group records by position.

    Args:
        records: of the dtype OCCURRENCE, or COUNTED: groups may be grouped further.
        hashes: of their positions.
    """
    order, first = _ordered(records, hashes)
    starts = np.flatnonzero(first)
    sizes = np.diff(starts, append=len(order))
    survivor = order[starts]
    several = np.flatnonzero(sizes > 1)
    rows = order[np.repeat(sizes > 1, sizes)]
    heads = np.cumsum(sizes[several]) - sizes[several]
    if len(several):
        survivor[several] = rows[_least(records, rows, heads, sizes[several])]
    return Groups(survivor, _counted(records, survivor, sizes, several, rows, heads))


def _ordered(records: Records, hashes: Hashes) -> tuple[Indices, npt.NDArray[np.bool_]]:
    """The order of the records by (hash, position), and which begin a new position."""
    order = _order_by(hashes)
    ranked = hashes.take(order, mode="clip")
    first = np.ones(len(order), np.bool_)
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    same = np.flatnonzero(~first)
    unlike = same[_differ(records, order[same], order[same - 1])]
    if len(unlike):
        _settle(records, order, first, ranked, np.unique(ranked[unlike]))
    return order, first


def _order_by(hashes: Hashes) -> Indices:
    """Indices in order of their hashes: by 16 bits at a time, for which numpy counts."""
    if len(hashes) < _FEW:
        return np.argsort(hashes, kind="stable")
    order = np.argsort(hashes.astype(np.uint16), kind="stable")
    for shift in (16, 32, 48):
        digit = (hashes >> np.uint64(shift)).astype(np.uint16).take(order, mode="clip")
        order = order.take(np.argsort(digit, kind="stable"), mode="clip")
    return order


def _differ(records: Records, one: Indices, other: Indices) -> npt.NDArray[np.bool_]:
    """Where the positions of two lists of records are not the same bytes."""
    out = np.empty(len(one), np.bool_)
    positions = records["position"]
    for start in range(0, len(one), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        out[part] = positions[one[part]] != positions[other[part]]
    return out


def _settle(
    records: Records,
    order: Indices,
    first: npt.NDArray[np.bool_],
    ranked: Hashes,
    shared: Hashes,
) -> None:
    """Order the records of different positions with one hash by their bytes, in place."""
    for number in shared:
        start, stop = (int(np.searchsorted(ranked, number, side)) for side in ("left", "right"))
        rows = order[start:stop]
        keys = [row.tobytes() for row in positions_of(records[rows])]
        places = sorted(range(len(rows)), key=keys.__getitem__)
        order[start:stop] = rows[places]
        first[start:stop] = [
            n == 0 or keys[places[n]] != keys[places[n - 1]] for n in range(len(places))
        ]


def _least(records: Records, rows: Indices, heads: Indices, sizes: Indices) -> Indices:
    """The place in `rows` of the least record of each group; groups stand one after the other."""
    key = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        key[part] = _rough_key(records.take(rows[part], mode="clip"))
    least = np.minimum.reduceat(key, heads)
    found = np.flatnonzero(key == np.repeat(least, sizes))
    group_of = np.repeat(np.arange(len(heads)), sizes)[found]
    first = np.flatnonzero(np.diff(group_of, prepend=-1))
    best = found[first]
    tied = np.flatnonzero(np.diff(first, append=len(found)) > 1)
    if len(tied):
        among = np.isin(group_of, tied)
        best[tied] = _exactly(records, rows, found[among], group_of[among])
    return best


def _rough_key(records: Records) -> Hashes:
    """(has no eval, the first 63 bits of the game) as one number."""
    place = np.dtype(OCCURRENCE.descr[:1]).itemsize  # `game` comes second
    game = np.ndarray(len(records), ">u8", records, place, records.strides)
    no_eval = ~(present(records, "eval_cp") | present(records, "eval_mate"))
    return (game.astype(np.uint64) >> _ONE) | np.where(no_eval, _NO_EVAL, np.uint64(0))


def _exactly(records: Records, rows: Indices, places: Indices, group_of: Indices) -> Indices:
    """The least place of each group by game, ply and then every byte of the record."""
    chosen = records.take(rows[places], mode="clip")
    game = np.ascontiguousarray(chosen["game"]).view(">u8").reshape(-1, 2)
    order = np.lexsort((chosen["ply"], game[:, 1], game[:, 0], group_of))
    chosen, game, ranked = chosen[order], game[order], group_of[order]
    again = (
        (ranked[1:] == ranked[:-1])
        & (game[1:] == game[:-1]).all(axis=1)
        & (chosen["ply"][1:] == chosen["ply"][:-1])
        & (_content(chosen)[1:] != _content(chosen)[:-1])
    )
    if again.any():
        text = _ranks(chosen, ranked)
        order = order[sorted(range(len(text)), key=text.__getitem__)]
    firsts = np.flatnonzero(np.diff(group_of[order], prepend=-1))
    return places[order[firsts]]


def _content(records: Records) -> Records:
    """What of records is not a count, as plain bytes."""
    whole = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
    kept = np.ascontiguousarray(whole[:, : OCCURRENCE.itemsize])
    return kept.view(f"V{OCCURRENCE.itemsize}")[:, 0]


def _ranks(records: Records, group_of: Indices) -> list[tuple[int, bytes, int, bytes]]:
    """What records are ordered by within their groups, to the last byte."""
    games = [game.tobytes() for game in records["game"]]
    plies, contents = records["ply"].tolist(), [row.tobytes() for row in _content(records)]
    return list(zip(group_of.tolist(), games, plies, contents, strict=True))


def _counted(
    records: Records,
    survivor: Indices,
    sizes: Indices,
    several: Indices,
    rows: Indices,
    heads: Indices,
) -> dict[str, npt.NDArray[np.uint32]]:
    """What the records of each group counted together."""
    if records.dtype == COUNTED:
        counts = {name: records[name].take(survivor) for name in COUNTS}
        each = {name: records[name].take(rows) for name in COUNTS}
    else:
        counts = {"seen": sizes.astype(np.uint32)}
        each = {}
        for at, out in ((survivor, counts), (rows, each)):
            result = np.where(present(records, "result"), records["result"], np.int8(9))[at]
            out |= {name: (result == value).astype(np.uint32) for name, value in _RESULTS}
    for name, values in each.items():
        if len(heads):
            counts[name][several] = np.add.reduceat(values, heads, dtype=np.uint32)
    return counts
