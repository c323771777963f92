"""What the training stages share: examples from tables, params, and one fine-tuning call."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow.compute as pc
import pyarrow.parquet as pq

from queen.errors import QueenError
from queen.language.explanation import best_alone
from queen.language.prompts import answer, explain_prompt
from queen.lineage.artifact import Artifact, Draft, write_json
from queen.training.curriculum import conversation
from queen.training.examples import Example, Turn, encode_examples
from queen.training.settings import TrainSettings
from stages.base import ROWS, Job, Machine
from stages.declared import NO_CURRICULUM, declarations, without
from stages.modelcard import model_card
from stages.positions import position_of

if TYPE_CHECKING:
    from queen.networks.queen import QueenModel
    from queen.training.crew import Crew
    from queen.training.loop import TrainResult
    from queen.training.sft import Part

Untold = Literal["lines", "move"]
MODEL, CARD, TRAINING = "model", "README.md", "training.json"


@dataclass(frozen=True)
class TrainParams:
    """The optimizer's knobs; see `queen.training.settings.TrainSettings`."""

    batch_size: int = 96
    micro_batch: int = 32
    optimizer: str = "adamw"
    lr: float = 2e-3
    muon_lr_factor: float = 1.0
    gate_lr_factor: float = 10.0
    warmup_steps: int = 50
    weight_decay: float = 0.05
    clip: float = 1.0
    schedule: str = "cosine"
    min_lr_share: float = 0.0
    precision: str = "bf16"
    checkpoint_every_s: float = 30.0
    packing: bool = False
    backend: str = "torch"
    zero: int = 0
    gradient_checkpointing: bool = False

    def settings(self, steps: int, seed: int, machine: Machine) -> TrainSettings:
        from dataclasses import asdict

        return TrainSettings(
            steps=steps,
            seed=seed,
            threads=machine.threads,
            peak_tflops=machine.peak_tflops,
            log_every=10,
            **asdict(self),
        )


@contextmanager
def ranks(job: Job[Any]) -> Iterator[Crew | None]:
    """The ranks that the machine's params ask for; None to train in this process.

    They live as long as this context, so enter it once for all phases of a stage.
    """
    from queen.training.crew import Crew, CrewSettings

    machine = job.machine
    if machine.ranks == 1 and machine.launcher == "local":
        yield None
        return
    settings = CrewSettings(machine.ranks, machine.launcher, machine.hostfile, machine.threads)
    with Crew(settings, job.scratch() / "ranks") as crew:
        yield crew


@contextmanager
def trainer(job: Job[Any]) -> Iterator[Callable[..., TrainResult]]:
    """`fine_tune` in this process, or by `ranks`."""
    from queen.training.sft import fine_tune

    with ranks(job) as crew:
        yield fine_tune if crew is None else crew.fine_tune


def explanation_examples(
    rows: Iterable[Mapping[str, Any]],
    *,
    fen_text: bool = False,
    untold: Untold = "lines",
    untold_weight: float = 1.0,
) -> list[Example]:
    """One turn for each row: the request to explain, and the row's text.

    A row that is not `told` has moves and lines alone: the beginning of an explanation.

    Args:
        fen_text: write the FEN in the request, for a model without bridges.
        untold: how much of that beginning: all of it, or the best move.
        untold_weight: factor on the loss of its tokens.
    """
    examples = []
    for row in rows:
        position = position_of(row)
        told = row.get("told", True)
        text = row["text"]
        if told:
            text = answer(text)
        elif untold == "move":
            text = best_alone(text)
        turn = Turn(explain_prompt(position, fen_text=fen_text), text, open=not told)
        weight = 1.0 if told else untold_weight
        examples.append(Example(position, (turn,), weight, source=row["pid"]))
    return examples


def question_examples(
    conversations: Iterable[Sequence[Mapping[str, Any]]], *, fen_text: bool = False
) -> list[Example]:
    """One example for each position: its questions, one after another."""
    examples = []
    for rows in conversations:
        position = position_of(rows[0])
        asked = ((row["prompt"], row["answer"]) for row in rows)
        turns = conversation(position, asked, fen_text=fen_text)
        examples.append(Example(position, turns, source=rows[0]["pid"]))
    return examples


def kept_rows(artifact: Artifact) -> list[dict[str, Any]]:
    """The rows of a table of seeds or of filtered examples that were kept."""
    table = pq.read_table(artifact.file(ROWS))
    rows: list[dict[str, Any]] = table.filter(pc.equal(table["dropped"], "")).to_pylist()
    return rows


def parts(
    tokenizer: Any, max_length: int, named: Mapping[str, tuple[list[Example], float]]
) -> list[Part]:
    """A mixture: examples and share by name; parts without examples or share are left out.

    Examples longer than `max_length` tokens are left out and counted, never cut.

    Raises QueenError for a part of which every example is left out.
    """
    from queen.training.sft import Part

    encoded = {
        name: (encode_examples(examples, tokenizer, max_length), share)
        for name, (examples, share) in named.items()
        if share > 0 and examples
    }
    for name, (each, _) in encoded.items():
        if not len(each):
            first = each.rejected[0]
            raise QueenError(
                f"none of {len(each.rejected)} examples can be trained on: {first.detail}",
                where=f"{name}, {first.source}",
                remedy=f"raise `max_length` ({max_length} tokens) where this stage's params stand, "
                "or ask for shorter texts",
            )
    return [Part(name, each, share) for name, (each, share) in encoded.items()]


def phase_seed(seed: int, name: str) -> int:
    """A seed for one phase of training, so that phases do not meet data in the same order."""
    return zlib.crc32(f"{seed} {name}".encode())


def write_model(model: QueenModel, tokenizer: Any, out: Path, told: Mapping[str, Any]) -> None:
    """A folder in Hugging Face's format: config, safetensors, tokenizer; and the curve."""
    model.save_pretrained(out / MODEL)
    tokenizer.save_pretrained(out / MODEL)
    write_json(out / TRAINING, dict(told))


def declared_of(job: Job[Any], *, curriculum: bool) -> dict[str, float]:
    """What is declared of a model: its parent's declarations, and those of questions it met.

    Args:
        curriculum: whether questions are among its examples.
    """
    parent = job.inputs.get("parent")
    found = declarations(parent.record.figures) if parent else {}
    if not curriculum:
        return found
    questions = declarations(job.inputs["questions"].record.figures)
    return without({**found, **questions}, NO_CURRICULUM)


def curve_of(result: TrainResult) -> dict[str, Any]:
    """Steps, final loss and the curve at two hundred points: no time, which differs."""
    every = max(1, len(result.losses) // 200)
    return {
        "steps": result.steps,
        "final_loss": round(result.final_loss, 6),
        "losses": [round(float(x), 5) for x in result.losses[::every]],
    }


def told_of(name: str, result: TrainResult, parts: Sequence[Part]) -> dict[str, Any]:
    """What a run did, for the record: no time, which differs from run to run."""
    return {
        "phase": name,
        "tokens": result.tokens,
        **curve_of(result),
        "examples": {part.name: len(part.examples) for part in parts},
        "rejected": {part.name: part.examples.reject_counts for part in parts},
    }


def assemble_model(job: Job[Any], folder: Path, out: Path, name: str) -> Draft:
    """Copy the trained model into place, with its card and the licences of its sources."""
    import shutil

    from queen.lineage.artifact import read_json

    for path in sorted((folder / MODEL).iterdir()):
        shutil.copyfile(path, out / path.name)
    told = read_json(folder / TRAINING)
    write_json(out / TRAINING, told)
    licences: dict[str, str] = {}
    for artifact in job.inputs.values():
        licences.update(artifact.record.licences)
    totals = {"steps": sum(p["steps"] for p in told["phases"])}
    totals["tokens"] = sum(p["tokens"] for p in told["phases"])
    drops: dict[str, int] = {}
    for phase in told["phases"]:
        for part, reasons in phase["rejected"].items():
            for reason, count in reasons.items():
                drops[f"{part}.{reason}"] = drops.get(f"{part}.{reason}", 0) + count
    figures = {f"loss.{p['phase']}": p["final_loss"] for p in told["phases"]}
    figures.update(told.get("figures", {}))
    (out / CARD).write_text(model_card(job, name, licences, totals, figures))
    identities = {"weights": told["weights"], "encoder": told["encoder"]}
    return Draft(totals, drops, figures, identities, licences)
