"""Packed sequences: the same loss and gradients as padded ones, and no leak between neighbours."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.networks.build import BridgeSettings, DecoderSettings, EncoderInfo, build_queen
from queen.networks.errors import NetworkError
from queen.networks.llama import trains_packed
from queen.networks.packed import Packed, packed_attention
from queen.training import packing
from queen.training.curriculum import question_examples
from queen.training.examples import Example, Turn, encode_examples
from queen.training.loop import TrainSettings
from queen.training.packing import pack_batch, packed_logits
from queen.training.sampling import BatchPlan, Share
from queen.training.sft import Part, QueenTask, fine_tune, make_batch, target_logits
from queen.training.states import PositionStates

CPU = torch.device("cpu")


@pytest.fixture(params=["few calls", "any decoder"])
def way(request, monkeypatch):
    """The two ways to compute a packed row: a Llama's in few calls, and the model's own forward."""
    if request.param == "any decoder":
        monkeypatch.setattr(packing, "trains_packed", lambda model: False)
    return request.param


@pytest.fixture(scope="module")
def encoded(questions, tokenizer):
    """One to three questions to a sequence; several sequences about the same position."""
    sets = [question_examples(questions, turns=turns, seed=turns) for turns in (1, 2, 3)]
    return encode_examples([each for group in sets for each in group], tokenizer, 256)


def a_task(encoded, expert, packing):
    plan = BatchPlan([Share("all", encoded.lengths, 1.0)], 12, 60, 0)
    states = PositionStates(expert, encoded.positions, 10**6, 64) if expert else None
    return QueenTask(encoded, plan, states, pad=0, packing=packing)


def gradients(model, task, size):
    batch = task.batch(3)
    loss = sum(task.loss(model, part) for part in batch.split(size))
    loss.backward()
    found = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    return loss.item() / batch.weight, found


@pytest.mark.parametrize("with_expert", [True, False])
@pytest.mark.parametrize("size", [12, 5])
def test_the_packed_loss_and_its_gradients_are_the_padded_ones(
    new_model, encoded, expert, with_expert, size, way
):
    assert trains_packed(new_model())
    given_expert = expert if with_expert else None
    padded = gradients(new_model(gate=0.7), a_task(encoded, given_expert, False), size)
    packed = gradients(new_model(gate=0.7), a_task(encoded, given_expert, True), size)
    assert packed[0] == pytest.approx(padded[0], abs=1e-5)
    assert packed[1].keys() == padded[1].keys()
    for name, wanted in padded[1].items():
        assert torch.allclose(packed[1][name], wanted, atol=2e-5, rtol=1e-3), name


def test_a_sequence_says_the_same_whatever_stands_beside_it(new_model, encoded, expert, way):
    model = new_model(gate=0.7)
    states = PositionStates(expert, encoded.positions, 10**6, 64)
    alone, _ = packed_logits(model, pack_batch(encoded, np.array([7])), states)
    before = np.array([3, 90, 7])
    after = np.array([7, 41])
    first, _ = packed_logits(model, pack_batch(encoded, after), states)
    last, _ = packed_logits(model, pack_batch(encoded, before), states)
    assert torch.allclose(first[: len(alone)], alone, atol=1e-5)
    assert torch.allclose(last[-len(alone) :], alone, atol=1e-5)


def test_that_comparison_would_see_a_leak(new_model, encoded, expert):
    """One row of two sequences taken for one sequence: what a leak looks like."""
    model = new_model(gate=0.7)
    batch = pack_batch(encoded, np.array([3, 7]))
    ids = batch.ids[None]
    apart = model.packed(ids, Packed(tuple(batch.lengths.tolist()), (0, 0)))
    together = model.packed(ids, Packed((batch.tokens,), (0,)))
    length = int(batch.lengths[0])
    assert torch.allclose(together[0, :length], apart[0, :length], atol=1e-5)
    assert (together[0, length:] - apart[0, length:]).abs().max() > 1e-3


def test_shared_key_heads_and_layers_that_do_not_turn(tokenizer, encoded, expert, way):
    model = build_queen(
        DecoderSettings(width=32, layers=4, heads=4, kv_heads=2, ffn=64, max_length=256),
        BridgeSettings(states=expert.wanted, layers=(0, 2), heads=2, state_mlp=32, gate_init=0.5),
        tokenizer,
        EncoderInfo("random", expert.digest, 3, expert.encoder.width),
        seed=1,
    )
    turning = [bool(layer.self_attn.use_rope) for layer in model.decoder.model.layers]
    assert turning == [True, True, True, False]
    padded = gradients(copy.deepcopy(model), a_task(encoded, expert, False), 12)
    packed = gradients(model, a_task(encoded, expert, True), 12)
    assert packed[0] == pytest.approx(padded[0], abs=1e-5)
    for name, wanted in padded[1].items():
        assert torch.allclose(packed[1][name], wanted, atol=2e-5, rtol=1e-3), name


def test_bf16_is_float32_up_to_its_own_rounding(new_model, encoded, expert, way):
    model, task = new_model(gate=0.7), a_task(encoded, expert, True)
    batch = task.batch(3)
    exact = task.loss(model, batch).item() / batch.weight
    with torch.autocast("cpu", torch.bfloat16):
        rounded = task.loss(model, batch)
    assert rounded.dtype == torch.float32
    assert rounded.item() != exact * batch.weight
    assert rounded.item() / batch.weight == pytest.approx(exact, abs=0.01)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 60))
def test_a_level_row_holds_every_token_in_order_and_little_else(lengths, worth):
    lengths = np.array(lengths)
    laid = packing.level(lengths, worth)
    assert sorted(laid.order.tolist()) == list(range(len(lengths)))
    assert (laid.lengths >= lengths[laid.order]).all()
    assert len(laid.sources) == laid.lengths.sum() + laid.tail
    assert len(laid.sources) % 32 == 0
    assert laid.tail < 32
    assert laid.sources[laid.places].tolist() == list(range(lengths.sum()))
    ends = np.cumsum(laid.lengths)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    for number, (end, length) in enumerate(zip(ends, laid.lengths, strict=True)):
        sources = laid.sources[end - length : end]
        assert (owner[sources] == laid.order[number]).all()
        assert (np.diff(sources[: lengths[laid.order[number]]]) == 1).all()
    alone = len(set(lengths.tolist())) * worth
    runs = len(Packed(tuple(laid.lengths.tolist()), ()).runs)
    assert laid.lengths.sum() - lengths.sum() + runs * worth <= alone


def test_each_position_is_read_once_however_many_sequences_ask(new_model, encoded, expert):
    states = PositionStates(expert, encoded.positions, 1, 0)
    assert not states.tabled
    same = np.flatnonzero(encoded.position_of == encoded.position_of[0])[:3]
    other = np.flatnonzero(encoded.position_of != encoded.position_of[0])[:2]
    before = states.expert.calls
    packed_logits(new_model(), pack_batch(encoded, np.concatenate([same, other])), states)
    positions = len(np.unique(encoded.position_of[np.concatenate([same, other])]))
    assert states.expert.calls - before == positions < len(same) + len(other)


def test_prompts_are_masked(new_model, encoded, expert):
    indices = np.array([4, 50, 9])
    batch, states = pack_batch(encoded, indices), PositionStates(expert, encoded.positions, 1, 0)
    _, wanted = packed_logits(new_model(), batch, states)
    answers = [
        encoded.tokens[encoded.offsets[i] : encoded.offsets[i + 1]][
            encoded.answers[encoded.offsets[i] : encoded.offsets[i + 1]]
        ]
        for i in indices
    ]
    assert wanted.tolist() == np.concatenate(answers).tolist()


def test_an_answer_at_the_very_beginning_has_nothing_to_predict_it(tokenizer, positions):
    bare = encode_examples([Example(positions[0], (Turn("", "ab"),))] * 2, tokenizer, 64)
    batch = pack_batch(bare, np.array([0, 1]))
    assert int(batch.targets.sum()) == len(bare.tokens) - 2


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_shares_and_micro_batches_are_the_batch_divided(encoded, data):
    indices = np.array(data.draw(st.lists(st.integers(0, 60), min_size=2, max_size=20)))
    ranks = data.draw(st.integers(1, len(indices)))
    size = data.draw(st.integers(1, 8))
    for whole in (pack_batch(encoded, indices), make_batch(encoded, indices, 0)):
        shares = [whole.share(rank, ranks) for rank in range(ranks)]
        parts = [part for share in shares for part in share.split(size)]
        assert sum(part.weight for part in parts) == pytest.approx(whole.weight)
        assert sum(part.tokens for part in parts) == whole.tokens
        assert sorted(x for p in parts for x in p.positions.tolist()) == sorted(
            whole.positions.tolist()
        )
        assert max(map(len, (s.lengths for s in shares))) - min(
            map(len, (s.lengths for s in shares))
        ) in (0, 1)


def test_a_part_of_a_packed_batch_is_those_sequences_packed(encoded):
    indices = np.array([5, 2, 30, 8, 11])
    part = pack_batch(encoded, indices).share(1, 2)
    wanted = pack_batch(encoded, indices[1::2])
    for name, tensor in wanted.tensors().items():
        assert torch.equal(part.tensors()[name], tensor), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_layers_computed_anew_give_the_same_training(
    new_model, encoded, expert, tmp_path, precision, way
):
    losses = {}
    for recompute in (False, True):
        model = new_model(gate=0.3)
        plan = TrainSettings(
            steps=4, batch_size=8, threads=1, precision=precision, packing=True,
            gradient_checkpointing=recompute, checkpoint_every_s=0,
        )  # fmt: skip
        work = tmp_path / str(recompute)
        result = fine_tune(model, expert, [Part("all", encoded, 1.0)], plan, work=work)
        losses[recompute] = result.losses
        assert model.decoder.config._attn_implementation == "sdpa"
        assert not any(getattr(m, "gradient_checkpointing", False) for m in model.modules())
    assert np.array_equal(losses[False], losses[True])


def test_padded_layers_computed_anew_in_bf16_are_as_before(new_model, encoded, expert, tmp_path):
    plan = {"steps": 2, "batch_size": 8, "threads": 1, "checkpoint_every_s": 0}
    losses = [
        fine_tune(
            new_model(gate=0.3), expert, [Part("all", encoded, 1.0)],
            TrainSettings(**plan, gradient_checkpointing=each), work=tmp_path / str(each),
        ).losses
        for each in (False, True)
    ]  # fmt: skip
    assert np.array_equal(*losses)


def test_attention_through_a_window_is_refused(new_model, encoded):
    model = new_model()
    with packed_attention(model.decoder):
        for layer in model.decoder.model.layers:
            layer.self_attn.sliding_window = 4
        batch = pack_batch(encoded, np.array([0, 1]))
        with pytest.raises(NetworkError, match="window of 4"):
            model.packed(batch.ids[None], Packed(tuple(batch.lengths.tolist()), (0, 0)))


def test_a_padded_forward_after_a_packed_one_is_unchanged(new_model, encoded, expert):
    model = new_model(gate=0.7)
    batch = make_batch(encoded, np.array([1, 2, 60]), 0)
    states = expert.states([encoded.positions[i] for i in batch.positions.tolist()])
    before, _ = target_logits(model, batch, states)
    packed_logits(
        model, pack_batch(encoded, np.array([4, 5])),
        PositionStates(expert, encoded.positions, 1, 0),
    )  # fmt: skip
    after, _ = target_logits(model, batch, states)
    assert torch.equal(before, after)
