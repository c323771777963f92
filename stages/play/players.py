"""Which model plays: an explaining one, an Lc0 network by its policy, or a value network.

What a model is, its file or folder says; it is loaded only when it has to move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import chess

from queen.engines.server import Engine
from queen.engines.thinking import POLICY_OPTIONS, SHARED, Limits, Option, Search, Thinker, defaults
from queen.errors import QueenError
from queen.generation.options import EXPLAINING_OPTIONS, LONGEST
from queen.lineage.artifact import (
    RECORD,
    content_hash,
    describe_files,
    file_digest,
    open_artifact,
    read_json,
)
from queen.lineage.state import open_state
from stages.play.explaining import CONFIG, MODELS, ModelChoice, choose_model, quiet
from stages.release.shipped import encoder_for

if TYPE_CHECKING:
    from queen.engines.players import Player
    from queen.networks.players import GreedyPlayer, PolicyPlayer

Kind = Literal["queen", "policy", "value"]
QUEEN: Kind = "queen"
POLICY: Kind = "policy"
VALUE: Kind = "value"
_KINDS: dict[str, Kind] = {"queen": QUEEN, "queen-value": VALUE}
OPTIONS: Mapping[Kind, Sequence[Option]] = {
    QUEEN: EXPLAINING_OPTIONS,
    POLICY: POLICY_OPTIONS,
    VALUE: SHARED,
}
REHEARSED = 16  # tokens
_NETS = (".pb", ".pb.gz")


@dataclass(frozen=True)
class Playable:
    """A model that can play.

    Attributes:
        kind: `queen` explains what it plays, `policy` is an Lc0 network, `value` a value network.
        name: for people and records.
        path: its file or folder.
        project: whose encoder it may read.
        known: the name it is fetched by, if it is not there yet.
    """

    kind: Kind
    name: str
    path: Path
    project: Path
    known: str = ""

    def fetched(self) -> Path:
        """Its path, once it is there."""
        if self.known:
            from queen.networks.fetch import fetch

            fetch(self.known, self.path.parent)
        return self.path

    @property
    def content(self) -> str:
        """Content hash of the file or folder."""
        self.fetched()
        if self.path.is_file():
            return file_digest(self.path)
        if (self.path / RECORD).is_file():
            return open_artifact(self.path).content
        return content_hash(describe_files(self.path))


def find_playable(project: Path, named: str | None) -> Playable:
    """The model that a person names: a key, a release, a folder, an Lc0 file or `maia-1900`.

    None is the champion, or the last release where nothing was trained. Raises QueenError if
    there is no such model.
    """
    if named is None:
        return _explaining(project, choose_model(project, None))
    network = _network(project, named)
    if network is not None:
        return network
    folder = _folder(project, named)
    kind = _kind(folder) if folder is not None else QUEEN
    if folder is None or kind == QUEEN:
        return _explaining(project, choose_model(project, named))
    return Playable(kind, folder.name, folder, project)


def engine_of(playable: Playable) -> Engine:
    """The model as a UCI engine, nothing of it loaded yet."""
    return Engine(f"Queen {playable.name}", OPTIONS[playable.kind], lambda: thinker_of(playable))


def thinker_of(playable: Playable) -> Thinker:
    """Load the model to play at a clock; its first move is thought of once, to be quick later."""
    if playable.kind == QUEEN:
        from queen.generation.loading import Loading
        from queen.generation.player import load_player

        quiet()
        encoder = encoder_for(playable.project, playable.path)
        thinker: Thinker = load_player(Loading(playable.path, encoder, batch_size=1))
    else:
        thinker = _by_policy(playable) if playable.kind == POLICY else _by_value(playable)
    rehearsal = {**defaults(OPTIONS[playable.kind]), LONGEST.name: REHEARSED}
    thinker.think(chess.Board(), Search(Limits(), lambda text: None), rehearsal)
    return thinker


def player_of(playable: Playable, batch_size: int = 64) -> Player:
    """Load the model to play many games at once; its moves depend on the games alone."""
    if playable.kind == QUEEN:
        from queen.generation.loading import Loading, load_speaker
        from stages.matches import ModelPlayer

        quiet()
        encoder = encoder_for(playable.project, playable.path)
        player = ModelPlayer(load_speaker(Loading(playable.path, encoder, batch_size)))
        player.name = playable.name
        return player
    return _by_policy(playable) if playable.kind == POLICY else _by_value(playable)


def _by_policy(playable: Playable) -> PolicyPlayer:
    from queen.networks.lc0.describe import read_encoder
    from queen.networks.players import PolicyPlayer

    return PolicyPlayer(read_encoder(playable.fetched()), playable.name)


def _by_value(playable: Playable) -> GreedyPlayer:
    import torch

    from queen.networks.players import GreedyPlayer
    from queen.networks.value import load_value

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return GreedyPlayer(load_value(playable.path, device), playable.name)


def _explaining(project: Path, chosen: ModelChoice) -> Playable:
    return Playable(QUEEN, chosen.key, chosen.folder, project)


def _network(project: Path, named: str) -> Playable | None:
    """An Lc0 network's file, or one that is fetched when it is needed; None if it is none."""
    from queen.networks.fetch import PACKAGES

    package = PACKAGES.get(named)
    if package is not None and package.file.endswith(_NETS):
        path = open_state(project).downloads / package.file
        return Playable(POLICY, named, path, project, known=named)
    if not named.endswith(_NETS):
        return None
    path = Path(named) if Path(named).is_file() else project / named
    if not path.is_file():
        raise QueenError(
            "no such network", where=named, remedy="give an Lc0 .pb or .pb.gz file, or maia-1900"
        )
    return Playable(POLICY, _plain(path), path, project)


def _folder(project: Path, named: str) -> Path | None:
    """The folder that is named by its path, or as a model of the project."""
    places = (project / MODELS / named, Path(named), project / named)
    return next((place for place in places if (place / CONFIG).is_file()), None)


def _kind(folder: Path) -> Kind:
    """What a folder holds, by its config. Raises QueenError on what cannot play."""
    config = read_json(folder / CONFIG)
    kind = _KINDS.get(str(config.get("model_type", "")))
    if kind is None and {"format", "shape"} <= config.keys():
        kind = POLICY
    if kind is None:
        raise QueenError(
            f"neither an explaining model nor an Lc0 nor a value network "
            f"(model_type {config.get('model_type')!r})",
            where=str(folder / CONFIG),
            remedy="name a model that can play; `queen rounds` lists the trained ones",
        )
    return kind


def _plain(path: Path) -> str:
    """A network file's name without its endings."""
    return path.name.removesuffix(".gz").removesuffix(".pb")
