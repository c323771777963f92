"""Stage `pawn`: a decoder, new or taken over, and its bridge learn the board by the curriculum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from queen.errors import QueenError
from queen.language.questions.bank import Question, stages
from queen.language.tokenizer import load_tokenizer
from queen.lineage.artifact import Draft
from queen.memory import release_memory
from queen.networks import build
from queen.networks.build import EncoderInfo
from queen.networks.digest import weights_digest
from queen.networks.expert import Expert
from queen.networks.queen import QueenModel, freeze, thaw
from queen.networks.settings import AnyDecoder, BridgeSettings
from queen.training.curriculum import majority_answers
from queen.training.heldout import HeldOut, accuracy
from queen.training.loop import TrainResult
from queen.training.sft import Part
from stages.base import Job, Shard, StageSpec
from stages.declared import NO_CURRICULUM, NO_ENCODER, declare
from stages.decoder import decoder_spec, new_model
from stages.models import bridged_expert
from stages.positions import position_of
from stages.questions import HELDOUT, conversations
from stages.training import (
    TrainParams,
    assemble_model,
    declared_of,
    parts,
    phase_seed,
    question_examples,
    told_of,
    trainer,
    write_model,
)

QUESTIONS_FILE = "rows.parquet"
LEAD, REVIEW = "lead", "review"


@dataclass(frozen=True)
class Review:
    """A last phase over the whole curriculum, since each stage undoes some of those before (ours).

    Attributes:
        steps: its optimizer steps; 0 for none.
        lr_share: its learning rate as a share of `train.lr`.
        shares: share of each stage, or of the lead's types (`lead`), by name.
    """

    steps: int = 0
    lr_share: float = 0.5
    shares: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = (LEAD, *stages())
        unknown = sorted(set(self.shares) - set(known))
        if unknown or (self.steps and not sum(self.shares.values()) > 0):
            raise QueenError(
                f"{', '.join(unknown)}: no such part" if unknown else "nothing to review",
                where="pawn.review.shares",
                remedy=f"give shares of some of {', '.join(known)}",
            )


@dataclass(frozen=True)
class Params:
    """How the curriculum is taught.

    Attributes:
        decoder, bridge: what is built.
        steps: optimizer steps of each curriculum stage.
        lead: question types of the first stage that a phase of their own begins with, for
            `lead_steps` steps: those that others are answered from (ours).
        replay: share of a stage's examples taken from the stages before it.
        review: what is asked once more at the end.
        max_length: longest conversation in tokens.
        heldout_batch: questions of one forward pass when held-out accuracy is measured.
        frozen: what does not train: decoder, bridge, chess_tokens.
        train: the optimizer.
    """

    decoder: AnyDecoder
    bridge: BridgeSettings
    steps: dict[str, int]
    lead: tuple[str, ...] = ()
    lead_steps: int = 0
    replay: float = 0.2
    review: Review = field(default_factory=Review)
    max_length: int = 256
    heldout_batch: int = 128
    frozen: tuple[str, ...] = ()
    train: TrainParams = field(default_factory=TrainParams)

    def phases(self) -> dict[str, int]:
        """Steps of each phase in order; those without steps are left out."""
        steps = {LEAD: self.lead_steps if self.lead else 0}
        steps.update((stage, self.steps[stage]) for stage in stages())
        steps[REVIEW] = self.review.steps
        return {phase: count for phase, count in steps.items() if count}

    def optimizer(self, phase: str) -> TrainParams:
        """The optimizer of a phase."""
        if phase == REVIEW:
            return replace(self.train, lr=self.train.lr * self.review.lr_share)
        return self.train


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [Shard("model", decoder_spec(job.params.decoder, job))]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Teach the four stages in order, then ask what was never trained on."""
    torch.set_num_threads(job.machine.threads)
    tokenizer = load_tokenizer(job.inputs["tokenizer"].path)
    expert = bridged_expert(job, job.params.bridge.states)
    model = _new_model(job, tokenizer, expert)
    phases = _taught(job, model, tokenizer, expert)
    thaw(model)
    asked = _ask(job, model, tokenizer, expert)
    told = {
        "phases": phases,
        "heldout": asked.to_json(),
        "figures": {**_figures(asked), **_declared(job, taught=bool(phases), reads=bool(expert))},
        "gates": model.gate_values(),
        "weights": weights_digest(model),
        "encoder": expert.digest if expert else "",
    }
    write_model(model, tokenizer, out, told)


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    return assemble_model(job, folders[0], out, "models/pawn")


def _new_model(job: Job[Params], tokenizer: Any, expert: Expert | None) -> QueenModel:
    info = build.NO_ENCODER
    if expert:
        info = EncoderInfo("expert", expert.digest, expert.encoder.n_states, expert.encoder.width)
    model = new_model(job.params.decoder, job.params.bridge, tokenizer, info, job)
    freeze(model, job.params.frozen)
    return model


def _taught(
    job: Job[Params], model: QueenModel, tokenizer: Any, expert: Expert | None
) -> list[dict[str, Any]]:
    """Teach each phase that has steps; what each did. With none, PAWN is the model as built."""
    planned, phases = job.params.phases(), []
    if not planned:
        return []
    with trainer(job) as train:
        for stage, steps in planned.items():
            mixture = _mixture(job, tokenizer, stage, fen_text=model.config.reads_fen)
            result = _teach(job, train, model, expert, stage, steps, mixture)
            phases.append(told_of(stage, result, mixture))
            release_memory()
    return phases


def _mixture(job: Job[Params], tokenizer: Any, phase: str, *, fen_text: bool) -> list[Part]:
    """The questions of a phase, one part after the other: read at once they fill memory."""
    file, mixture = job.inputs["questions"].file(QUESTIONS_FILE), []
    for name, of, types, share in _wanted(job.params, phase):
        asked = question_examples(conversations(file, "train", of, types), fen_text=fen_text)
        mixture += parts(tokenizer, job.params.max_length, {name: (asked, share)})
        del asked
        release_memory()
    return mixture


def _wanted(
    params: Params, phase: str
) -> Iterator[tuple[str, Sequence[str], Sequence[str], float]]:
    """Name, stages, types (none for all) and share of each part of a phase."""
    names = stages()
    if phase == LEAD:
        yield LEAD, names[:1], params.lead, 1.0
    elif phase == REVIEW:
        for name, share in params.review.shares.items():
            lead = name == LEAD
            yield name, names[:1] if lead else [name], params.lead if lead else (), share
    else:
        yield phase, [phase], (), 1.0 - params.replay
        yield "replay", names[: names.index(phase)], (), params.replay


def _teach(
    job: Job[Params],
    train: Callable[..., TrainResult],
    model: QueenModel,
    expert: Expert | None,
    stage: str,
    steps: int,
    mixture: Sequence[Part],
) -> TrainResult:
    optimizer, seed = job.params.optimizer(stage), phase_seed(job.seed, stage)
    return train(
        model,
        expert,
        mixture,
        optimizer.settings(steps, seed, job.machine),
        work=job.scratch() / stage,
        table_mb=job.machine.cache_mb,
        sink=lambda step, figures: job.sink(step, {f"{stage}/{k}": v for k, v in figures.items()}),
        progress=lambda done, total, note="": job.progress(done, total, f"{stage} {note}"),
    )


def _ask(job: Job[Params], model: QueenModel, tokenizer: Any, expert: Expert | None) -> HeldOut:
    """Held-out accuracy by question type, beside the majority answer's."""
    held, train = _questions(job, HELDOUT), _questions(job, "train")
    return accuracy(
        model,
        tokenizer,
        expert,
        held,
        majority_answers(train),
        batch_size=job.params.heldout_batch,
        threads=job.machine.threads,
        fen_text=model.config.reads_fen,
        table_mb=job.machine.cache_mb,
    )


def _questions(job: Job[Params], split: str) -> list[Question]:
    file = job.inputs["questions"].file(QUESTIONS_FILE)
    return [question_of(row) for rows in conversations(file, split, stages()) for row in rows]


def question_of(row: Mapping[str, Any]) -> Question:
    """A row of the questions' table as the question it was."""
    return Question(
        stage=row["stage"],
        type=row["type"],
        position=position_of(row),
        line=tuple(row["line"].split()),
        prompt=row["prompt"],
        answer=row["answer"],
        subset=row["subset"],
    )


def _figures(asked: HeldOut) -> dict[str, float]:
    """Macro accuracy by stage, and accuracy by type, as flat figures."""
    figures: dict[str, float] = {}
    for stage, types in sorted(asked.types.items()):
        right, majority = asked.macro(stage)
        figures[f"heldout.{stage}.macro"] = round(right, 6)
        figures[f"heldout.{stage}.majority"] = round(majority, 6)
        for name, tally in sorted(types.items()):
            figures[f"heldout.{stage}.{name}"] = round(tally.accuracy, 6)
    figures["heldout.asked"] = float(sum(Counter(_asked(asked)).values()))
    return figures


def _declared(job: Job[Params], *, taught: bool, reads: bool) -> dict[str, float]:
    """What is declared of a PAWN that was taught nothing, or reads no encoder."""
    return {
        **declared_of(job, curriculum=taught),
        **({} if reads else declare(NO_ENCODER)),
        **({} if taught else declare(NO_CURRICULUM)),
    }


def _asked(asked: HeldOut) -> dict[str, int]:
    return {
        f"{stage}.{name}": tally.asked
        for stage, types in asked.types.items()
        for name, tally in types.items()
    }


SPEC = StageSpec(
    name="pawn",
    params=Params,
    section="pawn",
    also=("decoder", "bridge"),
    inputs={
        "questions": "data/questions",
        "tokenizer": "models/tokenizer",
        "encoder": "models/encoder",
    },
    output="models/pawn",
    shards=shards,
    work=work,
    assemble=assemble,
)
