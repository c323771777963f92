"""Stage `encoder`: the expert's file in, a checked encoder folder out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from queen.errors import QueenError
from queen.lineage.artifact import Draft, file_digest
from stages.base import Job, Shard, StageSpec

NET = "expert"
HUMAN = "human"


@dataclass(frozen=True)
class Params:
    """Which expert, and which model of human players.

    Attributes:
        source: a name `queen fetch` knows (maia-1900) or an Lc0 net file.
        human: the same for the net whose moves people would play.
        licence: licences of the two, for the model cards.
    """

    source: str = "maia-1900"
    human: str = "maia-1900"
    licence: str = "GPL-3.0 (CSSLab/maia-chess)"


def locate(source: str, job: Job[Params]) -> Path:
    """The net's file: a path if there is one, else what `queen fetch` brings."""
    path = Path(source)
    path = path if path.is_absolute() else job.project / path
    if path.is_file():
        return path
    if path.suffix:
        raise QueenError(
            "no such net",
            where=source,
            remedy="set encoder.source to an Lc0 .pb or .pb.gz file, or to maia-1900",
        )
    from queen.networks.fetch import fetch

    return fetch(source, job.state.downloads)


def shards(job: Job[Params]) -> Sequence[Shard]:
    names = {NET: job.params.source, HUMAN: job.params.human}
    return [
        Shard(role, {"role": role, "sha256": file_digest(locate(source, job))})
        for role, source in names.items()
    ]


def work(job: Job[Params], shard: Shard, out: Path) -> None:
    """Read the net and save it as safetensors and config."""
    from queen.networks.lc0.load import build, load_net, save_encoder

    source = job.params.source if shard.spec["role"] == NET else job.params.human
    save_encoder(build(load_net(locate(source, job))), out / "net")


def assemble(job: Job[Params], folders: Sequence[Path], out: Path) -> Draft:
    """Both nets side by side: `expert/` and `human/`."""
    import shutil

    from queen.networks.digest import weights_digest
    from queen.networks.lc0.load import load_encoder

    identities = {}
    for role, folder in zip((NET, HUMAN), folders, strict=True):
        shutil.copytree(folder / "net", out / role)
        encoder = load_encoder(out / role)
        identities[role] = {"weights": weights_digest(encoder)}
    return Draft(
        counts={"nets": len(folders)},
        identities=identities,
        licences={"encoder": job.params.licence},
    )


SPEC = StageSpec(
    name="encoder",
    params=Params,
    section="encoder",
    inputs={},
    output="models/encoder",
    shards=shards,
    work=work,
    assemble=assemble,
)
