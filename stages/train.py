"""Stage `train`: the parent learns from what the filter kept, and becomes the round's model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from queen.errors import QueenError
from queen.lineage.artifact import Draft
from stages.base import Job, Shard, StageSpec
from stages.training import TrainParams, Untold, assemble_model
from stages.tuning import CURRICULUM, curriculum_examples, told_examples, tune


@dataclass(frozen=True)
class Params:
    """How a round's model is trained.

    Attributes:
        epochs: times each kept example is met.
        tokens: train on so many tokens instead; 0 goes by epochs. With `new_share` 0, as a control,
            it is the only measure.
        new_share, seeds_share: shares in a batch; the rest replays the curriculum.
        untold: what is learnt of a root without words (`explain.in_words`): `lines`, its moves,
            values and lines, or `move`, its best move alone (ours).
        untold_weight: factor on the loss of its tokens.
        max_length: longest example in tokens.
        frozen: what does not train: decoder, bridge, chess_tokens.
        train: the optimizer.
    """

    epochs: float = 2.0
    tokens: int = 0
    new_share: float = 0.7
    seeds_share: float = 0.15
    untold: Untold = "lines"
    untold_weight: float = 1.0
    max_length: int = 512
    frozen: tuple[str, ...] = ()
    train: TrainParams = field(default_factory=TrainParams)


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [Shard("model")]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Train on the kept examples with replay of seeds and curriculum."""
    params = job.params
    if not params.new_share and not params.tokens:
        raise QueenError(
            "nothing says how long to train: new_share is 0, and tokens too",
            where=f"rounds.{job.key}.train",
            remedy="give train.tokens, or a new_share above 0",
        )
    if not params.untold_weight > 0:
        raise QueenError(
            f"a loss cannot be weighed {params.untold_weight} times",
            where=f"rounds.{job.key}.train.untold_weight",
            remedy="give a number above 0",
        )
    new = told_examples(job, "filtered", params.untold, params.untold_weight)
    if not new:
        raise QueenError(
            "the filter kept no example",
            where=job.inputs["filtered"].name,
            remedy="raise filter.max_loss or sample.roots in a new round: `queen round add`",
        )
    rest = 1.0 - params.new_share - params.seeds_share
    rest = rest if rest > 1e-9 else 0.0  # shares that sum to 1 but for their last bits
    named = {
        "new": (new, params.new_share),
        "seeds": (told_examples(job, "seeds"), params.seeds_share),
        CURRICULUM: (curriculum_examples(job), rest),
    }
    tune(
        job,
        out,
        named,
        "new",
        epochs=params.epochs,
        max_length=params.max_length,
        train=params.train,
        frozen=params.frozen,
        tokens=params.tokens,
    )


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    return assemble_model(job, folders[0], out, f"models/{job.key}")


SPEC = StageSpec(
    name="train",
    params=Params,
    section="train",
    inputs={
        "filtered": "data/filter/{key}",
        "parent": "models/{parent}",
        "seeds": "data/seeds",
        "questions": "data/questions",
        "encoder": "models/encoder",
    },
    output="models/{key}",
    shards=shards,
    work=work,
    assemble=assemble,
    per="round",
)
