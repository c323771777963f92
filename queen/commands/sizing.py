"""`queen plan profile=...`: parameters, memory, tokens and hours of a choice of params.

Nothing is built and nothing written: parameters are counted on the meta device, tokens follow from
the params, hours from the figures that `plan` in the params states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queen.errors import QueenError
from queen.lineage.params import chosen, compose
from queen.lineage.state import State
from queen.networks.settings import DecoderSettings, PretrainedSettings
from queen.training.budget import (
    ZERO_STAGES,
    Device,
    Memory,
    activations,
    compute_seconds,
    decode_seconds,
    forward_flops,
    memory,
    train_flops,
)
from stages.registry import spec_of
from stages.settings import build

if TYPE_CHECKING:
    from queen.networks.counts import Counts

TRAINING = ("pawn", "pawn1", "train")
HOUR = 3600.0


@dataclass(frozen=True)
class Lengths:
    """Mean tokens: of a curriculum example, its turns together; of an explanation's prompt; of an
    explanation.
    """

    curriculum: int
    prompt: int
    explanation: int


@dataclass(frozen=True)
class EncoderShape:
    """The frozen encoder: states, their width, parameters."""

    states: int
    width: int
    parameters: int


NO_ENCODER = EncoderShape(0, 0, 0)


@dataclass(frozen=True)
class Assumptions:
    """What the estimates stand on (`plan` in the params).

    Attributes:
        devices: how many.
        device: one of them.
        mfu: share of its peak that training reaches.
        decode_share: share of its roofline that decoding reaches.
        tokens: mean lengths of texts.
        kept: share of seeds, and of a round's roots, that the filters keep.
        rounds: how many rounds the total counts.
        encoder: used where the net itself is not at hand.
    """

    devices: int
    device: Device
    mfu: float
    decode_share: float
    tokens: Lengths
    kept: dict[str, float]
    rounds: int
    encoder: EncoderShape


@dataclass(frozen=True)
class Work:
    """What a stage does with the model.

    Attributes:
        stage: its name.
        kind: `train`, `write` (decoding) or `score` (one forward pass over a prompt).
        sequences: how many examples, explanations or scored positions.
        prompt, written: mean tokens of each that are read, and that are written; of training
            examples all are in `prompt`.
        batch: texts decoded at once on one device.
    """

    stage: str
    kind: str
    sequences: float
    prompt: float
    written: float = 0.0
    batch: int = 1

    @property
    def tokens(self) -> float:
        return self.sequences * (self.prompt + self.written)


@dataclass(frozen=True)
class Sized:
    """The answer of `queen plan profile=...`.

    Attributes:
        profile: its name.
        counts: the model's parameters.
        encoder: the frozen encoder's shape; all 0 where there is no bridge to read it.
        measured: whether that is the net's own, or what the params state.
        assumptions: what the rest stands on.
        micro_batch, length: of the largest training stage, for activations.
        memory: bytes on a device by ZeRO stage.
        activations: bytes without and with checkpointing.
        works: what each stage does.
        hours: device hours of each of `works`.
    """

    profile: str
    counts: Counts
    encoder: EncoderShape
    measured: bool
    assumptions: Assumptions
    micro_batch: int
    length: int
    memory: dict[int, Memory]
    activations: tuple[float, float]
    works: tuple[Work, ...]
    hours: tuple[float, ...] = field(default=())

    @property
    def total_hours(self) -> float:
        """Device hours up to PAWN-1 and of all rounds."""
        rounds = self.assumptions.rounds
        each = zip(self.works, self.hours, strict=True)
        return sum(hours * (rounds if of_round(work.stage) else 1) for work, hours in each)


def of_round(stage: str) -> bool:
    """Whether a stage runs once in every round."""
    return spec_of(stage).per == "round"


def make_sizes(root: Path, state: State, choices: Sequence[str]) -> Sized:
    """The sizes of what these choices compose to; starts, fetches and changes nothing.

    Args:
        root: the project.
        state: its state folder, where a fetched encoder may lie.
        choices: as `queen configure` takes them; without `profile=`, on top of those in force.

    Raises:
        QueenError: a choice or param that does not exist; a decoder of unknown shape.
    """
    fresh = any(choice.startswith("profile=") for choice in choices)
    params = compose(root, [*([] if fresh else chosen(root)), *choices])
    assumed = build(Assumptions, params.get("plan", {}), "plan")
    found = _encoder(params, root, state)
    encoder = found or assumed.encoder
    counts = _counts(params, root, encoder)
    encoder = encoder if counts.bridges else NO_ENCODER
    micro, length = _largest(params)
    works = tuple(_works(params, assumed))
    trained = max(counts.trained.values())
    return Sized(
        profile=str(params.get("profile")),
        counts=counts,
        encoder=encoder,
        measured=found is not None,
        assumptions=assumed,
        micro_batch=micro,
        length=length,
        memory={
            zero: memory(counts, trained, encoder.parameters, zero, assumed.devices)
            for zero in ZERO_STAGES
        },
        activations=_activations(counts, assumed, micro * length),
        works=works,
        hours=tuple(_hours(work, counts, encoder, assumed) for work in works),
    )


def _stage(params: Mapping[str, Any], name: str) -> Any:
    """A stage's params, read as the stage reads them."""
    spec = spec_of(name)
    raw: Any = params["round"] if spec.per == "round" else params
    for part in spec.section.split("."):
        raw = raw[part]
    return spec.read_params({**raw, **{also: params[also] for also in spec.also}})


def _encoder(params: Mapping[str, Any], root: Path, state: State) -> EncoderShape | None:
    """The shape of the encoder's net, where its file is at hand."""
    from queen.networks.fetch import PACKAGES
    from queen.networks.lc0.load import build as build_encoder
    from queen.networks.lc0.load import load_net

    source = str(params["encoder"]["source"])
    held = PACKAGES.get(source)
    path = state.downloads / held.file if held else root / source
    if not path.is_file():
        return None
    net = build_encoder(load_net(path))
    return EncoderShape(net.n_states, net.width, sum(each.numel() for each in net.parameters()))


def _counts(params: Mapping[str, Any], root: Path, encoder: EncoderShape) -> Counts:
    from queen.networks.build import EncoderInfo, scratch_config
    from queen.networks.counts import CHESS_TOKENS, count, grown_vocabulary

    pawn = _stage(params, "pawn")
    decoder: DecoderSettings | PretrainedSettings = pawn.decoder
    if isinstance(decoder, PretrainedSettings):
        config = _pretrained(decoder, root)
        size = config.vocab_size + CHESS_TOKENS
    else:
        size = _stage(params, "tokenizer").vocab_size
        config = scratch_config(decoder, grown_vocabulary(size))
    info = EncoderInfo(params["encoder"]["source"], "", encoder.states, encoder.width)
    frozen = {name: _stage(params, name).frozen for name in TRAINING}
    return count(config, size, pawn.bridge, info, frozen)


def _pretrained(decoder: PretrainedSettings, root: Path) -> Any:
    """The config of a decoder that is taken over: by its shape, else by its folder."""
    from transformers import AutoConfig

    from queen.networks.pretrained import CONFIG, load_config

    if "model_type" in decoder.shape:
        return AutoConfig.for_model(**decoder.shape)
    folder = root / decoder.source
    if not (folder / CONFIG).is_file():
        raise QueenError(
            f"the shape of decoder {decoder.source!r} is not known",
            where="decoder.shape",
            remedy="give its model_type, vocab_size, hidden_size and so on there, or its folder",
        )
    return load_config(folder, decoder.shape)


def _largest(params: Mapping[str, Any]) -> tuple[int, int]:
    """Examples and longest tokens of the largest micro-batch of any training stage."""
    stages = [_stage(params, name) for name in TRAINING]
    sizes = [
        (
            min(each.train.micro_batch or each.train.batch_size, each.train.batch_size),
            each.max_length,
        )
        for each in stages
    ]
    return max(sizes, key=lambda size: size[0] * size[1])


def _activations(counts: Counts, assumed: Assumptions, tokens: int) -> tuple[float, float]:
    lengths = assumed.tokens
    share = lengths.explanation / (lengths.explanation + lengths.prompt)
    plain, checkpointed = (
        activations(counts, tokens, round(tokens * share), checkpointing=on) for on in (False, True)
    )
    return plain, checkpointed


def _works(params: Mapping[str, Any], assumed: Assumptions) -> Iterator[Work]:
    """What each stage does with the model, in the pipeline's order."""
    lengths, kept = assumed.tokens, assumed.kept
    example = lengths.prompt + lengths.explanation
    pawn, pawn1, train = (_stage(params, name) for name in TRAINING)
    steps = sum(pawn.phases().values())
    yield Work("pawn", "train", steps * pawn.train.batch_size, lengths.curriculum)
    seeds = _stage(params, "seeds").positions * kept["seeds"]
    rest = 1.0 - pawn1.seeds_share
    mixed = pawn1.seeds_share * example + rest * lengths.curriculum
    yield Work("pawn1", "train", seeds * pawn1.epochs / pawn1.seeds_share, mixed)
    roots = _stage(params, "sample").roots
    for name, each in (("explain", "candidates"), ("recurse", "budget")):
        stage = _stage(params, name)
        count = roots * (stage.limits.budget if each == "budget" else stage.candidates)
        yield Work(name, "write", count, lengths.prompt, lengths.explanation, stage.batch_size)
    rest = 1.0 - train.new_share - train.seeds_share
    mixed = (1.0 - rest) * example + rest * lengths.curriculum
    yield Work("train", "train", roots * kept["filter"] * train.epochs / train.new_share, mixed)
    yield from _evaluation(params, lengths)


def _evaluation(params: Mapping[str, Any], lengths: Lengths) -> Iterator[Work]:
    judged, positions = _stage(params, "evaluate"), _stage(params, "evalset")
    asked = sum(
        positions.general.get(split, 0) + positions.tactical.get(split, 0)
        for split in judged.splits
    )
    yield Work("evaluate", "write", asked, lengths.prompt, lengths.explanation, judged.batch_size)
    yield Work("evaluate", "score", judged.games * judged.max_plies / 2, lengths.prompt)


def _hours(work: Work, counts: Counts, encoder: EncoderShape, assumed: Assumptions) -> float:
    """Device hours of a stage's work; an estimate."""
    length = work.prompt + work.written
    if work.kind == "train":
        flops = train_flops(
            counts,
            counts.trained[work.stage],
            encoder.parameters,
            work.tokens,
            work.sequences,
            length,
            checkpointing=True,
        )
        return compute_seconds(flops, assumed.device, assumed.mfu) / HOUR
    reading = work.sequences * work.prompt * forward_flops(counts, work.prompt)
    seconds = compute_seconds(reading, assumed.device, assumed.mfu)
    if work.kind == "write":
        seconds += decode_seconds(
            counts,
            assumed.device,
            assumed.decode_share,
            work.batch,
            work.sequences * work.written,
            work.prompt + work.written / 2,
        )
    return seconds / HOUR
