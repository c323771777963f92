"""Fine-tuning a parent model on explanations, with replay: what `pawn1` and `train` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from queen.errors import QueenError
from queen.language.questions.bank import stages
from queen.language.tokenizer import load_tokenizer
from queen.networks.digest import weights_digest
from queen.networks.queen import QueenModel, freeze, thaw
from queen.networks.settings import reads_fen
from queen.training.examples import Example
from queen.training.sampling import steps_for
from queen.training.sft import Part
from stages.base import ROWS, Job
from stages.models import bridged_expert
from stages.questions import conversations
from stages.training import (
    TrainParams,
    Untold,
    declared_of,
    explanation_examples,
    kept_rows,
    parts,
    phase_seed,
    question_examples,
    told_of,
    trainer,
    write_model,
)

CURRICULUM = "curriculum"


def tune(
    job: Job[Any],
    out: Path,
    named: Mapping[str, tuple[list[Example], float]],
    main: str,
    *,
    epochs: float,
    max_length: int,
    train: TrainParams,
    frozen: Sequence[str] = (),
    tokens: int = 0,
) -> None:
    """Train the parent on a mixture until `main` was met `epochs` times; write the model.

    Args:
        named: examples and share of each part; replayed questions are the part CURRICULUM.
        main: the part that epochs are counted in.
        tokens: train on so many tokens, as near as whole batches come; 0 goes by epochs.
        frozen: parts of the model that do not train.

    Raises QueenError where a part has examples but none that fits, or `main` has none at all.
    """
    torch.set_num_threads(job.machine.threads)
    parent = job.inputs["parent"]
    tokenizer = load_tokenizer(parent.path)
    model: QueenModel = QueenModel.from_pretrained(parent.path)
    freeze(model, frozen)
    expert = bridged_expert(job, model.config.bridge_states)
    mixture = parts(tokenizer, max_length, named)
    steps = _steps_of(tokens, mixture, train) or _steps(mixture, main, epochs, train)
    with trainer(job) as fine_tune:
        result = fine_tune(
            model,
            expert,
            mixture,
            train.settings(steps, phase_seed(job.seed, job.stage), job.machine),
            work=job.scratch() / job.stage,
            table_mb=job.machine.cache_mb,
            sink=job.sink,
            progress=job.progress,
        )
    thaw(model)
    curriculum = any(part.name == CURRICULUM for part in mixture)
    declared = declared_of(job, curriculum=curriculum)
    told = {
        "phases": [told_of(job.stage, result, mixture)],
        **({"figures": declared} if declared else {}),
        "gates": model.gate_values(),
        "weights": weights_digest(model),
        "encoder": expert.digest if expert else "",
    }
    write_model(model, tokenizer, out, told)


def told_examples(
    job: Job[Any], role: str, untold: Untold = "lines", untold_weight: float = 1.0
) -> list[Example]:
    """The explanations of an input that were kept, asked for as the parent reads positions.

    Args:
        untold, untold_weight: of those without words, as in `explanation_examples`.
    """
    return explanation_examples(
        kept_rows(job.inputs[role]),
        fen_text=reads_fen(job.inputs["parent"].path),
        untold=untold,
        untold_weight=untold_weight,
    )


def curriculum_examples(job: Job[Any]) -> list[Example]:
    """The whole curriculum, for replay, asked as the parent reads positions."""
    file, fen_text = job.inputs["questions"].file(ROWS), reads_fen(job.inputs["parent"].path)
    return question_examples(conversations(file, "train", stages()), fen_text=fen_text)


def _steps_of(tokens: int, mixture: Sequence[Part], train: TrainParams) -> int:
    """Steps until so many tokens were met, by the mean length of each part's examples."""
    whole = sum(part.share for part in mixture)
    means = sum(part.share / whole * float(part.examples.lengths.mean()) for part in mixture)
    return max(1, round(tokens / (means * train.batch_size))) if tokens else 0


def _steps(mixture: Sequence[Part], main: str, epochs: float, train: TrainParams) -> int:
    part = next((part for part in mixture if part.name == main), None)
    if part is None:
        raise QueenError(
            f"no example of {main!r} to train on",
            where=", ".join(part.name for part in mixture) or "no part has any",
            remedy="look at what the stage before it dropped (`queen rounds`, `queen report`)",
        )
    share = part.share / sum(each.share for each in mixture)
    return max(1, steps_for(epochs, len(part.examples), share, train.batch_size))
