"""The stages tokenizer, pawn and pawn1 around a small decoder that was trained elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from model_project import TRAIN, positions, write_texts
from round_project import make_encoder
from tiny_decoder import TEMPLATE, write_folder
from transformers import AutoModelForCausalLM

from queen.generation.loading import Loading, load_speaker
from queen.generation.requests import Request, Sampling
from queen.language.prompts import question_prompt
from queen.language.questions import bank
from queen.language.tokenizer import load_tokenizer
from queen.lineage.artifact import read_json
from queen.networks.queen import QueenModel
from stages.runner import run_stage

PARAMS: dict[str, Any] = {
    "seed": 3,
    "machine": {"workers": 1, "threads": 1, "cache_mb": 16},
    "tokenizer": {"vocab_size": 400},
    "decoder": {"source": "nets/decoder", "licence": "MIT (nobody)", "shape": {"hidden_size": 32}},
    "bridge": {"states": [0, 1], "layers": [0, 1], "heads": 4, "state_mlp": 0},
    "pawn": {
        "steps": dict.fromkeys(bank.stages(), 3),
        "heldout_batch": 4,
        "frozen": ["decoder"],
        "train": TRAIN,
    },
    "pawn1": {"epochs": 1.0, "frozen": ["decoder"], "train": TRAIN},
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with questions, seeds and an expert, whose three model stages have run."""
    root = tmp_path_factory.mktemp("taken")
    (root / "params").mkdir()
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    write_folder(root / "nets" / "decoder")
    make_encoder(root)
    write_texts(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUEEN_SENDER", "none")
        patch.delenv("QUEEN_STATE", raising=False)
        for stage in ("tokenizer", "pawn", "pawn1"):
            run_stage(stage, root)
        yield root


def test_the_tokenizer_is_the_decoders_own_with_the_chess_tokens(project: Path) -> None:
    plain = load_tokenizer(project / "models/tokenizer")
    assert plain.chat_template == TEMPLATE
    assert len(plain) == 300 + 76
    record = read_json(project / "models/tokenizer/record.json")
    assert record["licences"]["decoder"] == "MIT (nobody)"
    assert record["counts"] == {"tokens": 376}


@pytest.mark.parametrize("name", ["pawn", "pawn1"])
def test_a_frozen_decoder_is_the_one_it_was_and_the_rest_has_learnt(
    project: Path, name: str
) -> None:
    model = QueenModel.from_pretrained(project / "models" / name)
    before = AutoModelForCausalLM.from_pretrained(project / "nets/decoder").state_dict()
    for key, tensor in model.decoder.state_dict().items():
        assert torch.equal(tensor[: len(before[key])], before[key]), key
    gates = [abs(value) for value in model.gate_values().values()]
    assert all(gates)
    table = model.get_input_embeddings().weight
    earlier = project / "models/pawn" if name == "pawn1" else None
    if earlier:
        old = QueenModel.from_pretrained(earlier).get_input_embeddings().weight
        changed = (table != old).any(1).nonzero()[:, 0].tolist()
        assert changed
        assert min(changed) >= 300


def test_licences_reach_the_model_card(project: Path) -> None:
    assert "decoder: MIT (nobody)" in (project / "models/pawn/README.md").read_text()


def test_a_question_is_asked_in_the_models_own_turns_and_answered(project: Path) -> None:
    speaker = load_speaker(
        Loading(project / "models/pawn1", project / "models/encoder/expert", batch_size=2)
    )
    generator, position = speaker.generator, positions()[5]
    request = Request("q", position, question_prompt(position, "on <e4> ?"))
    chat = [{"role": "user", "content": "White to move. on <e4> ?"}]
    written = generator.tokenizer.apply_chat_template(chat, add_generation_prompt=True)
    assert generator._prompt(request) == written["input_ids"]
    done = generator.generate([request], Sampling(max_new_tokens=4))[0]
    assert done.error is None
    assert 0 < len(done.tokens) + done.finished <= 5


def test_another_decoder_under_the_same_name_is_other_work(project: Path) -> None:
    before = read_json(project / "models/tokenizer/record.json")
    assert run_stage("tokenizer", project).record.recipe == before["recipe"]
    folder = project / "nets/decoder"
    held = (folder / "generation_config.json").read_text()
    (folder / "generation_config.json").write_text(held.replace("{", '{"top_k": 7,', 1))
    try:
        assert run_stage("tokenizer", project).record.recipe != before["recipe"]
    finally:
        (folder / "generation_config.json").write_text(held)
        run_stage("tokenizer", project)
