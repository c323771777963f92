"""A small project with a judged model of random weights, fit to be released."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import chess

from queen.games.chess.position import Position
from queen.language.prompts import explain_prompt
from queen.language.tokenizer import save_tokenizer, train_tokenizer
from queen.lineage.artifact import (
    Artifact,
    InputEntry,
    Record,
    describe_files,
    fresh_partial,
    open_artifact,
    publish,
    write_json,
)
from queen.lineage.verdicts import Judgement
from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.digest import weights_digest
from queen.networks.lc0.load import build, load_net, save_encoder
from queen.networks.lc0.random_net import RandomShape, random_net
from queen.networks.lc0.write import write_net

NET = "expert.pb.gz"
TEXT = """\
best <N><g1><f3>
line <N><g1><f3> <n><b8><c6> <B><f1><b5>
candidate <N><g1><f3> 0.56 line <n><b8><c6>
After <N><g1><f3>, the <N> on <f3> attacks the <p> on <e5>."""
FIGURES = {
    "dev.all.fnmr": 0.51, "dev.all.fnmr_low": 0.47, "dev.all.fnmr_high": 0.55,
    "dev.all.legal": 0.9, "elo": 700.0, "elo_low": 640.0,
}  # fmt: skip
Fill = Callable[[Path], None]


def make_bare(root: Path) -> Path:
    """A project with nothing trained: its outline and the file of its encoder's network."""
    (root / "params").mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    write_net(random_net(RandomShape(), 3), root / NET)
    return root


def make_project(root: Path) -> Path:
    """A project with the models pawn1 and r1, judged, and their encoder."""
    make_bare(root)
    encoder = build(load_net(root / NET))
    digest = weights_digest(encoder)
    artifact(
        root, "models/encoder", {}, lambda folder: save_encoder(encoder, folder / "expert"),
        params={"source": NET}, identities={"expert": {"weights": digest}},
        licences={"encoder": "GPL-3.0 (a random one)"},
    )  # fmt: skip
    info = EncoderInfo("expert", digest, encoder.n_states, encoder.width)
    for seed, key in enumerate(("pawn1", "r1")):
        make_model(root, key, info, seed)
        make_evaluation(root, key)
    return root


def make_model(root: Path, key: str, info: EncoderInfo, seed: int) -> Artifact:
    """An untrained model with its tokenizer."""
    start = Position(chess.STARTING_FEN)
    tokenizer = train_tokenizer([TEXT, explain_prompt(start)], 400)
    decoder = DecoderSettings(width=32, layers=2, heads=2, kv_heads=2, ffn=48, max_length=128)
    bridge = BridgeSettings(states=(0, 1), layers=(0, 1), heads=2, state_mlp=0)
    model = build_queen(decoder, bridge, tokenizer, info, seed)

    def fill(folder: Path) -> None:
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
        write_json(folder / "training.json", {"phases": []})

    return artifact(
        root, f"models/{key}", {"encoder": "models/encoder"}, fill,
        identities={"weights": weights_digest(model)}, licences={"games": "CC0-1.0"},
    )  # fmt: skip


def make_evaluation(root: Path, key: str, figures: Mapping[str, float] = {}) -> Artifact:
    """An evaluation of the model as it is, with its verdict and further figures."""
    model = open_artifact(root / "models" / key)
    found = Judgement(model.content, "better", "it won", "pawn", 0.1, (0.05, 0.15))
    return artifact(
        root, f"data/evaluate/{key}", {"model": model.name},
        lambda folder: write_json(folder / "verdict.json", found.as_dict()),
        figures={**FIGURES, **figures},
        identities={"engine": {"name": "Stockfish", "version": "15.1"}},
    )  # fmt: skip


def artifact(root: Path, name: str, roles: Mapping[str, str], fill: Fill, **told: Any) -> Artifact:
    """Publish an artifact with what is told of it."""
    final = root / name
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = fresh_partial(final)
    fill(partial)
    inputs = tuple(InputEntry(r, n, open_artifact(root / n).content) for r, n in roles.items())
    empty: dict[str, Any] = {
        key: {} for key in ("params", "counts", "drops", "figures", "identities", "licences")
    }
    record = Record(
        name=name, stage=name.split("/")[0], version=1, recipe="", seed=1, inputs=inputs,
        shards=(), files=describe_files(partial), **{**empty, **told},
    )  # fmt: skip
    return publish(partial, final, record)
