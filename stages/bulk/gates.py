"""Gates of tables too large for memory: every row is scanned, some are brought before the suite.

The scan looks at all rows, a row group at a time: bytes that are no position, order and repetition,
counts, scores, overlap with the evaluation set. Rows it finds odd are brought before the suite of
Great Expectations (`stages.gates`), with a sample of the others by the hash of their positions; on
these few thousand python-chess says too whether they are legal and whether mates are mates. So the
gate's message shows the rows at fault, and its cost is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import chess
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from queen.positions.barred import Barred
from queen.positions.fens import fens
from queen.positions.hashing import Hashes, position_hash
from queen.positions.packed import Packed, unpack
from queen.positions.possible import can_mate, possible
from queen.positions.records import fixed_bytes
from queen.positions.schema import LABELS, move_code, move_of
from queen.positions.survey import LABEL_KINDS, label_kinds
from stages import gates

Mask = npt.NDArray[np.bool_]
SAMPLE = 4096
MOST_ODD = 200
LEAST_FOR_SHARES = 500
# Scores of 114,705 positions of rated games, from the side to move, as lichess.org's engine gave
# them: shares of tenths of expected score, then of mates for the side to move and against it.
EXPECTED_SHARES = {
    **dict(
        zip(
            map(str, range(10)),
            (0.077, 0.043, 0.038, 0.058, 0.166, 0.274, 0.077, 0.047, 0.052, 0.093),
            strict=True,
        )
    ),
    "mates": 0.042,
    "mated": 0.033,
}
FURTHEST = 1.0  # Kullback-Leibler divergence, in nats


@dataclass
class Before:
    """The row before the one that is looked at: order and repetition cross row groups."""

    hash: int = -1
    key: tuple[bytes, str] = (b"", "")
    game: bytes = b""
    ply: int = 0
    first_ply: int = 0


def check_occurrences(paths: Sequence[Path]) -> None:
    """The gate `extract` on files of OCCURRENCES, in the order of their games.

    With 500 of the dump's evaluations or more in the sample their distribution is looked at, as
    with labels. The evaluation set is not: its positions are left out by `dedup`.

    Raises GateError with the rows at fault.
    """
    table = occurrence_rows(paths)
    scored = table.filter(pc.and_(table["sampled"], pc.is_valid(_score(table))))
    scores = scored.select(["eval_cp", "eval_mate"]).rename_columns(["cp", "mate"])
    gates.check_suite("extract", *_with_shares(gates.SUITES["extract"], table, scores))


def occurrence_rows(paths: Sequence[Path]) -> pa.Table:
    """The rows of OCCURRENCES that the suite sees, with what the scan says of them."""
    return _brought(paths, Barred(), _odd_occurrences, _played_by_rules, _row_hashes)


def _score(rows: pa.Table) -> pa.ChunkedArray:
    """Null where the dump has no evaluation."""
    return pc.coalesce(rows["eval_cp"], rows["eval_mate"])


def check_distinct(paths: Sequence[Path], barred: Barred) -> None:
    """The gate `dedup` on files of DISTINCT.

    Raises GateError with the rows at fault.
    """
    gates.check("dedup", distinct_rows(paths, barred))


def distinct_rows(paths: Sequence[Path], barred: Barred) -> pa.Table:
    """The rows of DISTINCT that the suite sees, with what the scan says of them."""
    return _brought(paths, barred, _odd_distinct, _whole)


def check_labels(paths: Sequence[Path]) -> None:
    """The gate `label` on files of LABELS, in the order of the positions of `dedup`, which are
    those of no evaluation set.

    With 500 labels or more in the sample their distribution is looked at too: its divergence from
    that of rated games must be below one nat.

    Raises GateError with the rows at fault.
    """
    table = label_rows(paths)
    sampled = table.filter(table["sampled"])
    gates.check_suite("label", *_with_shares(gates.SUITES["label"], table, sampled))


def _with_shares(
    suite: gates.Suite, table: pa.Table, scores: pa.Table
) -> tuple[gates.Suite, pa.Table]:
    """The suite and its rows, with the distribution of scores where these are enough."""
    if scores.num_rows < LEAST_FOR_SHARES:
        return suite, table
    distance = pa.array([divergence(scores)] * table.num_rows)
    return replace(suite, rules=(*suite.rules, SHARES)), table.append_column("divergence", distance)


def label_rows(paths: Sequence[Path]) -> pa.Table:
    """The rows of LABELS that the suite sees, with what the scan says of them."""
    return _brought(paths, Barred(), _odd_labels, _judged)


SHARES = gates.Rule(
    "ExpectColumnMeanToBeBetween", {"column": "divergence", "min_value": 0, "max_value": FURTHEST}
)


def divergence(labels: pa.Table) -> float:
    """Kullback-Leibler divergence of the labels' classes from the expected shares, in nats."""
    cp, mate = (pc.fill_null(labels[name], 0).to_numpy() for name in ("cp", "mate"))
    kinds = label_kinds(cp, mate, labels["cp"].is_null().to_numpy())
    found = np.roll(np.bincount(kinds, minlength=len(LABEL_KINDS)), -1)  # who is mated last
    found = found / max(1, found.sum())
    wanted = np.array(list(EXPECTED_SHARES.values()))
    some = found > 0
    return float((found[some] * np.log(found[some] / wanted[some] * wanted.sum())).sum())


Odd = Callable[[pa.Table, Packed, Hashes, Before], dict[str, Mask]]
Judge = Callable[[pa.Table], pa.Table]
Key = Callable[[pa.Table, Hashes], Hashes]


def _row_hashes(rows: pa.Table, hashes: Hashes) -> Hashes:
    """A number for each occurrence: the positions of openings stand in millions of games."""
    games = fixed_bytes(rows["game"].combine_chunks())
    heads = np.ascontiguousarray(games[:, :8]).view("<u8")[:, 0]
    return hashes ^ heads * np.uint64(0xD6E8FEB86659FD93)


def _brought(
    paths: Sequence[Path], barred: Barred, odd: Odd, judge: Judge, key: Key = lambda _, own: own
) -> pa.Table:
    """The rows that the suite sees: odd ones up to a bound, and the sample, taken by `key`."""
    total = sum(pq.read_metadata(path).num_rows for path in paths)
    bound = np.uint64(min(2**64 - 1, int(2.0**64 * min(1.0, SAMPLE / max(1, total)))))
    kept, room, before = [], MOST_ODD, Before()
    for path in paths:
        for rows in _groups(path):
            packed = fixed_bytes(rows["position"].combine_chunks())
            hashes = position_hash(packed)
            marks = {"possible": possible(packed), **odd(rows, packed, hashes, before)}
            marks["barred"] = barred.has_positions(packed) if barred else np.zeros(len(rows), "?")
            faulty = np.flatnonzero(marks["barred"] | ~_all_good(marks))
            sampled = key(rows, hashes) * np.uint64(0x9E3779B97F4A7C15) <= bound
            at = np.union1d(faulty[:room], np.flatnonzero(sampled))
            room -= min(room, len(faulty))
            columns = {name: pa.array(mask[at]) for name, mask in marks.items()}
            columns["sampled"] = pa.array(sampled[at])
            kept.append(_with(rows.take(pa.array(at)), columns))
    if not kept:
        return _with_fens(_with(_empty(paths), {}))
    return judge(_with_fens(pa.concat_tables(kept)))


def _all_good(marks: Mapping[str, Mask]) -> Mask:
    good = [mask for name, mask in marks.items() if name != "barred"]
    return np.asarray(np.logical_and.reduce(good))


def _groups(path: Path) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            rows = file.read_row_group(number)
            if rows.num_rows:
                yield rows


def _empty(paths: Sequence[Path]) -> pa.Table:
    schema = pq.read_schema(paths[0]) if paths else LABELS
    marks = ("possible", "in_order", "one_eval", "counted", "barred", "sampled", "mate_sign")
    for name in (*marks, "rules", "plausible"):
        schema = schema.append(pa.field(name, pa.bool_()))
    return schema.empty_table()


def _with(table: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
    for name, values in columns.items():
        table = table.append_column(name, values)
    return table


def _with_fens(table: pa.Table) -> pa.Table:
    """With FENs, and with bytes as hexadecimal digits, which a person can read and compare."""
    packed = (
        fixed_bytes(table["position"].combine_chunks()) if len(table) else np.empty((0, 36), "u1")
    )
    clock: npt.NDArray[Any] = np.zeros(len(table), np.int64)
    number: npt.NDArray[Any] = np.ones(len(table), np.int64)
    told = fens(packed, clock, number) if len(table) else []
    table = table.append_column("fen", pa.array(told, pa.string()))
    for name in {"position", "game"} & set(table.column_names):
        text = pa.array([value.hex() for value in table[name].to_pylist()], pa.string())
        table = table.set_column(table.column_names.index(name), name, text)
    return table


def _in_order(hashes: Hashes, keys: Sequence[tuple[bytes, str]], before: Before) -> Mask:
    """Where a row's hash is not below the one before it, nor its key among those with this hash.

    Rows that share position and source stand side by side, for hashes do not fall.
    """
    out = np.ones(len(hashes), np.bool_)
    out[1:] = hashes[1:] >= hashes[:-1]
    out[0] = int(hashes[0]) >= before.hash
    same = np.flatnonzero(hashes[1:] == hashes[:-1]) + 1
    seen: set[tuple[bytes, str]] = set()
    for n in [0, *same.tolist()] if int(hashes[0]) == before.hash else same.tolist():
        last = before.key if n == 0 else keys[n - 1]
        seen = {*seen, last} if seen and last in seen else {last}
        out[n] &= keys[n] not in seen
        seen.add(keys[n])
    before.hash, before.key = int(hashes[-1]), keys[-1]
    return out


def _odd_occurrences(
    rows: pa.Table, packed: Packed, hashes: Hashes, before: Before
) -> dict[str, Mask]:
    """Marks of the rows of OCCURRENCES: order of plies, evals, means to mate."""
    both = pc.and_(pc.is_valid(rows["eval_cp"]), pc.is_valid(rows["eval_mate"])).to_numpy()
    return {
        "in_order": _plies_rise(rows, before),
        "one_eval": ~both,
        "mate_sign": _has_means(packed, rows["eval_mate"]),
    }


def _has_means(packed: Packed, mates: pa.ChunkedArray) -> Mask:
    """Where there is no mate, or who is to give it has more than a king."""
    mate = pc.fill_null(mates, 0).to_numpy()
    out = np.ones(len(mate), np.bool_)
    at = np.flatnonzero(pc.is_valid(mates).to_numpy())
    out[at] = can_mate(packed[at], mate[at] > 0)
    return out


def _plies_rise(rows: pa.Table, before: Before) -> Mask:
    """Where a row begins a game or is later in it than the row before.

    A game that an archive holds twice, one after the other, begins again.
    """
    games = fixed_bytes(rows["game"].combine_chunks()).view("V16")[:, 0]
    ply = rows["ply"].to_numpy()
    heads = np.flatnonzero(np.append(True, games[1:] != games[:-1]))
    firsts = ply[heads].copy()
    goes_on = games[0].tobytes() == before.game
    if goes_on:
        firsts[0] = before.first_ply
    first = np.repeat(firsts, np.diff(heads, append=len(ply)))
    last = np.append(before.ply, ply[:-1])
    begins = np.zeros(len(ply), np.bool_)
    begins[heads[1:] if goes_on else heads] = True
    before.game, before.ply = games[-1].tobytes(), int(ply[-1])
    before.first_ply = int(first[-1])
    return np.asarray(begins | (ply > last) | (ply == first))


def _odd_distinct(
    rows: pa.Table, packed: Packed, hashes: Hashes, before: Before
) -> dict[str, Mask]:
    """Marks of the rows of DISTINCT: order, evals, counts."""
    texts = [(row.tobytes(), "") for row in packed]
    ends = sum(rows[name].to_numpy().astype(np.int64) for name in ("white_wins", "draws"))
    ends = ends + rows["black_wins"].to_numpy()
    seen = rows["seen"].to_numpy()
    both = pc.and_(pc.is_valid(rows["eval_cp"]), pc.is_valid(rows["eval_mate"]))
    return {
        "in_order": _in_order(hashes, texts, before),
        "one_eval": ~both.to_numpy(),
        "counted": (seen >= 1) & (ends <= seen),
    }


def _odd_labels(rows: pa.Table, packed: Packed, hashes: Hashes, before: Before) -> dict[str, Mask]:
    """Marks of the rows of LABELS: order, and that who is to mate has with what."""
    sources = rows["source"].to_pylist()
    keys = [(row.tobytes(), source) for row, source in zip(packed, sources, strict=True)]
    return {
        "in_order": _in_order(hashes, keys, before),
        "mate_sign": _has_means(packed, rows["mate"]),
    }


def _whole(table: pa.Table) -> pa.Table:
    return table


def _judged(table: pa.Table) -> pa.Table:
    """Add what python-chess says of the rows: whether the rules and the mates are right."""
    judged = [_by_rules(row) for row in table.to_pylist()]
    return table.append_column("rules", pa.array(judged, pa.bool_()))


def _by_rules(row: Mapping[str, Any]) -> bool:
    """`rules` where the game is over; mated is mated; a mate in one, played, mates."""
    if not row["possible"]:
        return False
    board = unpack(bytes.fromhex(row["position"]))
    if row["source"] == "rules":  # a draw may lie in the clock, which is not here
        return bool(board.is_checkmate() == (row["mate"] == 0))
    if row["mate"] == 1 and row["best"]:
        return _mates(board, row["best"])
    return True


def _played_by_rules(table: pa.Table) -> pa.Table:
    """Add whether the rules allow the move played, and a mate in one where the dump says so."""
    judged = [_plausible(row) for row in table.to_pylist()]
    return table.append_column("plausible", pa.array(judged, pa.bool_()))


def _plausible(row: Mapping[str, Any]) -> bool:
    if not row["possible"]:
        return False
    board = unpack(bytes.fromhex(row["position"]))
    move = move_of(row["played"])
    if move is not None and not board.is_legal(move):
        return False
    codes = map(move_code, board.legal_moves) if row["eval_mate"] == 1 else ()
    return row["eval_mate"] != 1 or any(_mates(board.copy(stack=False), code) for code in codes)


def _mates(board: chess.Board, code: int) -> bool:
    move = move_of(code)
    if move is None or not board.is_legal(move):
        return False
    board.push(move)
    return board.is_checkmate()
