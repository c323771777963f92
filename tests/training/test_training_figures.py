"""What training costs, as counted by hand and by torch; checkpoints as Hugging Face folders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from queen.networks.queen import QueenModel, freeze, thaw
from queen.training import checkpoint as ck
from queen.training.curriculum import question_examples
from queen.training.examples import encode_examples
from queen.training.flops import queen_flops
from queen.training.loop import TrainSettings
from queen.training.packing import level, pack_batch
from queen.training.sampling import BatchPlan, Share
from queen.training.sft import Part, QueenTask, fine_tune
from queen.training.states import PositionStates

QUICK = TrainSettings(
    steps=5, batch_size=8, warmup_steps=2, precision="fp32", threads=1, checkpoint_every_s=0,
    checkpoint_every=2, log_every=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def encoded(questions, tokenizer):
    return encode_examples(question_examples(questions, turns=3, seed=0), tokenizer, 256)


def a_task(encoded, expert):
    plan = BatchPlan([Share("all", encoded.lengths, 1.0)], 8, 5, 0)
    return QueenTask(encoded, plan, PositionStates(expert, encoded.positions, 99, 64), 0, True)


@pytest.mark.parametrize("frozen", [[], ["decoder", "chess_tokens"]])
def test_operations_are_those_that_torch_counts(new_model, encoded, expert, frozen):
    model, task = new_model(gate=0.5), a_task(encoded, expert)
    freeze(model, frozen)
    batch = pack_batch(encoded, np.arange(8))
    assert task.states.table.numel()  # asked before, so that the encoder is not counted
    with FlopCounterMode(display=False) as counter:
        task.loss(model, batch).backward()
    products = sum(counter.get_flop_counts()["Global"].values())  # attention it does not know
    pairs = float((batch.lengths.double() ** 2).sum()) / 2
    attention = 3 * 4 * (2 * 32 * pairs + 2 * 32 * 64 * batch.tokens)
    # What comes first of all needs no gradient of its inputs, which the usual count ignores.
    filled = len(level(batch.lengths.numpy()).sources) / batch.tokens  # what evens out lengths
    assert products / filled * 1.001 < task.flops(model, batch) - attention < products * 1.15


def test_a_position_is_read_once_and_padding_costs_nothing(new_model):
    model = new_model()
    lengths = torch.tensor([30, 40])
    apart = queen_flops(model, lengths, torch.tensor([0, 1]), 10)
    together = queen_flops(model, lengths, torch.tensor([4, 4]), 10)
    by_square = sum(
        6 * each.in_features * each.out_features
        for block in model.blocks
        for each in block.reader.modules()
        if isinstance(each, torch.nn.Linear)
    )
    assert apart - together == 64 * by_square


def test_a_checkpoint_is_a_folder_of_hugging_face(new_model, encoded, expert, tmp_path):
    model = new_model()
    fine_tune(model, expert, [Part("all", encoded, 1.0)], QUICK, work=tmp_path)
    loaded = QueenModel.from_pretrained(ck.latest(tmp_path).folder)
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True)
    )


def test_frozen_weights_are_written_once_and_belong_to_every_checkpoint(
    new_model, encoded, expert, tmp_path
):
    model = new_model()
    freeze(model, ["decoder"])
    inodes = set()

    def look(done, total, note=""):
        found = sorted(tmp_path.glob("checkpoint-*/model-00002-of-00002.safetensors"))
        inodes.update(path.stat().st_ino for path in found)

    mixture = [Part("all", encoded, 1.0)]
    fine_tune(model, expert, mixture, QUICK, work=tmp_path, progress=look)
    assert inodes == {(tmp_path / "frozen.safetensors").stat().st_ino}
    folder = ck.latest(tmp_path).folder
    loaded = QueenModel.from_pretrained(folder)
    thaw(model)
    for name, each in loaded.named_parameters():
        assert torch.equal(each, model.state_dict()[name]), name
    again = new_model()
    freeze(again, ["decoder"])
    assert fine_tune(again, expert, mixture, QUICK, work=tmp_path).resumed_from == 5


def test_frozen_weights_of_another_run_are_not_taken(new_model, encoded, expert, tmp_path):
    (tmp_path / "frozen.safetensors").write_bytes(b"of another run")
    model = new_model()
    freeze(model, ["decoder"])
    fine_tune(model, expert, [Part("all", encoded, 1.0)], QUICK, work=tmp_path)
    assert (tmp_path / "frozen.safetensors").read_bytes() != b"of another run"
    loaded = QueenModel.from_pretrained(ck.latest(tmp_path).folder).state_dict()
    thaw(model)
    for name, each in model.named_parameters():
        assert torch.equal(loaded[name], each), name
