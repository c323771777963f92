"""Stage `sample`: the root positions of a round, mixed from their sources by share."""

from __future__ import annotations

import difflib
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from queen.errors import QueenError
from queen.games.chess.puzzles import read_puzzles
from queen.lineage.artifact import Draft, file_digest
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, write_rows
from stages.decontaminate import Guard
from stages.positions import pid_of

SOURCES = ("human", "engine", "puzzles")
AGAIN = "drawn_again"
ROOTS = pa.schema(
    [
        ("pid", pa.string()),
        ("source", pa.string()),
        ("game_id", pa.string()),
        ("ply", pa.int32()),
        ("start", pa.string()),
        ("moves", pa.string()),
        ("fen", pa.string()),
    ]
)


@dataclass(frozen=True)
class Params:
    """Which roots.

    Attributes:
        roots: how many.
        shares: share of each source: `human` games, `engine` games, `puzzles`. A source that
            is short is filled up from the others, and that is counted.
        skip: how many roots of the same order are passed over, by the same shares: those that
            earlier rounds drew (`queen configure` fills it in). At a source's end it starts anew,
            and that is counted as `drawn_again`.
        puzzles: a Lichess puzzle CSV (.csv, .csv.gz or .csv.zst), if puzzles are wanted.
    """

    roots: int
    shares: dict[str, float] = field(default_factory=lambda: {"human": 0.5, "engine": 0.5})
    skip: int = 0
    puzzles: str | None = None


def shards(job: Job[Params]) -> Sequence[Shard]:
    spec = {}
    if job.params.puzzles:
        spec["puzzles"] = file_digest(job.project / job.params.puzzles)
    return [Shard("roots", spec)]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Draw from each source in a seeded order, skipping what evaluation uses."""
    _check_shares(job.params.shares)
    guard = Guard.of(job.inputs["evalset"])
    chosen: dict[str, dict[str, Any]] = {}
    drops: Counter[str] = Counter()
    pools = {source: _pool(job, source) for source in sorted(job.params.shares)}
    again = 0
    for source, wanted in _quotas(job.params, pools).items():
        clear = _clear(pools[source], guard, {*chosen}, drops)
        rows, repeated = _window(clear, _passed_over(job.params, wanted), wanted)
        chosen.update({row["pid"]: {**row, "source": source} for row in rows})
        again += repeated
    told = {**drops, **({AGAIN: again} if again else {})}
    table = rows_table(list(chosen.values()), ROOTS)
    write_rows(out / ROWS, table.replace_schema_metadata({k: str(v) for k, v in told.items()}))


def _clear(
    pool: Sequence[dict[str, Any]], guard: Guard, met: set[str], drops: Counter[str]
) -> Iterator[dict[str, Any]]:
    """What may be a root, in order, each position once; the others are counted."""
    for row in pool:
        reason = guard.reason(row) or ("duplicate" if row["pid"] in met else None)
        if reason is not None:
            drops[reason] += 1
            continue
        met.add(row["pid"])
        yield row


def _passed_over(params: Params, wanted: int) -> int:
    """A source's part in the roots that earlier rounds drew."""
    return math.ceil(params.skip * wanted / params.roots)


def _window(
    rows: Iterator[dict[str, Any]], first: int, wanted: int
) -> tuple[list[dict[str, Any]], int]:
    """`wanted` rows from row `first` on, from the start again after the last; and how many so."""
    found = list(itertools.islice(rows, first + wanted))
    places = range(first, first + min(wanted, len(found)))
    return [found[place % len(found)] for place in places], sum(p >= len(found) for p in places)


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    drops = {k.decode(): int(v) for k, v in (table.schema.metadata or {}).items()}
    if table.num_rows == 0:
        raise QueenError(
            "no root could be sampled",
            where=str(dict(job.params.shares)),
            remedy="give shares to sources that have positions",
        )
    table = table.replace_schema_metadata(None)
    gates.check("roots", table)
    write_rows(out / ROWS, table)
    again = {AGAIN: drops.pop(AGAIN)} if AGAIN in drops else {}
    counts = {"wanted": job.params.roots, "kept": table.num_rows, **again}
    return Draft(
        counts={**counts, **Counter(table["source"].to_pylist())},
        drops=drops,
        licences=job.inputs["positions"].record.licences,
    )


def _pool(job: Job[Params], source: str) -> list[dict[str, Any]]:
    """A source's rows in the round's own order."""
    rows = _puzzles(job) if source == "puzzles" else _game_positions(job, source)
    random.Random(f"{job.seed} {source}").shuffle(rows)
    return rows


def _game_positions(job: Job[Params], kind: str) -> list[dict[str, Any]]:
    table = job.table("positions")
    chosen = pc.and_(pc.equal(table["split"], "train"), pc.equal(table["kind"], kind))
    names = [name for name in ROOTS.names if name != "source"]
    rows: list[dict[str, Any]] = table.filter(chosen).select(names).to_pylist()
    return rows


def _puzzles(job: Job[Params]) -> list[dict[str, Any]]:
    if not job.params.puzzles:
        raise QueenError(
            "puzzles have a share but there is no puzzle file",
            where="sample.puzzles",
            remedy="set it to a Lichess puzzle CSV, or the share to 0",
        )
    return [
        {
            "pid": pid_of(puzzle.position.key),
            "game_id": puzzle.game_id,
            "ply": None,
            "start": puzzle.position.start,
            "moves": " ".join(puzzle.position.moves),
            "fen": puzzle.position.fen,
        }
        for puzzle in read_puzzles(job.project / job.params.puzzles)
    ]


def _check_shares(shares: Mapping[str, float]) -> None:
    """Raise QueenError on a source there is none of, or shares that choose nothing."""
    for source in shares:
        if source not in SOURCES:
            near = difflib.get_close_matches(source, SOURCES, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise QueenError(
                f"unknown source {source!r}",
                where="sample.shares",
                remedy=f"{hint}known: {', '.join(SOURCES)}",
            )
    if min(shares.values(), default=0.0) < 0 or sum(shares.values()) <= 0:
        raise QueenError(
            f"{dict(shares)} are no shares",
            where="sample.shares",
            remedy="give numbers from 0 on, one of them above 0",
        )


def _quotas(params: Params, pools: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """How many from each source; what a short source lacks goes to the ones that have more."""
    total = sum(params.shares.values())
    quotas: dict[str, int] = {}
    for source, share in sorted(params.shares.items()):
        left = params.roots - sum(quotas.values())
        quotas[source] = min(len(pools[source]), round(params.roots * share / total), left)
    for source in sorted(quotas, key=lambda s: -len(pools[s])):
        missing = params.roots - sum(quotas.values())
        quotas[source] += max(0, min(missing, len(pools[source]) - quotas[source]))
    return quotas


SPEC = StageSpec(
    name="sample",
    params=Params,
    section="sample",
    inputs={"positions": "data/positions", "evalset": "data/evalset"},
    output="data/sample/{key}",
    shards=shards,
    work=work,
    assemble=assemble,
    per="round",
)
