"""Fine-tuning a QUEEN: where the loss stands, what learns, what must not change."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from halting import HaltError, halt_at
from torch.nn import functional as F

from queen.networks.digest import weights_digest
from queen.networks.expert import Expert
from queen.networks.queen import freeze, thaw
from queen.training.backend import Float32Attention
from queen.training.curriculum import question_examples
from queen.training.examples import Example, Turn, encode_examples
from queen.training.loop import TrainSettings
from queen.training.sampling import BatchPlan, Share
from queen.training.sft import ExpertMismatchError, Part, QueenTask, fine_tune, make_batch
from queen.training.states import PositionStates

CPU = torch.device("cpu")
QUICK = TrainSettings(
    steps=60, batch_size=8, lr=5e-3, warmup_steps=5, precision="fp32", threads=1,
    checkpoint_every_s=0, checkpoint_every=7, log_every=10,
)  # fmt: skip


@pytest.fixture(scope="module")
def encoded(questions, tokenizer):
    return encode_examples(question_examples(questions, turns=2, seed=0), tokenizer, 256)


def a_task(encoded, expert, table_mb=64):
    plan = BatchPlan([Share("all", encoded.lengths, 1.0)], 8, 60, 0)
    states = PositionStates(expert, encoded.positions, 10**6, table_mb) if expert else None
    return QueenTask(encoded, plan, states, pad=0)


def plain_loss(model, encoded, expert, index):
    """The loss of one example, computed token by token without padding."""
    span = slice(encoded.offsets[index], encoded.offsets[index + 1])
    ids = torch.from_numpy(encoded.tokens[span].astype(np.int64))
    states = expert.states([encoded.positions[encoded.position_of[index]]])
    logits = model(ids[None], states=states)[0].log_softmax(-1)
    places = [i for i in range(1, len(ids)) if encoded.answers[span][i]]
    return -sum(logits[i - 1, ids[i]] for i in places) * float(encoded.weights[index])


def test_turns_about_a_position_form_one_sequence(questions, encoded, tokenizer):
    examples = question_examples(questions, turns=2, seed=0)
    assert sum(len(example.turns) for example in examples) == len(questions)
    assert max(len(example.turns) for example in examples) == 2
    text = tokenizer.decode(encoded.tokens[: encoded.offsets[1]])
    first = examples[0].turns
    assert text == "".join(turn.prompt + turn.answer for turn in first)
    answers = encoded.tokens[: encoded.offsets[1]][encoded.answers[: encoded.offsets[1]]]
    assert tokenizer.decode(answers) == "".join(turn.answer for turn in first)


@pytest.mark.parametrize("table_mb", [64, 0])
def test_the_padded_loss_is_the_sum_of_the_plain_ones(new_model, encoded, expert, table_mb):
    model = new_model(gate=0.7)
    task = a_task(encoded, expert, table_mb)
    batch = task.batch(0)
    assert batch.lengths.min() < batch.lengths.max()
    indices = task.plan.batch_indices(0)
    expected = sum(plain_loss(model, encoded, expert, index) for index in indices)
    assert task.loss(model, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    parts = [task.loss(model, part).item() for part in batch.split(3)]
    assert sum(parts) == pytest.approx(expected.item(), rel=1e-5)
    assert sum(part.weight for part in batch.split(3)) == batch.weight


def test_weights_scale_the_loss_and_its_divisor(new_model, positions, tokenizer, expert):
    turns = (Turn("<user>a<assistant>", "bcd<end>"),)
    pair = [Example(positions[0], turns, 1.0), Example(positions[0], turns, 3.0)]
    encoded = encode_examples(pair, tokenizer, 64)
    task, model = a_task(encoded, expert), new_model()
    one, three = (make_batch(encoded, np.array([index]), 0) for index in (0, 1))
    assert three.weight == 3 * one.weight
    losses = [task.loss(model, batch).item() for batch in (one, three)]
    assert losses[1] == pytest.approx(3 * losses[0], rel=1e-6)


def test_an_answer_at_the_very_beginning_has_nothing_to_predict_it(tokenizer, positions):
    bare = encode_examples([Example(positions[0], (Turn("", "ab"),))], tokenizer, 64)
    batch = make_batch(bare, np.array([0]), 0)
    assert batch.targets.sum() == len(bare.tokens) - 1


def test_it_learns_through_the_bridge_and_leaves_the_encoder(
    new_model, encoded, encoder, expert, tmp_path
):
    model, figures = new_model(), {}
    before = weights_digest(encoder)
    mixture = [Part("questions", encoded, 1.0)]
    result = fine_tune(model, expert, mixture, QUICK, work=tmp_path, sink=figures.__setitem__)
    assert result.losses[:5].mean() > 4.0
    assert result.final_loss < 2.5
    assert weights_digest(encoder) == before == expert.digest
    gates = {name: value for name, value in figures[60].items() if name.startswith("gate/")}
    assert len(gates) == 4
    assert all(value != 0 for value in gates.values())
    assert result.tokens == sum(
        encoded.lengths[a_task(encoded, None).plan.batch_indices(step)].sum() for step in range(60)
    )


@pytest.mark.parametrize(("table_mb", "precision"), [(64, "bf16"), (0, "fp32")])
def test_stopped_and_resumed_it_ends_with_the_same_bits(
    new_model, encoded, expert, tmp_path, table_mb, precision
):
    settings = TrainSettings(**{**vars(QUICK), "steps": 12, "precision": precision})
    mixture = [Part("all", encoded, 0.7), Part("again", encoded, 0.3)]

    def run(name, progress=lambda done, total, note="": None):
        model, work = new_model(), tmp_path / name
        fine_tune(model, expert, mixture, settings, work=work, table_mb=table_mb, progress=progress)
        return weights_digest(model)

    with pytest.raises(HaltError):
        run("halted", halt_at(9))
    assert run("halted") == run("whole") == run("whole")


def test_states_do_not_depend_on_what_was_asked_before(encoder, positions):
    expert = Expert(encoder, (1, 2), memory_mb=64)
    fly, table = (PositionStates(expert, positions, 10**6, table_mb=mb) for mb in (0, 64))
    assert table.tabled
    assert not fly.tabled
    asked = np.array([5, 1, 5, 30])
    first = fly.of(asked, CPU)
    fly.of(np.arange(20), CPU)
    assert all(torch.equal(a, b) for a, b in zip(first, fly.of(asked, CPU), strict=True))
    for a, b in zip(first, table.of(asked, CPU), strict=True):
        assert torch.allclose(a, b, atol=1e-2)
        assert torch.equal(a[0], a[2])


def test_a_table_is_made_only_where_it_pays(expert, positions):
    assert not PositionStates(expert, positions, len(positions), table_mb=64).tabled
    assert PositionStates(expert, positions, len(positions) + 1, table_mb=64).tabled


def test_without_an_encoder_the_decoder_alone_learns(new_model, encoded, tmp_path):
    model = new_model()
    bridge = model.blocks[0].out.weight.detach().clone()
    settings = TrainSettings(**{**vars(QUICK), "steps": 10})
    for _ in range(2):
        result = fine_tune(model, None, [Part("all", encoded, 1.0)], settings, work=tmp_path)
        model = new_model()
    assert result.resumed_from == 10
    assert torch.equal(model.blocks[0].out.weight, bridge)


def test_a_frozen_decoder_learns_its_chess_tokens_alone(new_model, encoded, expert, tmp_path):
    model = new_model()
    freeze(model, ["decoder"])
    before = {name: each.clone() for name, each in model.state_dict().items()}
    settings = TrainSettings(**{**vars(QUICK), "steps": 6})
    fine_tune(model, expert, [Part("all", encoded, 1.0)], settings, work=tmp_path)
    thaw(model)
    tables = ("decoder.model.embed_tokens.weight", "decoder.lm_head.weight")
    for name, each in model.state_dict().items():
        if name not in tables:
            assert torch.equal(each, before[name]) == (not name.startswith("bridges")), name
        else:
            changed = (each != before[name]).any(1).nonzero().flatten().tolist()
            assert changed
            assert set(changed) <= {*model.config.square_ids, *model.config.piece_ids}


def test_another_expert_is_refused(new_model, encoded, encoder, tmp_path):
    mixture = [Part("all", encoded, 1.0)]
    with pytest.raises(ExpertMismatchError, match="bridge_states"):
        fine_tune(new_model(), Expert(encoder, (0, 1), 0), mixture, QUICK, work=tmp_path)
    model = new_model()
    model.config.encoder_digest = "0" * 64
    with pytest.raises(ExpertMismatchError, match="encoder_digest"):
        fine_tune(model, Expert(encoder, (1, 2), 0), mixture, QUICK, work=tmp_path)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_under_bf16_autocast_is_that_of_float32(causal):
    torch.manual_seed(0)
    query, keys, values = (torch.randn(2, 3, 9, 8, dtype=torch.bfloat16) for _ in range(3))
    exact = F.scaled_dot_product_attention(
        query.float(), keys.float(), values.float(), is_causal=causal
    )
    with torch.autocast("cpu", torch.bfloat16), Float32Attention():
        given = F.scaled_dot_product_attention(query, keys, values, is_causal=causal)
        product = query[0, 0] @ keys[0, 0].T
    assert torch.equal(given, exact)
    assert product.dtype == torch.bfloat16


def test_length_grouping_sorts_inside_a_batch(encoded, expert):
    task = a_task(encoded, expert)
    for step in range(4):
        assert all(a <= b for a, b in pairwise(task.batch(step).lengths.tolist()))
