"""A model without encoder and one without curriculum, from tokenizer to round, and their words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from model_project import TRAIN, positions, write_texts
from round_project import KEY, NODES, ROUND, copy_of_data, make_encoder, plant

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.generation.loading import Loading, load_speaker
from queen.generation.speaker import Asked
from queen.language.questions import bank
from queen.language.tokenizer import decode, encode, load_tokenizer, train_tokenizer
from queen.lineage.artifact import open_artifact, read_json
from queen.networks.build import EncoderInfo, build_queen
from queen.networks.digest import weights_digest
from queen.networks.queen import QueenModel
from queen.networks.settings import BridgeSettings, DecoderSettings
from stages.audit.books import BOOKS
from stages.audit.opened import open_round
from stages.pawn import Params, Review
from stages.play.explaining import ModelChoice, explain_with
from stages.preparing import prepare
from stages.registry import find_stage
from stages.runner import run_stage
from stages.training import TRAINING, TrainParams, declared_of
from stages.tuning import curriculum_examples, told_examples

DECODER = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 4, "ffn": 48, "max_length": 512}
BRIDGE = {"states": [0, 1], "layers": [0, 1], "heads": 4, "state_mlp": 0, "side_to_move": True}
EVALUATION: dict[str, Any] = {
    "games": 0,
    "opening_plies": [2, 2],
    "max_plies": 8,
    "adjudicate_nodes": 50,
    "opponents": {},
    "max_tokens": 12,
    "judge": NODES,
    "bootstrap": 20,
}
WRITING = {"max_tokens": 24, "judge": NODES}
TUNED: dict[str, Any] = {"epochs": 1.0, "train": TRAIN}


def params_of(steps: int, **changes: Any) -> dict[str, Any]:
    """Params of the model stages: so many steps for each curriculum stage."""
    pawn = {
        "steps": dict.fromkeys(bank.stages(), steps),
        "review": {"steps": steps, "shares": {"static-current": 0.5, "dynamic-future": 0.5}},
        "heldout_batch": 4,
        "train": TRAIN,
    }
    return {
        "tokenizer": {"vocab_size": 420},
        "decoder": DECODER,
        "bridge": BRIDGE,
        "pawn": pawn,
        "pawn1": TUNED,
        "evaluation": EVALUATION,
        "generation": {"precision": "float32"},
        **changes,
    }


@pytest.fixture(scope="module")
def quiet() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUEEN_SENDER", "none")
        patch.delenv("QUEEN_STATE", raising=False)
        yield


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory, quiet: None) -> Path:
    """Without encoder: the model stages, their judgements, and a round of which it wrote the
    trees; what it is trained on in the round is the teacher's, for it can say nothing yet.
    """
    root = copy_of_data(tmp_path_factory.mktemp("blind"))
    params = yaml.safe_load((root / "params.yaml").read_text())
    no_bridge = {"states": [], "layers": []}
    own = params_of(2, bridge=no_bridge, tokenizer={"vocab_size": 420, "fens": True})
    (root / "params.yaml").write_text(yaml.safe_dump({**params, **own}))
    steps = {**ROUND, "train": TUNED, "evaluate": EVALUATION}
    steps |= {name: {**ROUND[name], **WRITING} for name in ("explain", "recurse")}
    (root / "params" / "rounds.yaml").write_text(yaml.safe_dump({"rounds": {KEY: steps}}))
    write_texts(root)
    for stage in ("tokenizer", "pawn", "pawn1", "judge@pawn", "judge@pawn1"):
        run_stage(stage, root)
    for stage in (f"sample@{KEY}", f"explain@{KEY}", f"recurse@{KEY}"):
        run_stage(stage, root)
    said = [open_artifact(root / f"data/{n}/{KEY}").record for n in ("explain", "recurse")]
    assert all(record.identities["speaker"]["encoder"] == "" for record in said)
    plant(root)
    for stage in (f"consolidate@{KEY}", f"filter@{KEY}", f"train@{KEY}", f"evaluate@{KEY}"):
        run_stage(stage, root)
    return root


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, quiet: None) -> Path:
    """Without curriculum; its questions ask for the expert's move, and it never meets them."""
    root = tmp_path_factory.mktemp("bare")
    (root / "params").mkdir()
    (root / "dvc.yaml").write_text("stages: {}\n")
    machine = {"workers": 1, "threads": 1, "cache_mb": 16}
    own = params_of(0, pawn1={**TUNED, "seeds_share": 1.0}, seed=3, machine=machine)
    (root / "params.yaml").write_text(yaml.safe_dump(own))
    make_encoder(root)
    write_texts(root, {"declared.expert_move": 5.0})
    for stage in ("tokenizer", "pawn", "pawn1"):
        run_stage(stage, root)
    return root


def told(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = read_json(root / "models" / name / TRAINING)
    return found


def card(root: Path, name: str) -> str:
    return (root / "models" / name / "README.md").read_text()


@pytest.mark.parametrize("name", ["pawn", "pawn1", KEY])
def test_a_blind_model_has_no_bridge_and_no_encoder(blind: Path, name: str) -> None:
    model = QueenModel.from_pretrained(blind / "models" / name)
    assert model.config.reads_fen
    assert list(model.bridge_parameters()) == []
    assert (model.config.encoder_digest, told(blind, name)["encoder"]) == ("", "")
    record = open_artifact(blind / "models" / name).record
    assert record.figures["declared.no_encoder"] == 1.0
    assert record.identities["encoder"] == ""
    assert "without the frozen Lc0 network" in card(blind, name)
    assert "It reads no encoder" in card(blind, name)


def test_its_examples_give_the_fen_once_each(blind: Path, bare: Path) -> None:
    for root, fen_text, stages in ((blind, True, ("pawn1", f"train@{KEY}")), (bare, False, ())):
        for stage in stages or ("pawn1",):
            job = prepare(*find_stage(stage), root)
            examples = [*told_examples(job, "seeds"), *curriculum_examples(job)]
            assert len(examples) > 20
            for each in examples:
                first, *later = [turn.prompt for turn in each.turns]
                assert (each.position.fen in first) == fen_text
                assert not any("/" in prompt for prompt in later)


def test_its_curriculum_gives_the_fen_too(blind: Path) -> None:
    fens = [len(encode(load_tokenizer(blind / "models/pawn"), p.fen)) for p in positions()]
    for phase in told(blind, "pawn")["phases"]:
        assert phase["tokens"] > min(fens) * phase["steps"] * TRAIN["batch_size"]


def test_its_tokenizer_has_pieces_for_fens(blind: Path, bare: Path) -> None:
    knows, other = (load_tokenizer(root / "models/tokenizer") for root in (blind, bare))
    for position in positions():
        ids = encode(knows, position.fen)
        assert decode(knows, ids) == position.fen
        assert len(ids) < len(encode(other, position.fen))
    assert "fens" not in open_artifact(bare / "models/tokenizer").record.params
    assert len(train_tokenizer(["a b"], 420).get_vocab()) <= 420


def test_it_writes_and_weighs_moves_by_what_the_fen_says(blind: Path) -> None:
    speaker = load_speaker(Loading(blind / "models/pawn1", blind / "no such folder", batch_size=4))
    here, there = positions()[1], positions()[3]
    assert speaker.identity["encoder"] == ""
    assert here.white_to_move
    assert there.white_to_move
    elsewhere = load_speaker(Loading(blind / "models/pawn1", blind / "none", batch_size=4), 2)
    assert elsewhere.fen_text
    assert here.fen in speaker._request(Asked("x", here), "none").prompt
    first, second = (speaker.policies([Position(p.start, p.moves)])[0] for p in (here, there))
    shared = first.keys() & second.keys()
    assert any(abs(first[move] - second[move]) > 1e-6 for move in shared)


def test_it_explains_where_there_is_no_encoder(blind: Path, bare: Path, tmp_path: Path) -> None:
    choice = ModelChoice("pawn1", blind / "models/pawn1", "")
    legal = {move.uci() for move in positions()[2].board().legal_moves}
    assert explain_with(tmp_path, choice, positions()[2], tokens=16).best in legal
    with pytest.raises(Exception, match="the encoder is not here"):
        explain_with(tmp_path, replace(choice, folder=bare / "models/pawn1"), positions()[2])


@pytest.mark.parametrize("name", ["pawn", "pawn1", KEY])
def test_its_evaluations_and_the_audit_know_that_it_is_blind(blind: Path, name: str) -> None:
    record = open_artifact(blind / f"data/evaluate/{name}").record
    assert record.figures["declared.no_encoder"] == 1.0
    assert record.identities["speaker"]["encoder"] == ""
    assert record.counts["positions"] > 0
    model = open_artifact(blind / "models" / name)
    faults = list(BOOKS["pawn"](open_round(blind, name), model))
    assert faults == []


def test_a_review_of_chosen_stages_ends_the_curriculum(blind: Path) -> None:
    phases = told(blind, "pawn")["phases"]
    assert [phase["phase"] for phase in phases] == [*bank.stages(), "review"]
    first, *_, last, review = phases
    assert review["examples"] == {
        stage: phase["examples"][stage]
        for stage, phase in [("static-current", first), ("dynamic-future", last)]
    }


def test_a_review_has_its_own_rate() -> None:
    params = Params(
        DecoderSettings(**DECODER),
        BridgeSettings(**BRIDGE),
        {},
        review=Review(steps=3, lr_share=0.25, shares={"lead": 1.0}),
        train=TrainParams(lr=1.0),
    )
    assert params.optimizer("review").lr == 0.25
    assert params.optimizer("static-current").lr == params.optimizer("lead").lr == 1.0


@pytest.mark.parametrize("shares", [{"static": 1.0}, {"lead": 0.0}, {}])
def test_a_review_of_nothing_is_refused(shares: dict[str, float]) -> None:
    with pytest.raises(QueenError, match=r"pawn\.review\.shares"):
        Review(steps=3, shares=shares)


def test_a_pawn_without_steps_is_the_model_as_it_was_built(bare: Path) -> None:
    assert told(bare, "pawn")["phases"] == []
    assert open_artifact(bare / "models/pawn").record.counts == {"steps": 0, "tokens": 0}
    encoder = QueenModel.from_pretrained(bare / "models/pawn").config
    info = EncoderInfo(
        encoder.encoder_name, encoder.encoder_digest, encoder.encoder_states, encoder.state_width
    )
    tokenizer = load_tokenizer(bare / "models/tokenizer")
    decoder, bridge = DecoderSettings(**DECODER), BridgeSettings(**BRIDGE)
    fresh = build_queen(decoder, bridge, tokenizer, info, 3)
    assert told(bare, "pawn")["weights"] == weights_digest(fresh)


def test_pawn1_then_learns_from_the_seeds_alone(bare: Path) -> None:
    (phase,) = told(bare, "pawn1")["phases"]
    assert set(phase["examples"]) == {"seeds"}
    assert phase["steps"] > 0
    assert told(bare, "pawn1")["weights"] != told(bare, "pawn")["weights"]


def test_what_it_never_met_is_not_declared_and_what_it_meets_later_is(bare: Path) -> None:
    for name in ("pawn", "pawn1"):
        figures = open_artifact(bare / "models" / name).record.figures
        declared = {key for key in figures if key.startswith("declared.")}
        assert declared == {"declared.no_curriculum"}
        assert "never met the curriculum" in card(bare, name)
    job = prepare(*find_stage("pawn1"), bare)
    assert declared_of(job, curriculum=False) == {"declared.no_curriculum": 1.0}
    assert declared_of(job, curriculum=True) == {"declared.expert_move": 5.0}
