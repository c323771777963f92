"""Stage `value`: a network learns to tell the expected score of labelled positions.

Source: METHOD section 2.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from queen.lineage.artifact import Draft, read_json, write_json
from queen.networks.value.settings import ValueSettings
from queen.training.settings import TrainSettings
from stages.base import Job, Machine, Shard, StageSpec
from stages.bulk.value_card import value_card
from stages.bulk.value_rows import RULES, Prepared, Split, prepare
from stages.training import CARD, MODEL, TRAINING, curve_of, ranks

if TYPE_CHECKING:
    from queen.networks.value.network import ValueNet
    from queen.training.loop import TrainResult


@dataclass(frozen=True)
class ValueTrainParams:
    """The optimizer's knobs; see `queen.training.settings.TrainSettings`.

    Attributes:
        warmup_samples: positions met while the rate rises.
    """

    batch_size: int = 1024
    micro_batch: int = 0
    lr: float = 1e-4
    warmup_samples: int = 20_000_000
    weight_decay: float = 0.01
    betas: tuple[float, ...] = (0.9, 0.98)
    clip: float = 1.0
    schedule: str = "cosine"
    min_lr_share: float = 0.0
    precision: str = "bf16"
    checkpoint_every_s: float = 60.0
    backend: str = "torch"
    zero: int = 0

    def settings(self, samples: int, seed: int, machine: Machine) -> TrainSettings:
        """Samples as steps of whole batches."""
        own = asdict(self)
        warmup = own.pop("warmup_samples")
        return TrainSettings(
            steps=math.ceil(samples / self.batch_size),
            warmup_steps=math.ceil(warmup / self.batch_size),
            seed=seed,
            threads=machine.threads,
            peak_tflops=machine.peak_tflops,
            **own,
        )


@dataclass(frozen=True)
class HeldoutParams:
    """What is not trained on.

    Attributes:
        share: of the games, by hash of their ids.
        most: positions of theirs that are measured; further ones are used for nothing.
        bootstrap: samples of the intervals.
    """

    share: float = 0.05
    most: int = 100_000
    bootstrap: int = 1000


@dataclass(frozen=True)
class Params:
    """How the value network is made.

    Attributes:
        labels: whose: the engine's, or the evaluations that came with the games. Positions in
            which the game is over have the rules' label in both.
        samples: positions met, repeated ones counted.
        ordinal: weight of the ordinal term in the loss.
        run: rows that lie together and are met together, see `queen.training.rows.Shuffle`.
        heldout, network, train: see there.
    """

    labels: Literal["engine", "dump"]
    samples: int
    network: ValueSettings
    ordinal: float = 0.5
    run: int = 1
    heldout: HeldoutParams = field(default_factory=HeldoutParams)
    train: ValueTrainParams = field(default_factory=ValueTrainParams)


def shards(job: Job[Params]) -> Sequence[Shard]:
    return [Shard("model")]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Join, split, train, and measure on games that were never trained on."""
    import torch

    from queen.networks.value import new_value, save_value
    from queen.training.value import train_value

    params = job.params
    torch.set_num_threads(job.machine.threads)
    split = Split(params.heldout.share, params.heldout.most, job.seed)
    sources = (params.labels, RULES)
    data = prepare(job.inputs["dedup"], job.inputs["label"], sources, split, job.scratch())
    net = new_value(params.network, job.seed)
    with ranks(job) as crew:
        result = train_value(
            net,
            data.train.path,
            params.train.settings(params.samples, job.seed, job.machine),
            work=job.scratch() / "run",
            ordinal=params.ordinal,
            run=params.run,
            crew=crew,
            sink=job.sink,
            progress=job.progress,
        )
    save_value(net, out / MODEL)
    write_json(out / TRAINING, {**_told(job, net, result, data), **_measured(job, net, data)})


def _told(job: Job[Params], net: ValueNet, result: TrainResult, data: Prepared) -> dict[str, Any]:
    """What the run did and on what."""
    from queen.networks.digest import weights_digest

    return {
        **curve_of(result),
        "positions": result.tokens,
        "labels": {who: data.counts.get(who, 0) for who in (job.params.labels, RULES)},
        "rows": {part: data.counts[part] for part in ("train", "heldout", "heldout_spared")},
        "parameters": sum(each.numel() for each in net.parameters()),
        "weights": weights_digest(net),
    }


def _measured(job: Job[Params], net: ValueNet, data: Prepared) -> dict[str, Any]:
    """Every measure on held-out games, with its interval and what a constant gets."""
    from queen.evaluation.value import constant_logits, intervals, judged, means
    from queen.training.loop import deterministic

    rows, ordinal = data.heldout, job.params.ordinal
    with deterministic(job.machine.threads):
        logits = net.eval().logits(rows["position"], rows["halfmove"])
    found = judged(logits, rows["label"], rows["cp"], ordinal)
    always = constant_logits(data.train.read()["label"], len(rows))
    constant = means(judged(always, rows["label"], rows["cp"], ordinal))
    bounds = intervals(found, data.games, seed=job.seed, samples=job.params.heldout.bootstrap)
    return {
        "games": len(set(data.games)),
        "heldout": {name: round(value, 6) for name, value in sorted(means(found).items())},
        "constant": {name: round(value, 6) for name, value in sorted(constant.items())},
        "intervals": {
            name: [_finite(each.low), _finite(each.high)] for name, each in sorted(bounds.items())
        },
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """The network's folder with its card; the curve and all measures in `training.json`."""
    (folder,) = folders
    for path in sorted((folder / MODEL).iterdir()):
        shutil.copyfile(path, out / path.name)
    told = read_json(folder / TRAINING)
    write_json(out / TRAINING, told)
    label = job.inputs["label"].record
    licences = {**job.inputs["dedup"].record.licences, **label.licences}
    (out / CARD).write_text(value_card(job, told, licences))
    figures = {"loss": told["final_loss"], **_flat("heldout", told["heldout"])}
    return Draft(
        counts={**told["rows"], "steps": told["steps"], "positions": told["positions"]},
        figures={**figures, **_flat("constant", told["constant"])},
        identities={"weights": told["weights"], "labels": dict(label.identities)},
        licences=licences,
    )


def _flat(group: str, figures: Mapping[str, float]) -> dict[str, float]:
    return {f"{group}.{name}": value for name, value in figures.items()}


SPEC = StageSpec(
    name="value",
    params=Params,
    section="value",
    inputs={"dedup": "data/dedup", "label": "data/label"},
    output="models/value",
    shards=shards,
    work=work,
    assemble=assemble,
)
