"""A release: small, told of in full, and enough to explain and play where nothing was trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import chess
import pytest
import torch
from safetensors.torch import load_file
from tiny_release import NET, make_bare, make_evaluation, make_project

from queen.errors import QueenError
from queen.games.chess.position import Position
from queen.generation.loading import Loading, load_generator
from queen.lineage.artifact import hash_problems, open_artifact, read_record, write_json
from queen.networks.lc0.random_net import RandomShape, random_net
from queen.networks.lc0.write import write_net
from stages.play.explaining import choose_model, explain_with
from stages.play.players import POLICY, QUEEN, find_playable, thinker_of
from stages.release.make import LIMIT, release
from stages.release.shipped import encoder_for, newest

POSITION = Position(chess.STARTING_FEN, ("e2e4", "e7e5"))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two judged models and a release of each."""
    root = make_project(tmp_path_factory.mktemp("grown") / "project")
    release(root, "pawn1", "first")
    release(root, "r1")
    return root


@pytest.fixture
def fresh(grown: Path, tmp_path: Path) -> Path:
    """A project as it is checked out: nothing but its releases."""
    root = make_bare(tmp_path / "fresh")
    shutil.copyfile(grown / NET, root / NET)
    shutil.copytree(grown / "models/released", root / "models/released")
    return root


@pytest.fixture
def project(grown: Path, tmp_path: Path) -> Path:
    """A copy that may be changed, without releases."""
    root = tmp_path / "project"
    shutil.copytree(grown, root, ignore=shutil.ignore_patterns("released"))
    return root


def test_a_release_holds_the_same_weights_in_half_the_bytes(grown: Path) -> None:
    made, model = grown / "models/released/queen-r1", grown / "models/r1"
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (made, model))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == torch.bfloat16
        assert torch.equal(ours[name], tensor.to(torch.bfloat16))
    found = open_artifact(made)
    assert not list(hash_problems(made, found.record))
    assert sum(entry.size for entry in found.record.files) < LIMIT
    assert {entry.role for entry in found.record.inputs} == {"encoder", "evaluation", "model"}
    assert json.loads((made / "verdict.json").read_text())["verdict"] == "better"
    loaded = load_generator(Loading(made, encoder_for(grown, made), 1))
    assert loaded.model.dtype == torch.float32
    for name, tensor in loaded.model.state_dict().items():
        if name in ours:
            assert torch.equal(tensor, ours[name].float())


def test_the_card_names_data_nets_licences_strength_and_limits(grown: Path) -> None:
    card = (grown / "models/released/queen-r1/README.md").read_text()
    for part in (
        "license: gpl-3.0", "encoder: expert.pb.gz", "engine: Stockfish 15.1", "games: CC0-1.0",
        "dev positions, all: 51.0% [47.0%, 55.0%] first moves that are no mistake",
        "Elo 700 (640 .. +inf)", "better (it won)", "## Limits",
    ):  # fmt: skip
        assert part in card


def test_the_card_tells_how_it_was_made_and_what_it_did_on_the_test_set(project: Path) -> None:
    (project / "params.yaml").write_text("profile: mini\n")
    model = open_artifact(project / "models/r1")
    state = project / ".state"
    run = {
        "project": str(project), "status": "done", "host": "h", "pid": 1, "stage": "train",
        "commit": "0123456789abcdef", "wall_s": 3000.0, "cpu_s": 5400.0, "cpus": 2,
        "outputs": [{"name": model.name, "digest": model.content}],
    }  # fmt: skip
    other = {**run, "commit": "f" * 16, "outputs": [{"name": model.name, "digest": "another"}]}
    for name, values in {"1": run, "2": other, "3": {**run, "project": "elsewhere"}}.items():
        (state / "runs/train" / name).mkdir(parents=True)
        write_json(state / "runs/train" / name / "run.json", values)
    figures = {"test.all.fnmr": 0.71, "test.all.fnmr_low": 0.69, "test.all.fnmr_high": 0.73,
               "test.truth": 0.2, "test.guided.checkable": 0.6, "elo": 810.0}  # fmt: skip
    table = {
        "project": str(project), "split": "test", "written": "2026-01-01",
        "models": [{"key": "r1", "content": model.content, "figures": figures, "times_scored": 1}],
    }  # fmt: skip
    (state / "compare/tables").mkdir(parents=True)
    write_json(state / "compare/tables/test-1.json", table)
    card = (release(project, "r1", "told").path / "README.md").read_text()
    for part in (
        "profile `mini`, seed 1", "code: commit 0123456789ab\n",
        "cost: 50 min 0 s of stages on 2 cores (1 h 30 min of processor time)",
        "test positions, all: 71.0% [69.0%, 73.0%] first moves that are no mistake",
        "test positions, free prose: 20.0% of these hold\n",
        "test positions, guided prose: 60.0% of its sentences", "Elo 810",
        "On the test set it was scored 1 time.",
    ):  # fmt: skip
        assert part in card, card
    assert "Not by the published recipe" not in card


def test_what_a_release_learnt_beside_the_recipe_stands_on_its_card(project: Path) -> None:
    shutil.rmtree(project / "data/evaluate/r1")
    make_evaluation(project, "r1", {"declared.expert_move": 8.0})
    card = (release(project, "r1", "expert").path / "README.md").read_text()
    assert "## Not by the published recipe\n- It was also asked which move the expert" in card
    assert "It was not scored on the test set." in card


def test_like_models_make_like_releases(grown: Path, project: Path) -> None:
    again = release(project, "r1")
    assert again.content == read_record(grown / "models/released/queen-r1").content


def test_where_nothing_is_trained_the_last_release_explains(fresh: Path) -> None:
    chosen = choose_model(fresh, None)
    assert (chosen.key, chosen.champion) == ("queen-r1", False)
    assert choose_model(fresh, "first").folder == fresh / "models/released/first"
    told = explain_with(fresh, chosen, POSITION, tokens=24)
    assert chess.Move.from_uci(str(told.best)) in POSITION.board().legal_moves
    kept = list((fresh / ".state/encoders").iterdir())
    assert [encoder_for(fresh, chosen.folder)] == kept
    (fresh / NET).unlink()
    again = explain_with(fresh, chosen, POSITION, tokens=24)
    assert again.text == told.text


def test_the_champion_goes_before_every_release(grown: Path) -> None:
    assert newest(grown) == grown / "models/released/queen-r1"
    chosen = choose_model(grown, None)
    assert (chosen.key, chosen.champion) == ("pawn1", True)
    assert encoder_for(grown, grown / "models/released/first") == grown / "models/encoder/expert"


def test_a_release_elsewhere_is_named_by_its_folder(fresh: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    shutil.copytree(fresh / "models/released/first", folder)
    chosen = choose_model(fresh, str(folder))
    assert explain_with(fresh, chosen, POSITION, tokens=16).best is not None
    assert find_playable(fresh, str(folder)).kind == QUEEN


def test_another_encoder_than_the_one_referred_to_is_refused(fresh: Path) -> None:
    write_net(random_net(RandomShape(), 4), fresh / NET)
    with pytest.raises(QueenError, match="SHA-256"):
        encoder_for(fresh, fresh / "models/released/first")
    path = fresh / "models/released/first/encoder.json"
    told = json.loads(path.read_text())
    write_json(path, {**told, "sha256": ""})
    with pytest.raises(QueenError, match="the network's weights are"):
        encoder_for(fresh, path.parent)


def test_what_is_too_large_is_refused_and_leaves_nothing(project: Path) -> None:
    with pytest.raises(QueenError, match=r"of at most 0\.0 MB") as caught:
        release(project, "r1", limit=5000)
    assert "model.safetensors" in caught.value.where
    assert list((project / "models/released").iterdir()) == []


def test_only_judged_models_under_new_names_are_released(project: Path) -> None:
    release(project, "r1")
    with pytest.raises(QueenError, match="there is a release of that name"):
        release(project, "r1")
    with pytest.raises(QueenError, match="is no name"):
        release(project, "r1", "a/b")
    with pytest.raises(QueenError, match="not an explaining model"):
        release(project, "encoder", "x")
    evaluation = project / "data/evaluate/r1"
    (evaluation / "verdict.json").rename(evaluation / "other.json")
    with pytest.raises(QueenError):
        release(project, "r1", "x")
    shutil.rmtree(evaluation)
    with pytest.raises(QueenError, match="was not evaluated") as caught:
        release(project, "r1", "x")
    assert "queen run evaluate@r1" in caught.value.remedy
    make_evaluation(project, "pawn1")
    shutil.copytree(project / "data/evaluate/pawn1", evaluation)
    with pytest.raises(QueenError, match="of other weights"):
        release(project, "r1", "x")


def test_what_plays_is_told_by_file_and_folder(grown: Path, fresh: Path) -> None:
    assert find_playable(grown, None).name == "pawn1"
    assert find_playable(fresh, None).name == "queen-r1"
    assert find_playable(grown, "first").kind == QUEEN
    for named in (NET, str(grown / NET), "models/encoder/expert", "encoder/expert"):
        found = find_playable(grown, named)
        assert found.kind == POLICY
        assert len(found.content) == 64
    assert find_playable(grown, NET).name == "expert"
    for wrong in ("r9", "no.pb.gz", "models/tokenizer"):
        with pytest.raises(QueenError):
            find_playable(grown, wrong)
    (fresh / "params" / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(QueenError, match="neither an explaining model nor"):
        find_playable(fresh, "params")


def test_a_policy_and_a_speaker_are_loaded_as_what_they_are(grown: Path) -> None:
    assert type(thinker_of(find_playable(grown, NET))).__name__ == "PolicyPlayer"
    assert type(thinker_of(find_playable(grown, "first"))).__name__ == "ExplainingPlayer"
