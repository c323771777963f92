"""Stage `recurse`: play each candidate, explain each child, and go down where it errs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from queen.games.chess.position import Position
from queen.generation.requests import Sampling
from queen.generation.speaker import Legal
from queen.lineage.artifact import Draft
from queen.search.tree import Barred, Limits, Node, Tree, grow, look_ahead
from stages import gates
from stages.base import ROWS, Job, Shard, StageSpec, concat_shards, rows_table, spans, write_rows
from stages.decontaminate import Guard
from stages.engine import JudgeParams
from stages.models import load_speaker, speaker_of, write_identity
from stages.positions import pid_of, position_of
from stages.trees import TREES, tree_rows, trees_from_rows, weighed_from_json

DROPS = "drops.json"


@dataclass(frozen=True)
class Params:
    """How trees grow.

    Attributes:
        limits: width, depth, budget of a tree.
        text_temperature: of the children's explanations; 0 is greedy.
        max_tokens: longest explanation.
        legal: constrained decoding, as in `explain`.
        batch_size: texts decoded together.
        roots_per_shard: trees of one shard.
        judge: how the children's own first moves are judged.
    """

    limits: Limits = field(default_factory=Limits)
    text_temperature: float = 0.0
    max_tokens: int = 256
    legal: Legal = "moves"
    batch_size: int = 64
    roots_per_shard: int = 64
    judge: JudgeParams = field(default_factory=JudgeParams)


def shards(job: Job[Params]) -> Sequence[Shard]:
    return spans(job.table("explained").num_rows, job.params.roots_per_shard)


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Grow the trees of a run of roots together, so that batches stay full."""
    start, stop = shard.spec["start"], shard.spec["stop"]
    rows = job.table("explained").slice(start, stop - start).to_pylist()
    planted = [(_planted(row), row["told"]) for row in rows if not row["failure"]]
    trees = [tree for tree, _ in planted]
    params = job.params
    speaker = load_speaker(job, job.inputs["parent"], params.batch_size)
    sampling = Sampling(temperature=params.text_temperature, max_new_tokens=params.max_tokens)
    with job.searches() as cache, job.analyser(cache) as analyser:
        judge = params.judge.build(analyser)
        told, barred = [tree for tree, told in planted if told], _barred(job)
        grow(told, speaker, judge, params.limits, sampling, barred, params.legal)
        look_ahead([t for t, told in planted if not told], judge, params.limits, barred)
    table = rows_table([row for tree in trees for row in tree_rows(tree)], TREES)
    write_rows(out / ROWS, table)
    write_identity(out, speaker)
    drops = sum((tree.drops for tree in trees), Counter[str]())
    (out / DROPS).write_bytes(orjson.dumps(dict(sorted(drops.items()))))


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    table = concat_shards(folders)
    gates.check("trees", table)
    write_rows(out / ROWS, table)
    drops: Counter[str] = Counter()
    for folder in folders:
        drops.update(orjson.loads((folder / DROPS).read_bytes()))
    counts: Counter[str] = Counter()
    for tree in trees_from_rows(table.to_pylist()):
        counts["trees"] += 1
        counts.update(c for node in tree.nodes.values() if node.path for c in _traits(node))
        drops.update(f"unparsed.{n.reason}" for n in tree.nodes.values() if n.reason)
        drops.update(f"not_expanded.{n.stopped}" for n in tree.nodes.values() if n.stopped)
    licences = job.inputs["explained"].record.licences
    return Draft(counts=counts, drops=drops, identities=speaker_of(folders), licences=licences)


def _planted(row: dict[str, object]) -> Tree:
    """A tree of its root alone, with the candidates `explain` weighed."""
    root = Node((), position_of(row), weighed=weighed_from_json(orjson.loads(str(row["weighed"]))))
    return Tree(str(row["pid"]), int(str(row["seed"])), {(): root})


def _barred(job: Job[Params]) -> Barred:
    guard = Guard.of(job.inputs["evalset"])

    def reason(position: Position) -> str | None:
        return guard.reason({"pid": pid_of(position.key)})

    return reason


def _traits(node: Node) -> list[str]:
    traits = ["children", f"depth_{len(node.path)}"]
    traits += ["parsed"] if node.explanation else []
    if node.text is None:
        traits += ["untold" if node.verdict or node.stopped else "finished_games"]
    traits += ["mistakes"] if node.mistake else []
    traits += ["new_roots"] if node.weighed else []
    return traits


SPEC = StageSpec(
    name="recurse",
    params=Params,
    section="recurse",
    inputs={
        "explained": "data/explain/{key}",
        "parent": "models/{parent}",
        "encoder": "models/encoder",
        "evalset": "data/evalset",
    },
    output="data/recurse/{key}",
    shards=shards,
    work=work,
    assemble=assemble,
    side_by_side=lambda params: True,
    per="round",
    uses=("engine", "generation"),
)
