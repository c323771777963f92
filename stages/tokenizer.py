"""Stage `tokenizer`: chess tokens whole, in a tokenizer learnt from the project's own text, or in
that of a decoder that is taken over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc

from queen.games.chess.position import Position
from queen.lineage.artifact import Draft
from queen.networks.settings import AnyDecoder, PretrainedSettings
from stages.base import Job, Shard, StageSpec
from stages.decoder import decoder_licence, decoder_spec, located
from stages.settings import only

FOLDER = "tokenizer"


@dataclass(frozen=True)
class Params:
    """The tokenizer's size.

    Attributes:
        decoder: whose tokenizer it is; a decoder from scratch gets one that is learnt here.
        vocab_size: tokens in all, those for squares, pieces and bytes included.
        questions: at most so many questions are read to learn from.
        fens: learn from the questions' FENs too, for a model that reads them; counts only where it
            is on.
    """

    decoder: AnyDecoder
    vocab_size: int = 768
    questions: int = 20_000
    fens: bool = field(default=False, metadata=only("fens", True))


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [Shard(FOLDER, decoder_spec(job.params.decoder, job))]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Learn from training questions and from the seeds that were kept; or extend another's."""
    from queen.language.tokenizer import (
        add_chess_tokens,
        load_foreign,
        save_tokenizer,
        train_tokenizer,
    )

    decoder = job.params.decoder
    if isinstance(decoder, PretrainedSettings):
        tokenizer = load_foreign(located(decoder, job))
        add_chess_tokens(tokenizer)
    else:
        tokenizer = train_tokenizer(_texts(job), job.params.vocab_size)
    save_tokenizer(tokenizer, out / FOLDER)


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    from queen.language.tokenizer import load_tokenizer, save_tokenizer

    tokenizer = load_tokenizer(folders[0] / FOLDER)
    save_tokenizer(tokenizer, out)
    licences = {**job.inputs["seeds"].record.licences, **decoder_licence(job.params.decoder)}
    return Draft(counts={"tokens": len(tokenizer)}, licences=licences)


def _texts(job: Job[Params]) -> Iterator[str]:
    questions = job.table("questions")
    train = questions.filter(pc.equal(questions["split"], "train"))
    told = ""
    for batch in train.slice(0, job.params.questions).to_batches():
        for row in batch.to_pylist():
            if job.params.fens and row["pid"] != told:
                told = row["pid"]  # once for each conversation, as in prompts
                yield Position.from_text(row["start"], row["moves"]).fen
            yield f"{row['prompt']} {row['answer']}"
    seeds = job.table("seeds")
    yield from seeds.filter(pc.equal(seeds["dropped"], ""))["text"].to_pylist()


SPEC = StageSpec(
    name="tokenizer",
    params=Params,
    section="tokenizer",
    also=("decoder",),
    inputs={"questions": "data/questions", "seeds": "data/seeds"},
    output="models/tokenizer",
    shards=shards,
    work=work,
    assemble=assemble,
)
