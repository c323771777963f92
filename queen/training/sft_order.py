"""A fine-tuning of a QUEEN as an order (see `order`): its model and encoder lie beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from queen.networks.expert import Expert
from queen.networks.lc0.load import load_encoder, save_encoder
from queen.networks.queen import QueenModel, freeze
from queen.training.loop import Sink, TrainResult
from queen.training.order import put_down
from queen.training.progress import ShowProgress
from queen.training.settings import TrainSettings
from queen.training.sft import Part, fine_tune

_MODEL, _EXPERT = "model", "expert"


@dataclass(frozen=True)
class FineTuning:
    """What `fine_tune` is to be called with, but for the networks.

    Attributes:
        wanted: states that the expert gives; empty for a training without one.
        frozen: parts of the model that do not learn.
    """

    mixture: tuple[Part, ...]
    settings: TrainSettings
    work: Path
    table_mb: int
    wanted: tuple[int, ...]
    frozen: tuple[str, ...]

    def train(self, folder: Path, sink: Sink, progress: ShowProgress) -> TrainResult:
        """As `fine_tune`, with the networks of the folder."""
        model = QueenModel.from_pretrained(folder / _MODEL)
        if self.frozen:
            freeze(model, self.frozen)
        expert = None
        if self.wanted:
            expert = Expert(load_encoder(folder / _EXPERT), self.wanted, memory_mb=0)
        return fine_tune(
            model,
            expert,
            self.mixture,
            self.settings,
            work=self.work,
            table_mb=self.table_mb,
            sink=sink,
            progress=progress,
        )


def write_order(
    folder: Path,
    model: QueenModel,
    expert: Expert | None,
    mixture: Sequence[Part],
    settings: TrainSettings,
    work: Path,
    table_mb: int,
) -> None:
    """Put a fine-tuning down in an empty folder."""
    model.save_pretrained(folder / _MODEL)
    if expert is not None:
        save_encoder(expert.encoder, folder / _EXPERT)
    wanted = expert.wanted if expert is not None else ()
    parts = model.frozen_parts
    put_down(folder, FineTuning(tuple(mixture), settings, work, table_mb, wanted, parts))
