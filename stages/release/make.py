"""`queen release`: a trained model made small and put where it ships, with what is known of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queen.errors import QueenError
from queen.lineage.artifact import (
    RECORD,
    Artifact,
    InputEntry,
    Record,
    describe_files,
    digest_of,
    file_digest,
    fresh_partial,
    open_artifact,
    publish,
    read_json,
    write_json,
)
from queen.lineage.state import open_state
from queen.lineage.verdicts import EVALUATIONS, Judgement, artifact_judgement
from stages.play.explaining import CONFIG, MODELS
from stages.release.card import Released, release_card
from stages.release.history import history
from stages.release.shipped import (
    ENCODER,
    EXPERT,
    NUMBER,
    REFERENCE,
    RELEASED,
    STAGE,
    Reference,
    releases,
)

VERSION = 1
LIMIT = 10_000_000
WEIGHTS, CARD, VERDICT = "model.safetensors", "README.md", "verdict.json"
LEFT_OUT = (WEIGHTS, CARD, CONFIG, RECORD, "training.json")


@dataclass(frozen=True)
class Source:
    """What a release is made of: the model, how it was judged, and the encoder it reads."""

    model: Artifact
    evaluation: Artifact
    judgement: Judgement
    encoder: Artifact
    reference: Reference


def release(project: Path, key: str, name: str = "", limit: int = LIMIT) -> Artifact:
    """Make models/released/NAME from a trained and judged model.

    Args:
        key: of the model in models/.
        name: of the release; `queen-KEY` by default.
        limit: bytes it may have in all.

    Raises QueenError: no such model, not judged as it is, a name that is taken, too large.
    """
    name = name or f"queen-{key}"
    final = project / RELEASED / name
    if "/" in name or name.startswith("."):
        raise QueenError(f"{name!r} is no name", where="name", remedy="give a plain word")
    if final.exists():
        raise QueenError(
            "there is a release of that name", where=str(final), remedy="give it another name"
        )
    source = _source(project, key)
    number = 1 + max((number for number, _ in releases(project)), default=0)
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = fresh_partial(final)
    try:
        _fill(partial, source, f"{RELEASED}/{name}", project)
        _require_small(partial, limit)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return publish(partial, final, _record(partial, source, f"{RELEASED}/{name}", number))


def _source(project: Path, key: str) -> Source:
    model = open_artifact(project / MODELS / key)
    config = read_json(model.path / CONFIG) if (model.path / CONFIG).is_file() else {}
    if config.get("model_type") != "queen" or not (model.path / WEIGHTS).is_file():
        raise QueenError(
            f"not an explaining model in one file ({WEIGHTS})",
            where=str(model.path),
            remedy="name a round, or pawn1",
        )
    evaluation = _evaluation(project, key, model)
    judgement = artifact_judgement(project, key)
    if judgement is None:
        raise QueenError(
            "the model has no verdict",
            where=f"{EVALUATIONS}/{key}",
            remedy="release a model that was judged against its parent",
        )
    encoder = open_artifact(project / ENCODER)
    return Source(model, evaluation, judgement, encoder, _reference(project, encoder, config))


def _evaluation(project: Path, key: str, model: Artifact) -> Artifact:
    """The model's evaluation, if it is of these very weights."""
    stage = "judge" if key in ("pawn", "pawn1") else "evaluate"
    remedy = f"run `queen run {stage}@{key}` first"
    if not (project / EVALUATIONS / key / RECORD).is_file():
        raise QueenError("the model was not evaluated", where=str(model.path), remedy=remedy)
    found = open_artifact(project / EVALUATIONS / key)
    judged = {entry.content for entry in found.record.inputs if entry.role == "model"}
    if judged != {model.content}:
        raise QueenError("its evaluation is of other weights", where=str(found.path), remedy=remedy)
    return found


def _reference(project: Path, encoder: Artifact, config: Mapping[str, Any]) -> Reference:
    weights = str(encoder.record.identities[EXPERT]["weights"])
    if config.get("encoder_digest") != weights:
        raise QueenError(
            f"the model reads encoder {str(config.get('encoder_digest'))[:12]}, "
            f"the project's is {weights[:12]}",
            where=str(encoder.path),
            remedy="release it from the project state it was trained in",
        )
    from queen.networks.fetch import PACKAGES

    source = str(encoder.record.params["source"])
    if source in PACKAGES:
        return Reference(source, PACKAGES[source].sha256, weights)
    file = project / source
    if not file.is_file():
        raise QueenError(
            "the encoder's network file is not here", where=source, remedy="put it back"
        )
    return Reference(source, file_digest(file), weights)


def _fill(folder: Path, source: Source, name: str, project: Path) -> None:
    """All files of a release but its record."""
    for path in sorted(source.model.path.iterdir()):
        if path.is_file() and path.name not in LEFT_OUT:
            shutil.copyfile(path, folder / path.name)
    _round_weights(source.model.path / WEIGHTS, folder / WEIGHTS)
    # Weights are kept in bfloat16 and computed with in float32, as the model was trained.
    write_json(folder / CONFIG, {**read_json(source.model.path / CONFIG), "dtype": "float32"})
    reference = source.reference
    write_json(
        folder / REFERENCE,
        {"source": reference.source, "sha256": reference.sha256, "weights": reference.weights},
    )
    write_json(folder / VERDICT, source.judgement.as_dict())
    known = history(project, open_state(project), source.model)
    told = Released(name, source.model, source.evaluation, source.judgement, reference, known)
    (folder / CARD).write_text(release_card(told, project))


def _round_weights(source: Path, target: Path) -> None:
    """The same tensors, those of floating point in bfloat16."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {
        name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
        for name, tensor in load_file(source).items()
    }
    save_file(tensors, target, metadata={"format": "pt"})


def _require_small(folder: Path, limit: int) -> None:
    sizes = {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    total = sum(sizes.values())
    if total > limit:
        largest = max(sizes, key=sizes.__getitem__)
        raise QueenError(
            f"the release would have {total / 1e6:.1f} MB of at most {limit / 1e6:.1f} MB",
            where=f"{largest}: {sizes[largest] / 1e6:.1f} MB",
            remedy="release a smaller model: fewer decoder layers, width or vocabulary",
        )


def _record(folder: Path, source: Source, name: str, number: int) -> Record:
    parts = {"model": source.model, "evaluation": source.evaluation, "encoder": source.encoder}
    inputs = tuple(InputEntry(role, a.name, a.content) for role, a in sorted(parts.items()))
    params = {NUMBER: number, "weights": "bfloat16"}
    record = source.model.record
    return Record(
        name=name,
        stage=STAGE,
        version=VERSION,
        recipe=digest_of([STAGE, VERSION, params, [entry.content for entry in inputs]]),
        seed=record.seed,
        params=params,
        inputs=inputs,
        shards=(),
        files=describe_files(folder),
        counts=record.counts,
        drops={},
        figures=source.evaluation.record.figures,
        identities={**record.identities, EXPERT: source.encoder.record.identities[EXPERT]},
        licences=dict(_licences(source)),
    )


def _licences(source: Source) -> Iterator[tuple[str, str]]:
    for artifact in (source.encoder, source.evaluation, source.model):
        yield from artifact.record.licences.items()
