"""Stage `positions`: games in, the distinct positions of their plies out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import chess
import pyarrow as pa
import xxhash

from queen.games.chess.position import Position, identity
from queen.lineage.artifact import Draft
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows

GAMES_PER_SHARD = 200
AHEAD = 8
POSITIONS = pa.schema(
    [
        ("pid", pa.string()),
        ("game_id", pa.string()),
        ("split", pa.string()),
        ("kind", pa.string()),
        ("ply", pa.int32()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("fen", pa.string()),
        ("played", pa.string()),
        ("ahead", pa.string()),
        ("result", pa.string()),
    ]
)


@dataclass(frozen=True)
class Params:
    """Which positions are taken.

    Attributes:
        skip_plies: the first plies of a game are left out.
        share: share of the positions, by hash of the position.
        limits: at most so many for each split, by hash; 0 takes all.
    """

    skip_plies: int = 6
    share: float = 1.0
    limits: dict[str, int] = field(default_factory=dict)


def pid_of(key: str) -> str:
    """The short name of a position identity."""
    return xxhash.xxh3_128_hexdigest(key.encode())[:20]


def position_of(row: Mapping[str, Any]) -> Position:
    """The position of a table's row (columns `start` and `moves`)."""
    return Position.from_text(row["start"], row["moves"])


def shards(job: Job[Params]) -> Sequence[Shard]:
    return spans(job.table("games").num_rows, GAMES_PER_SHARD)


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Every position before a move, the ones at the end left out: no move was played there."""
    start, stop = shard.spec["start"], shard.spec["stop"]
    games = job.table("games").slice(start, stop - start).to_pylist()
    rows = [row for game in games for row in _positions(game, job.params)]
    write_rows(out / ROWS, rows_table(rows, POSITIONS))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """Each identity once, evaluation splits first, so that no position is in two splits."""
    table = concat_shards(folders)
    keep, drops = _survivors(table, job.params)
    kept = table.take(pa.array(keep, pa.int64()))
    gates.check("positions", kept)
    write_rows(out / ROWS, kept)
    counts = {"seen": table.num_rows, "kept": kept.num_rows, **Counter(kept["split"].to_pylist())}
    return Draft(counts=counts, drops=drops, licences=job.inputs["games"].record.licences)


def _positions(game: Mapping[str, Any], params: Params) -> Iterator[dict[str, Any]]:
    board = chess.Board(game["start"])
    moves = game["moves"].split()
    for ply, uci in enumerate(moves):
        key = identity(board)
        if ply >= params.skip_plies and _sampled(key, params.share):
            yield {
                "pid": pid_of(key),
                "game_id": game["game_id"],
                "split": game["split"],
                "kind": game["kind"],
                "ply": ply,
                "start": game["start"],
                "moves": " ".join(moves[:ply]),
                "fen": board.fen(en_passant="legal"),
                "played": uci,
                "ahead": " ".join(moves[ply : ply + AHEAD]),
                "result": game["result"],
            }
        board.push_uci(uci)


def _sampled(key: str, share: float) -> bool:
    return share >= 1.0 or xxhash.xxh3_64_intdigest(key.encode(), seed=1) < share * 2.0**64


def _survivors(table: pa.Table, params: Params) -> tuple[list[int], Counter[str]]:
    """Row numbers to keep, in table order, and why the others went."""
    rank = {"test": 0, "dev": 1, "train": 2}
    splits, pids = table["split"].to_pylist(), table["pid"].to_pylist()
    order = sorted(range(len(pids)), key=lambda i: (rank[splits[i]], pids[i], i))
    drops: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    seen: set[str] = set()
    keep = []
    for i in order:
        limit = params.limits.get(splits[i], 0)
        if pids[i] in seen:
            drops["duplicate"] += 1
        elif limit and taken[splits[i]] >= limit:
            drops["over_limit"] += 1
        else:
            keep.append(i)
            taken[splits[i]] += 1
        seen.add(pids[i])
    return sorted(keep), drops


SPEC = StageSpec(
    name="positions",
    params=Params,
    section="positions",
    inputs={"games": "data/games"},
    output="data/positions",
    shards=shards,
    work=work,
    assemble=assemble,
    side_by_side=lambda params: True,
)
