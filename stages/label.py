"""Stage `label`: distinct positions in, scores from the side to move out, each with its source."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from queen.engines.analysis import EngineFailure, Limit
from queen.engines.answers import AnswerLog
from queen.engines.labelling import Asked, Label, Labeller
from queen.engines.pool import EngineSettings
from queen.errors import QueenError, readable
from queen.lineage.artifact import Draft
from queen.positions.packed import POSITION_BYTES
from queen.positions.schema import LABELS
from stages.base import (
    ROWS,
    Job,
    Shard,
    StageSpec,
    engine_settings,
    rows_table,
    tables_in,
    write_rows,
)
from stages.bulk import gates as bulk_gates

REJECTS = "rejects.parquet"
COLUMNS = ["position", "ply", "halfmove", "eval_cp", "eval_mate"]
ROW_GROUP = 1 << 16
NEWS_EVERY = 50
SCORED = ("source", "cp", "mate", "best", "depth", "nodes")
QUARANTINED = pa.schema(
    [("position", pa.binary(POSITION_BYTES)), ("fen", pa.string()), ("reason", pa.string())]
)

Source = Literal["engine", "dump"]


@dataclass(frozen=True)
class SearchLimit:
    """How long each position is searched: `depth` or `nodes`, the other 0."""

    depth: int = 0
    nodes: int = 0

    def __post_init__(self) -> None:
        if min(self.depth, self.nodes) < 0 or (self.depth > 0) == (self.nodes > 0):
            raise _refused(
                "label.limit",
                f"depth {self.depth} and nodes {self.nodes}",
                "give one of them, and 0 for the other",
            )

    @property
    def search(self) -> Limit:
        """For the engine."""
        return Limit(nodes=self.nodes or None, depth=self.depth or None)


@dataclass(frozen=True)
class Params:
    """Which positions get labels, and from whom.

    Attributes:
        limit: of each search: either depth or nodes. Source: METHOD section 2 (depth 10).
        sources: `engine` searches (games that are over get theirs from the rules, marked so);
            `dump` takes over the evaluations that came with the games.
        share: share of the positions, by hash.
        positions: about so many of them, by hash, where that is less; 0 for no limit.
        per_shard: about so many in a piece of work; engines rest a moment between two, so a worker
            with many of them wants large ones. A killed one goes on within it.
    """

    limit: SearchLimit = field(default_factory=lambda: SearchLimit(depth=10))
    sources: tuple[Source, ...] = ("engine", "dump")
    share: float = 1.0
    positions: int = 0
    per_shard: int = 4096

    def __post_init__(self) -> None:
        if not self.sources or len(set(self.sources)) < len(self.sources):
            raise _refused("label.sources", f"{list(self.sources)}", "name engine, dump or both")
        if not 0.0 < self.share <= 1.0 or self.positions < 0 or self.per_shard < 1:
            raise _refused(
                "label", "share, positions or per_shard out of range", "see params/config.yaml"
            )


def _refused(where: str, what: str, remedy: str) -> QueenError:
    return QueenError(what, where=where, remedy=remedy)


def shards(job: Job[Params]) -> Sequence[Shard]:
    """Spans of rows of the input's files, each holding about `per_shard` positions to label."""
    sizes = _sizes(job)
    share = _share(job.params, sum(sizes.values()))
    span = max(1, round(job.params.per_shard / share)) if share else 1
    return [
        Shard(f"{Path(name).stem}-{start:09d}", _span(name, start, min(start + span, rows), share))
        for name, rows in sizes.items()
        for start in range(0, rows, span)
    ]


def _span(name: str, start: int, stop: int, share: float) -> dict[str, Any]:
    return {"file": name, "start": start, "stop": stop, "share": share}


def _sizes(job: Job[Params]) -> dict[str, int]:
    """Rows of each file of distinct positions, in order of names."""
    artifact, wanted = job.inputs["dedup"], set(COLUMNS)
    names = [name for name, columns in tables_in(artifact) if wanted <= set(columns)]
    return {name: pq.read_metadata(artifact.file(name)).num_rows for name in names}


def _share(params: Params, rows: int) -> float:
    if params.positions and rows:
        return min(params.share, params.positions / rows)
    return params.share


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """The labels of a span, in the order of its positions, engine's or rules' before the dump's."""
    rows = _chosen(job, shard)
    labels: dict[int, Label | EngineFailure] = {}
    if "engine" in job.params.sources:
        labels = _searched(job, shard, rows)
    with_dump = "dump" in job.params.sources
    table = rows_table(list(_label_rows(rows, labels, with_dump)), LABELS)
    write_rows(out / ROWS, table)
    write_rows(out / REJECTS, rows_table(list(_reject_rows(rows, labels)), QUARANTINED))


def _chosen(job: Job[Params], shard: Shard) -> list[dict[str, Any]]:
    """The span's rows that are sampled."""
    spec = shard.spec
    path = job.inputs["dedup"].file(spec["file"])
    rows: list[dict[str, Any]] = _read_span(path, spec["start"], spec["stop"]).to_pylist()
    if spec["share"] >= 1.0:
        return rows
    bound = spec["share"] * 2.0**64
    return [r for r in rows if xxhash.xxh3_64_intdigest(r["position"], seed=job.seed) < bound]


def _read_span(path: Path, start: int, stop: int) -> pa.Table:
    """Rows of a parquet file, no more row groups read than hold them."""
    parts, first = [], 0
    metadata = pq.read_metadata(path)
    for group in range(metadata.num_row_groups):
        last = first + metadata.row_group(group).num_rows
        if first < stop and last > start:
            table = _read_group(path, group)
            parts.append(table.slice(max(0, start - first), min(stop, last) - max(start, first)))
        first = last
    return pa.concat_tables(parts)


@functools.lru_cache(maxsize=2)
def _read_group(path: Path, group: int) -> pa.Table:
    with readable(path), pq.ParquetFile(path) as file:
        return file.read_row_group(group, columns=COLUMNS)


def _searched(
    job: Job[Params], shard: Shard, rows: Sequence[dict[str, Any]]
) -> dict[int, Label | EngineFailure]:
    """Answers by the rows' numbers; those a killed run had are taken from its log."""
    labeller = _labeller(engine_settings(job.engine, job.machine), job.params.limit.search)
    with AnswerLog(job.scratch() / "answers.log") as log:
        answers: dict[int, Label | EngineFailure] = dict(log.answers)
        open_rows = [number for number in range(len(rows)) if number not in answers]
        asked = [_asked(rows[number]) for number in open_rows]
        for place, answer in labeller.label(asked):
            answers[open_rows[place]] = answer
            if isinstance(answer, Label):
                log.add(open_rows[place], answer)
            if len(answers) % NEWS_EVERY == 0:
                job.progress(len(answers), len(rows), f"positions of {shard.id}")
    return answers


def _asked(row: dict[str, Any]) -> Asked:
    return Asked(row["position"], row["halfmove"], row["ply"])


_ready: dict[str, Labeller] = {}


def _labeller(settings: EngineSettings, limit: Limit) -> Labeller:
    """Engines that stay from shard to shard, for they take a while to start."""
    name = repr((settings, limit))
    if name not in _ready:
        for other in _ready.values():
            other.close()
        _ready.clear()
        _ready[name] = Labeller(settings, limit)
    return _ready[name]


def _label_rows(
    rows: Sequence[dict[str, Any]], labels: dict[int, Label | EngineFailure], with_dump: bool
) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows):
        found = labels.get(number)
        if isinstance(found, Label):
            yield {"position": row["position"], **{n: getattr(found, n) for n in SCORED}}
        if isinstance(found, Label) and found.source == "rules":
            continue  # a game that is over has one label, whatever its archive says
        if with_dump and (row["eval_cp"] is not None or row["eval_mate"] is not None):
            yield {
                "position": row["position"],
                "source": "dump",
                "cp": row["eval_cp"],
                "mate": row["eval_mate"],
                "best": 0,
            }


def _reject_rows(
    rows: Sequence[dict[str, Any]], labels: dict[int, Label | EngineFailure]
) -> Iterator[dict[str, Any]]:
    """Positions without an engine's label; only what is the same in every run is told of why."""
    for number, row in enumerate(rows):
        found = labels.get(number)
        if isinstance(found, EngineFailure):
            yield {"position": row["position"], "fen": found.fen, "reason": found.reason}


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """One file of labels for each file of positions, under its name, and what was quarantined."""
    counts: Counter[str] = Counter()
    parts: dict[str, list[Path]] = {}
    for shard, folder in zip(shards(job), folders, strict=True):
        parts.setdefault(shard.spec["file"], []).append(folder)
    for name, members in parts.items():
        counts.update(_write_labels(members, out / Path(name).name))
    rejects = pa.concat_tables([QUARANTINED.empty_table(), *(_rejects(f) for f in folders)])
    write_rows(out / REJECTS, rejects)
    bulk_gates.check_labels([out / Path(name).name for name in parts])
    drops = Counter(rejects["reason"].to_pylist())
    return Draft(counts=counts, drops=drops, licences=job.inputs["dedup"].record.licences)


def _rejects(folder: Path) -> pa.Table:
    return pq.read_table(folder / REJECTS)


def _write_labels(folders: Sequence[Path], path: Path) -> Counter[str]:
    """Shards one behind the other, in row groups of a good size; counts by source."""
    counts: Counter[str] = Counter()
    held: list[pa.Table] = []
    with pq.ParquetWriter(path, LABELS, compression="zstd", store_schema=False) as writer:
        for folder in folders:
            held.append(pq.read_table(folder / ROWS))
            counts.update(held[-1]["source"].to_pylist())
            if sum(table.num_rows for table in held) >= ROW_GROUP:
                writer.write_table(pa.concat_tables(held).combine_chunks())
                held = []
        if held:
            writer.write_table(pa.concat_tables(held).combine_chunks())
    return counts


SPEC = StageSpec(
    name="label",
    params=Params,
    section="label",
    inputs={"dedup": "data/dedup"},
    output="data/label",
    shards=shards,
    work=work,
    assemble=assemble,
    uses=("engine",),
    wants=lambda params: "engine" in params.sources,
)
