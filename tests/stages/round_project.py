"""A small project with one whole round, grown by the project's own stages, engine and writers.

The one thing it does without is a trained model: where a model would explain, the embedded
teacher does, now and then with a move that is a mistake or with a text that is cut off.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import chess
import chess.pgn
import orjson
import pyarrow.parquet as pq
import torch
import yaml

from queen.engines.analysis import Limit
from queen.engines.judge import MoveJudge, RootVerdict
from queen.engines.pool import Analyser, EngineSettings
from queen.evaluation.verdict import verdict
from queen.games.chess.position import Position
from queen.generation.decode import Sampling
from queen.generation.requests import Completion
from queen.generation.speaker import Asked
from queen.language.engine_facts import EngineFacts, Node
from queen.language.explanation import Candidate, Explanation, render
from queen.language.teacher_hce import TeacherInput, write
from queen.lineage import verdicts
from queen.lineage.artifact import (
    Artifact,
    Draft,
    InputEntry,
    Record,
    describe_files,
    fresh_partial,
    open_artifact,
    publish,
    write_json,
)
from queen.lineage.verdicts import Judgement
from queen.networks.digest import weights_digest
from queen.networks.lc0.config import Lc0Config
from queen.networks.lc0.format import POLICY_CONVOLUTION, SE_HEADS, VALUE_WDL, NetFormat
from queen.networks.lc0.load import save_encoder
from queen.networks.lc0.resnet import ResNetShape, build_resnet
from queen.search.candidates import weigh
from queen.search.tree import Limits, Tree, grow
from queen.search.tree import Node as TreeNode
from stages import answers
from stages import evaluate as evaluating
from stages.audit.links import recipe_of
from stages.base import (
    ROWS,
    EngineParams,
    Machine,
    engine_settings,
    rows_table,
    write_rows,
)
from stages.explain import EXPLAINED, root_seed
from stages.explain import _judged as explained_columns
from stages.positions import position_of
from stages.recurse import _traits as node_traits
from stages.runner import run_stage
from stages.trees import TREES, tree_rows

REPOSITORY = Path(__file__).resolve().parents[2]
KEY = "r1"
NODES = {"nodes": 400, "close_nodes": 0, "mistake": 0.10, "margin": 0.0}
SMALL: dict[str, Any] = {
    "seed": 3,
    "machine": {"workers": 1, "threads": 1, "cache_mb": 16},
    "engine": {"command": "auto", "hash_mb": 1, "timeout_s": 20.0, "classical": "auto"},
    "games": {"source": "games.pgn", "shares": {"train": 0.6, "dev": 0.3, "test": 0.1}},
    "dedup": {"evaluation": "data/evalset"},
    "positions": {"skip_plies": 4, "limits": {"train": 60, "dev": 40, "test": 10}},
    "evalset": {
        "general": {"dev": 12, "test": 4},
        "tactical": {"dev": 2, "test": 1},
        "scan_nodes": 50,
        "gap_nodes": 50,
        "judge": NODES,
    },
}
ROUND: dict[str, Any] = {
    "parent": "pawn1",
    "seed": 3,
    "sample": {"roots": 5, "shares": {"human": 1.0}},
    "explain": {"candidates": 3, "temperature": 1.0, "judge": NODES},
    "recurse": {"limits": {"candidates": 3, "depth": 2, "budget": 8}, "judge": NODES},
    "consolidate": {"rules": {"sentences": 6}},
    "filter": {"max_loss": 0.0, "judge": NODES},
    "train": {},
    "evaluate": {},
}


def make_project(root: Path) -> Path:
    """A project with params and games, nothing run."""
    root.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(REPOSITORY / "dvc.yaml", root / "dvc.yaml")
    (root / "params").mkdir()
    (root / "params.yaml").write_text(yaml.safe_dump(SMALL))
    (root / "params" / "rounds.yaml").write_text(yaml.safe_dump({"rounds": {KEY: ROUND}}))
    (root / "games.pgn").write_text("\n\n".join(str(game) for game in _games(14)) + "\n")
    return root


def grow_data(root: Path) -> None:
    """The stages that need no model: games to evaluation set."""
    run_stage("games", root)
    run_stage("positions", root)
    make_encoder(root)
    run_stage("evalset", root)


def grow_round(root: Path) -> None:
    """A whole round on top: models, trees, consolidation, filter, evaluation, verdict."""
    make_model(root, "pawn", [], 5.0)
    make_model(root, "pawn1", ["models/pawn"], 3.5)
    make_evaluation(root, "pawn", None, sound=0.2)
    make_evaluation(root, "pawn1", "pawn", sound=0.4)
    run_stage(f"sample@{KEY}", root)
    plant(root)
    run_stage(f"consolidate@{KEY}", root)
    run_stage(f"filter@{KEY}", root)
    make_model(root, KEY, ["models/pawn1", f"data/filter/{KEY}"], 2.5)
    make_evaluation(root, KEY, "pawn1", sound=1.0)


def _games(count: int) -> Iterator[chess.pgn.Game]:
    """Games of random moves, captures preferred: mistakes in plenty."""
    for number in range(count):
        rng = random.Random(number)
        board = chess.Board()
        while not board.is_game_over() and len(board.move_stack) < 40:
            prey = list(board.generate_legal_captures()) if rng.random() < 0.5 else []
            board.push(rng.choice(prey or list(board.legal_moves)))
        game = chess.pgn.Game.from_board(board)
        game.headers["WhiteElo"], game.headers["BlackElo"] = "1200", "1300"
        yield game


def make_encoder(root: Path) -> None:
    """A very small expert, for the baseline that is the encoder's policy."""
    torch.manual_seed(1)
    form = NetFormat(1, 2, SE_HEADS, POLICY_CONVOLUTION, VALUE_WDL)
    encoder = build_resnet(Lc0Config(form, ResNetShape(8, (4,), 8, 0, 0, 0, 0, 0, 2, 4, 0, 0)))

    def fill(folder: Path) -> Draft:
        save_encoder(encoder, folder / "expert")
        weights = {"expert": {"weights": weights_digest(encoder)}}
        return Draft(counts={"nets": 1}, identities=weights)

    write_artifact(root, "models/encoder", "encoder", {}, fill)


def make_model(root: Path, name: str, sources: Sequence[str], loss: float) -> None:
    """What a training stage leaves behind, but for the weights."""
    filtered = f"data/filter/{name}"
    roles = {"encoder": "models/encoder"}
    roles |= {"filtered" if s == filtered else "parent": s for s in sources}
    digest = open_artifact(root / "models/encoder").record.identities["expert"]["weights"]
    examples = {}
    if filtered in sources:
        examples = {"new": open_artifact(root / filtered).record.counts["kept"]}
    phase = {
        "phase": "train" if examples else name,
        "steps": 40,
        "tokens": 1000,
        "final_loss": loss,
        "losses": [round(loss + 4.0 / (1 + step), 4) for step in range(40)],
        "examples": examples,
        "rejected": {},
    }
    told: dict[str, Any] = {"phases": [phase], "encoder": digest, "weights": digest}
    told["gates"] = {"0": [0.1, 0.2]}
    figures = {f"loss.{phase['phase']}": loss}
    if name == "pawn":
        told["heldout"] = HELDOUT
        figures |= {"heldout.static-current.piece_on": 0.9, "heldout.asked": 40.0}

    def fill(folder: Path) -> Draft:
        write_json(folder / "training.json", told)
        return Draft(counts={"steps": 40, "tokens": 1000}, figures=figures)

    stage = name if name in verdicts.BASES else "train"
    write_artifact(root, f"models/{name}", stage, roles, fill)


def _tally(asked: int, right: int, majority: int) -> dict[str, float]:
    shares = {"accuracy": right / asked, "majority": majority / asked}
    return {"asked": asked, "right": right, "majority_right": majority, **shares}


HELDOUT: dict[str, Any] = {
    "macro": {"static-current": {"accuracy": 0.9, "majority": 0.5}},
    "types": {
        "static-current": {"piece_on": _tally(20, 18, 10)},
        "dynamic-future": {"checks_after": _tally(20, 11, 12)},
    },
    "subsets": {
        "static-current": {"piece_on": {"empty": _tally(10, 10, 10), "occupied": _tally(10, 8, 0)}}
    },
    "left_out": {},
}


class TeacherSpeaks:
    """The embedded teacher in a model's place."""

    def __init__(self, judge: MoveJudge) -> None:
        self.judge = judge

    identity = {"weights": "the teacher", "encoder": ""}  # noqa: RUF012

    def policies(self, positions: Sequence[Position]) -> list[dict[str, float]]:
        """The same log-probability for every legal move."""
        return [dict.fromkeys(_legal(p), -3.0) for p in positions]

    def explain(
        self, asked: Sequence[Asked], sampling: Sampling, legal: str = "none"
    ) -> list[Completion]:
        """The teacher's text about each position, some of them bad."""
        positions = [one.position for one in asked]
        drawn = [_drawn(one.position) for one in asked]
        items = [(p.fen, moves) for p, moves in zip(positions, drawn, strict=True)]
        answers = zip(asked, drawn, self.judge.judge(items), strict=True)
        return [_text(one, moves, found) for one, moves, found in answers]


def _legal(position: Position) -> list[str]:
    return sorted(move.uci() for move in position.board().legal_moves)


def _drawn(position: Position) -> list[str]:
    legal = _legal(position)
    return random.Random(position.key).sample(legal, min(3, len(legal)))


def _text(one: Asked, moves: Sequence[str], found: Any) -> Completion:
    assert isinstance(found, RootVerdict)
    facts = EngineFacts({(): Node.from_verdict(found)})
    said = write(TeacherInput(one.position, facts, tuple(moves)), 1, one.seed % 1000)
    luck = int(hashlib.sha256(one.position.key.encode()).hexdigest(), 16) % 5
    if luck == 0:
        return Completion(one.id, render(said)[:60], finished=False)
    if luck < 3:
        worst = min(moves, key=lambda move: found.values[move])
        candidates = (Candidate(worst, 0.9),)
        said = Explanation(said.fen, worst, (worst,), candidates, said.prose)
    return Completion(one.id, render(said), finished=True)


def plant(root: Path) -> None:
    """The artifacts of `explain` and `recurse`, the teacher speaking for the model."""
    sampled = open_artifact(root / f"data/sample/{KEY}")
    roots = pq.read_table(sampled.file(ROWS)).to_pylist()
    positions = [position_of(row) for row in roots]
    seeds = [root_seed(3, row["pid"]) for row in roots]
    sampling = Sampling(temperature=0.0)
    with Analyser(_engine()) as analyser:
        speaker: Any = TeacherSpeaks(MoveJudge(analyser, Limit(nodes=400), None, 0.1, 0.0))
        weighed = weigh(speaker, speaker.judge, positions, seeds, 3, 1.0)
        texts = [
            {
                move: speaker.explain([Asked("x", position, move, seed)], sampling)[0]
                for move in getattr(result, "moves", ())
            }
            for position, seed, result in zip(positions, seeds, weighed, strict=True)
        ]
        trees = [
            Tree(row["pid"], seed, {(): TreeNode((), position, weighed=result)})
            for row, seed, position, result in zip(roots, seeds, positions, weighed, strict=True)
        ]
        limits = Limits(candidates=3, depth=2, budget=8)
        grow(trees, speaker, speaker.judge, limits, sampling, lambda position: None)
    rows = [
        {**row, "seed": seed, "told": True, **explained_columns(result, said, position)}
        for row, seed, result, said, position in zip(
            roots, seeds, weighed, texts, positions, strict=True
        )
    ]
    _write_explained(root, rows)
    _write_trees(root, trees)


def _engine() -> EngineSettings:
    return engine_settings(EngineParams(hash_mb=1), Machine(workers=1))


def _write_explained(root: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    told = [text for row in rows for text in orjson.loads(row["texts"]).values()]
    drops = Counter(f"unparsed.{text['reason']}" for text in told if text["reason"])
    parsed = len(told) - sum(drops.values())
    counts = {"roots": len(rows), "texts": len(told), "parsed": parsed}

    def fill(folder: Path) -> Draft:
        write_rows(folder / ROWS, rows_table(rows, EXPLAINED))
        return Draft(counts, drops)

    roles = {"roots": f"data/sample/{KEY}", "parent": "models/pawn1", "encoder": "models/encoder"}
    write_artifact(root, f"data/explain/{KEY}", "explain", roles, fill, ROUND["explain"])


def _write_trees(root: Path, trees: Sequence[Tree]) -> None:
    nodes = [node for tree in trees for node in tree.nodes.values()]
    counts = Counter(trait for node in nodes if node.path for trait in node_traits(node))
    drops = sum((tree.drops for tree in trees), Counter[str]())
    drops.update(f"unparsed.{node.reason}" for node in nodes if node.reason)

    def fill(folder: Path) -> Draft:
        rows = [row for tree in trees for row in tree_rows(tree)]
        write_rows(folder / ROWS, rows_table(rows, TREES))
        return Draft({"trees": len(trees), **counts}, drops)

    roles = {
        "explained": f"data/explain/{KEY}",
        "parent": "models/pawn1",
        "encoder": "models/encoder",
        "evalset": "data/evalset",
    }
    write_artifact(root, f"data/recurse/{KEY}", "recurse", roles, fill, ROUND["recurse"])


def make_evaluation(root: Path, key: str, parent: str | None, sound: float) -> None:
    """An evaluation whose first moves are sound so often, and its verdict."""
    evalset = open_artifact(root / "data/evalset")
    asked = [r for r in pq.read_table(evalset.file(ROWS)).to_pylist() if r["split"] == "dev"]
    rows = [_answer(row, n < sound * len(asked)) for n, row in enumerate(asked)]
    fnmr = {
        f"dev.{kind}.{name}": round(_share(rows, kind), 6)
        for kind in ("general", "tactical", "all")
        if any(kind in (r["kind"], "all") for r in rows)
        for name in ("fnmr", "fnmr_constrained", "nmr1", "nmr3", "nmr5")
    }
    bounds = {"dev.all.fnmr_low": fnmr["dev.all.fnmr"] - 0.1}
    bounds["dev.all.fnmr_high"] = fnmr["dev.all.fnmr"] + 0.1
    elo = {"elo": 300.0 + 400 * sound, "elo_low": 250.0 + 300 * sound}
    figures = {**fnmr, **bounds, **elo}
    roles = {"model": f"models/{key}", "evalset": "data/evalset", "encoder": "models/encoder"}
    if parent is not None:
        roles["before"] = f"data/evaluate/{parent}"

    def fill(folder: Path) -> Draft:
        write_rows(folder / ROWS, rows_table(rows, answers.ANSWERS))
        (folder / evaluating.GAMES).write_bytes(b"")
        write_json(folder / evaluating.SUMMARY, {"figures": figures, "games": {}, "elo": None})
        if parent is not None:
            write_json(folder / evaluating.VERDICT, _judge(root, key, parent, rows).as_dict())
        return Draft({"positions": len(rows), "games": 0}, figures=figures)

    stage = "judge" if key in verdicts.BASES else "evaluate"
    write_artifact(root, f"data/evaluate/{key}", stage, roles, fill, {"splits": ["dev"]})
    if parent is not None:
        verdicts.record_artifact(root, key)


def _share(rows: Sequence[Mapping[str, Any]], kind: str) -> float:
    part = [row["first_ok"] for row in rows if kind in (row["kind"], "all")]
    return sum(part) / len(part)


def _answer(row: Mapping[str, Any], good: bool) -> dict[str, Any]:
    shared = {name: row[name] for name in ("pid", "kind", "split", "game_id", "start", "moves")}
    best = row["best_move"] if good else row["uniform_move"]
    return {
        **shared,
        "text": "",
        "reason": "",
        "best": best,
        "line": best,
        "legal": True,
        "judged": True,
        "first_ok": good,
        **{f"line_ok_{n}": good for n in answers.PLIES},
        "constrained": best,
        "constrained_ok": good,
        "encoder_agrees": best == row["encoder_move"],
    }


def _judge(root: Path, key: str, parent: str, rows: Sequence[Mapping[str, Any]]) -> Judgement:
    before = open_artifact(root / f"data/evaluate/{parent}")
    theirs = {r["pid"]: r for r in pq.read_table(before.file(ROWS)).to_pylist()}
    mine = [float(row["first_ok"]) for row in rows]
    other = [float(theirs[row["pid"]]["first_ok"]) for row in rows]
    found = verdict(mine, other, [row["pid"] for row in rows], None, None)
    low, high = round(found.difference.low, 6), round(found.difference.high, 6)
    model = open_artifact(root / f"models/{key}").content
    difference = round(found.difference.estimate, 6)
    return Judgement(model, found.kind, found.reason, parent, difference, (low, high))


def write_artifact(
    root: Path,
    name: str,
    stage: str,
    roles: Mapping[str, str],
    fill: Any,
    params: Mapping[str, Any] | None = None,
) -> Artifact:
    """Publish an artifact as the runner does: inputs by content, recipe of the whole."""
    final = root / name
    final.parent.mkdir(parents=True, exist_ok=True)
    partial = fresh_partial(final)
    draft = fill(partial)
    inputs = tuple(
        InputEntry(role, source, open_artifact(root / source).content)
        for role, source in sorted(roles.items())
    )
    record = Record(
        name=name,
        stage=stage,
        version=1,
        recipe="",
        seed=3,
        params=dict(params or {}),
        inputs=inputs,
        shards=(),
        files=describe_files(partial),
        counts=dict(draft.counts),
        drops=dict(draft.drops),
        figures=dict(draft.figures),
        identities=dict(draft.identities),
        licences={},
    )
    return publish(partial, final, replace(record, recipe=recipe_of(record)))


def rewrite(artifact: Artifact, **changes: Any) -> None:
    """Write an artifact's record anew so that its hashes hold after its files were changed."""
    record = replace(artifact.record, files=describe_files(artifact.path), **changes)
    write_json(artifact.path / "record.json", asdict(replace(record, recipe=recipe_of(record))))


@functools.cache
def _grown(data_only: bool) -> Path:
    """A project grown once in this process, to be copied."""
    os.environ["QUEEN_SENDER"] = "none"  # figures stay in the state folder
    root = make_project(Path(tempfile.mkdtemp(prefix="queen-round-")) / "project")
    atexit.register(shutil.rmtree, root.parent, ignore_errors=True)
    if data_only:
        grow_data(root)
    else:
        shutil.copytree(_grown(True), root, dirs_exist_ok=True)
        grow_round(root)
    return root


def copy_of_round(folder: Path) -> Path:
    """A project with a whole judged round, for one test."""
    return Path(shutil.copytree(_grown(False), folder / "project"))


def copy_of_data(folder: Path) -> Path:
    """A project that only got to its evaluation set."""
    return Path(shutil.copytree(_grown(True), folder / "project"))
