"""Stage `tokenizer`: a tokenizer learnt from the project's own text, chess tokens whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from queen.lineage.artifact import Draft
from stages.base import Job, Shard, StageSpec

FOLDER = "tokenizer"


@dataclass(frozen=True)
class Params:
    """The tokenizer's size.

    Attributes:
        vocab_size: tokens in all, those for squares, pieces and bytes included.
        questions: at most so many questions are read to learn from.
    """

    vocab_size: int = 768
    questions: int = 20_000


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [Shard(FOLDER)]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Learn from training questions and from the seeds that were kept."""
    from queen.language.tokenizer import save_tokenizer, train_tokenizer

    save_tokenizer(train_tokenizer(_texts(job), job.params.vocab_size), out / FOLDER)


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    from queen.language.tokenizer import load_tokenizer, save_tokenizer

    tokenizer = load_tokenizer(folders[0] / FOLDER)
    save_tokenizer(tokenizer, out)
    return Draft(counts={"tokens": len(tokenizer)}, licences=job.inputs["seeds"].record.licences)


def _texts(job: Job[Params]) -> Iterator[str]:
    questions = job.table("questions")
    train = questions.filter(pc.equal(questions["split"], "train"))
    for batch in train.slice(0, job.params.questions).to_batches():
        for row in batch.to_pylist():
            yield f"{row['prompt']} {row['answer']}"
    seeds = job.table("seeds")
    yield from seeds.filter(pc.equal(seeds["dropped"], ""))["text"].to_pylist()


SPEC = StageSpec(
    name="tokenizer",
    params=Params,
    section="tokenizer",
    inputs={"questions": "data/questions", "seeds": "data/seeds"},
    output="models/tokenizer",
    shards=shards,
    work=work,
    assemble=assemble,
)
