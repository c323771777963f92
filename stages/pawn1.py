"""Stage `pawn1`: PAWN learns to explain from the seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from queen.lineage.artifact import Draft
from stages.base import Job, Shard, StageSpec
from stages.training import TrainParams, assemble_model
from stages.tuning import CURRICULUM, curriculum_examples, told_examples, tune


@dataclass(frozen=True)
class Params:
    """How PAWN becomes PAWN-1.

    Attributes:
        epochs: times each seed is met.
        seeds_share: share of seeds in a batch; the rest replays the curriculum.
        max_length: longest example in tokens.
        frozen: what does not train: decoder, bridge, chess_tokens.
        train: the optimizer.
    """

    epochs: float = 4.0
    seeds_share: float = 0.7
    max_length: int = 512
    frozen: tuple[str, ...] = ()
    train: TrainParams = field(default_factory=TrainParams)


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [Shard("model")]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    params = job.params
    named = {
        "seeds": (told_examples(job, "seeds"), params.seeds_share),
        CURRICULUM: (curriculum_examples(job), 1.0 - params.seeds_share),
    }
    tune(
        job,
        out,
        named,
        "seeds",
        epochs=params.epochs,
        max_length=params.max_length,
        train=params.train,
        frozen=params.frozen,
    )


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    return assemble_model(job, folders[0], out, "models/pawn1")


SPEC = StageSpec(
    name="pawn1",
    params=Params,
    section="pawn1",
    inputs={
        "parent": "models/pawn",
        "seeds": "data/seeds",
        "questions": "data/questions",
        "encoder": "models/encoder",
    },
    output="models/pawn1",
    shards=shards,
    work=work,
    assemble=assemble,
)
