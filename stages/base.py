"""What a stage is: three plain functions and a description of what flows in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from queen.engines.cache import SearchCache
from queen.engines.pool import Analyser, EngineSettings
from queen.errors import QueenError, readable
from queen.lineage.artifact import Artifact, Draft
from queen.lineage.state import State
from stages.settings import build

P = TypeVar("P")
ROWS = "rows.parquet"


@dataclass(frozen=True)
class Shard:
    """A piece of a stage's work.

    Attributes:
        id: name within the stage, for logs.
        spec: JSON values that say which piece it is; part of the shard's key.
    """

    id: str
    spec: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """What this machine may use; never part of a key or a record.

    Attributes:
        workers: engine processes, and processes that read game archives.
        threads: torch's threads, of all ranks together.
        cache_mb: MiB of encoder states kept in memory.
        generators: processes that write texts, with one thread each; 1 writes in the stage's own,
            0 starts one for each GPU or else each core. No text depends on it.
        shards: processes that work a stage's shards side by side, each with its share of workers
            and threads, and one generator; 1 works them in the stage's own. Not with a `store`.
        ranks: processes that train together; 1 trains in the stage's own.
        launcher: who starts them: local, or deepspeed.
        hostfile: of the deepspeed launcher, for several machines.
        peak_tflops: see `queen.training.settings.TrainSettings`.
        store: URL of a folder or bucket through which machines share the work of a stage (fsspec);
            empty for none. QUEEN_STORE overrides it.
        lease_s: a worker silent for so long is taken for dead, and its shard for free.
        send_inputs: lay inputs in the store too, for workers that do not have them.
    """

    workers: int = 2
    threads: int = 2
    cache_mb: int = 1024
    generators: int = 1
    shards: int = 1
    ranks: int = 1
    launcher: str = "local"
    hostfile: str = ""
    peak_tflops: float = 0.0
    store: str = ""
    lease_s: float = 60.0
    send_inputs: bool = True

    def __post_init__(self) -> None:
        least = {"workers": 1, "threads": 1, "cache_mb": 0, "generators": 0, "ranks": 1}
        least["shards"] = 1
        least["lease_s"] = 1
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise QueenError(
                    f"{getattr(self, name)} is too few",
                    where=f"machine.{name}",
                    remedy=f"`queen configure machine.{name}=N` with at least {bound}",
                )


@dataclass(frozen=True)
class GenerationParams:
    """How texts are written.

    Attributes:
        kind: `own`, the decoder of `queen.generation`; `vllm` has its place but is not built.
        precision: of weights and caches; `auto` is bfloat16 on a GPU, float32 elsewhere.
    """

    kind: Literal["own", "vllm"] = "own"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"

    def identity(self) -> dict[str, str]:
        """What of it texts depend on. Raises QueenError for what is not built."""
        if self.kind == "vllm":
            raise QueenError(
                "generation with vLLM is not built",
                where="generation.kind",
                remedy="`queen configure generation=own` takes the project's own decoder",
            )
        return asdict(self)


@dataclass(frozen=True)
class EngineParams:
    """The engine that searches.

    Attributes:
        command: path or name, or `auto`.
        hash_mb: transposition table; small, since it is cleared for each position.
        timeout_s: after so long a search counts as hung.
        options: further UCI options.
        classical: engine that prints the classical table, or `auto`.
    """

    command: str = "auto"
    hash_mb: int = 4
    timeout_s: float = 60.0
    options: Mapping[str, str | int] = field(default_factory=dict)
    classical: str = "auto"


class Sink(Protocol):
    """Where figures of a running stage go."""

    def __call__(self, step: int, figures: Mapping[str, float]) -> None: ...


class Progress(Protocol):
    """Shows how far a piece of work is."""

    def __call__(self, done: int, total: int, note: str = "") -> None: ...


class Asks(Protocol):
    """Asks language models behind an API (`queen.language.api.client.Api`, which stages that
    ask nobody need not know)."""

    def ask(self, endpoint: Any, questions: Sequence[Any], told: Progress) -> list[Any]: ...

    def figures(self) -> dict[str, float]: ...


@dataclass
class Job(Generic[P]):
    """Everything a stage's functions may use.

    Attributes:
        stage: stage name; `key` is the round or model it runs for, None for a plain stage.
        params: the stage's own params.
        seed: seed of the run or round.
        inputs: complete artifacts by role.
        scratch: gives a folder for resumable work of one shard.
        api: asks language models behind an endpoint, within what this run may spend.
    """

    stage: str
    key: str | None
    params: P
    seed: int
    inputs: Mapping[str, Artifact]
    project: Path
    state: State
    machine: Machine
    engine: EngineParams
    identities: Mapping[str, Any]
    sink: Sink
    progress: Progress
    api: Asks
    shard_key: str = ""
    generation: GenerationParams = GenerationParams()

    @property
    def name(self) -> str:
        """`stage`, or `stage@key` of a stage for each round or model."""
        return self.stage if self.key is None else f"{self.stage}@{self.key}"

    def scratch(self) -> Path:
        """A folder that outlives a kill, for this shard alone."""
        folder = self.state.scratch / self.stage / self.shard_key
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def searches(self) -> Iterator[SearchCache]:
        """The engine cache, with what this shard uses recorded under its key."""
        with SearchCache(self.state.searches) as cache, cache.recording(self.shard_key):
            yield cache

    def analyser(self, cache: SearchCache | None) -> Analyser:
        """The searching engine with this machine's workers."""
        return Analyser(engine_settings(self.engine, self.machine), cache)

    def table(self, role: str, name: str = ROWS) -> pa.Table:
        """A parquet table of an input artifact."""
        return pq.read_table(self.inputs[role].file(name))


def engine_settings(engine: EngineParams, machine: Machine) -> EngineSettings:
    """The pool's settings from params: which engine, and as many workers as the machine has."""
    return EngineSettings(
        command=engine.command,
        options={"Hash": engine.hash_mb, **engine.options},
        workers=machine.workers,
        timeout_s=engine.timeout_s,
    )


ShardsFunction = Callable[[Job[Any]], Sequence[Shard]]
WorkFunction = Callable[[Job[Any], Shard, Path], None]
AssembleFunction = Callable[[Job[Any], Sequence[Path], Path], Draft]


@dataclass(frozen=True)
class StageSpec:
    """One stage, declared: nothing runs when it is built.

    Attributes:
        name: stage name, as in dvc.yaml.
        params: the dataclass of its params.
        section: dotted section of params.yaml; for a round's stage, of the round.
        inputs: artifact path by role; `{key}` and `{parent}` are filled in.
        output: artifact path.
        per: "once", "model" (pawn and pawn1) or "round".
        uses: "engine" if its bytes depend on the engine's identity, "classical" likewise;
            "generation" if a model writes.
        wants: whether with such params it uses any of them.
        side_by_side: whether with such params several processes may work its shards: not where
            they count one budget together, or each keeps the whole machine busy.
        also: further sections of params.yaml, read into the params' fields of the same names.
    """

    name: str
    params: type[Any]
    section: str
    inputs: Mapping[str, str]
    output: str
    shards: ShardsFunction
    work: WorkFunction
    assemble: AssembleFunction
    per: str = "once"
    uses: tuple[str, ...] = ()
    wants: Callable[[Any], bool] = lambda params: True
    also: tuple[str, ...] = ()
    side_by_side: Callable[[Any], bool] = lambda params: False

    def read_params(self, raw: Mapping[str, Any]) -> Any:
        return build(self.params, raw, self.section)


def write_rows(path: Path, table: pa.Table) -> None:
    """Write a table as parquet (zstd) whose bytes depend on the rows alone."""
    pq.write_table(table, path, compression="zstd", store_schema=False)


def rows_table(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows of a known schema as a table; an empty list gives an empty table."""
    return pa.Table.from_pylist(list(rows), schema=schema)


def concat_shards(folders: Sequence[Path], name: str = ROWS) -> pa.Table:
    """The tables of all shards, in the shards' order."""
    return pa.concat_tables([pq.read_table(folder / name) for folder in folders])


def tables_in(artifact: Artifact) -> list[tuple[str, list[str]]]:
    """The parquet files of an artifact in order of their names, each with its columns."""
    names = sorted(e.name for e in artifact.record.files if e.name.endswith(".parquet"))
    return [(name, _columns(artifact.file(name))) for name in names]


def _columns(path: Path) -> list[str]:
    with readable(path):
        return list(pq.read_schema(path).names)


def spans(total: int, size: int) -> list[Shard]:
    """Shards that cut `total` rows into runs of at most `size`."""
    starts = range(0, total, size)
    return [Shard(f"{a:07d}", {"start": a, "stop": min(a + size, total)}) for a in starts]
