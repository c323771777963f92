"""Counts against what was counted by hand, estimates against what torch does with small models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, SmolLM3Config

from queen.networks.build import EncoderInfo, queen_config
from queen.networks.counts import CHESS_TOKENS, Counts, count, grown_vocabulary
from queen.networks.queen import QueenModel, freeze
from queen.networks.settings import BridgeSettings
from queen.training.budget import (
    SQUARES,
    Device,
    activations,
    compute_seconds,
    decode_seconds,
    forward_flops,
    memory,
    train_flops,
)

STATES, STATE = 5, 48
BT5 = EncoderInfo("bt5", "", 16, 1024)
PAPER = BridgeSettings(tuple(range(16)), tuple(range(0, 32, 2)), 0, 16, 2, False, 0)
BRIDGE = BridgeSettings((0, 2, 4), (0, 2, 3), 0, 4, 2, True, 40)
INFO = EncoderInfo("small", "", STATES, STATE)
VOCABULARY = 512 + CHESS_TOKENS


def smollm3() -> SmolLM3Config:
    return SmolLM3Config()


def small() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=512, hidden_size=96, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=256, tie_word_embeddings=True,
    )  # fmt: skip


def counted(frozen: tuple[str, ...] = ()) -> Counts:
    return count(small(), VOCABULARY, BRIDGE, INFO, {"pawn": frozen})


def built(frozen: tuple[str, ...] = ()) -> QueenModel:
    torch.manual_seed(0)
    config = small()
    config.vocab_size = VOCABULARY
    bridge = BridgeSettings(**{**vars(BRIDGE), "gate_init": 0.5})
    model = QueenModel(queen_config(config, bridge, grown_vocabulary(VOCABULARY), INFO))
    freeze(model, frozen)
    return model.train()


def read(rows: int, length: int) -> tuple[Tensor, list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (rows, length), generator=generator)
    return ids, [torch.randn(rows, SQUARES, STATE, generator=generator) for _ in range(3)]


def test_the_papers_model_has_the_papers_counts() -> None:
    frozen = {"pawn": ("decoder",), "mini": ()}
    found = count(smollm3(), 128_256 + CHESS_TOKENS, PAPER, BT5, frozen)
    assert found.decoder == 3_075_098_624 + 76 * 2048
    assert found.bridge == pytest.approx(469.8e6, abs=0.05e6)
    assert found.additions == 0
    assert found.trained["pawn"] == found.bridge + 76 * 2048
    assert found.trained["mini"] == found.total
    assert found.tied


def test_the_additions_are_counted_apart() -> None:
    bridge = BridgeSettings(**{**vars(PAPER), "tied_keys": True, "state_mlp": 1024})
    found = count(smollm3(), 128_256 + CHESS_TOKENS, bridge, BT5, {})
    assert found.bridge == pytest.approx(469.8e6, abs=0.05e6)
    assert found.tied_keys == 16 * (2048 * 2048 + 64 * 2048)  # 67 M and the values' positions
    assert found.state_mlp == 16 * (2 * 1024 * 1024 + 1024 + 1024)  # 34 M
    assert found.total == found.decoder + found.bridge + found.tied_keys + found.state_mlp
    ours = BridgeSettings(**{**vars(bridge), "tied_values": True, "side_to_move": True})
    more = count(smollm3(), 128_256 + CHESS_TOKENS, ours, BT5, {})
    assert (more.bridge, more.state_mlp) == (found.bridge, found.state_mlp)
    assert (more.tied_keys, more.tied_values) == (16 * 2048 * 2048, 16 * 2048 * 2048)
    assert more.side_to_move == 16 * 1024


def test_a_bridges_count_is_that_of_its_matrices() -> None:
    found, wide, inner = counted(), 96, 96
    plain = 2 * wide * inner + 2 * STATE * inner + 4 * wide * wide
    norms = 2 * wide + STATE + 2  # and two gates
    assert found.bridge == 3 * (plain + norms)
    assert found.readers == 3 * (2 * STATE * inner + STATE) + found.state_mlp
    layer = 2 * wide * wide + 2 * wide * 48 + 3 * wide * 256 + 2 * wide
    assert found.decoder == VOCABULARY * wide + 4 * layer + wide


@pytest.mark.parametrize("frozen", [(), ("decoder",), ("decoder", "chess_tokens"), ("bridge",)])
def test_counting_without_weights_agrees_with_a_model_that_is_built(
    frozen: tuple[str, ...],
) -> None:
    found, model = counted(frozen), built(frozen)
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    assert found.trained["pawn"] == trained
    freeze(model, ())
    assert found.total == sum(each.numel() for each in model.parameters())


def test_each_stage_of_zero_shares_one_part_more() -> None:
    found, devices = counted(("decoder",)), 4
    trained, encoder = found.trained["pawn"], 1000
    plain = (2 * (found.total + encoder), 2 * trained, 12 * trained)
    held = [memory(found, trained, encoder, zero, devices) for zero in range(4)]
    parts = [(each.weights, each.gradients, each.optimizer) for each in held]
    assert parts[0] == plain
    assert parts[1] == (*plain[:2], plain[2] / devices)
    assert parts[2] == (plain[0], plain[1] / devices, plain[2] / devices)
    assert parts[3] == (2 * (found.total / devices + encoder), *(p / devices for p in plain[1:]))
    totals = [each.total for each in held]
    assert all(after < before for before, after in itertools.pairwise(totals))
    assert memory(found, trained, encoder, 3, 1) == memory(found, trained, encoder, 0, 1)


@contextmanager
def kept(model: QueenModel) -> Iterator[dict[int, int]]:
    """Bytes of each storage that autograd keeps inside, the model's own left out."""
    own = {each.untyped_storage().data_ptr() for each in model.parameters()}
    found: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        yield found


def test_activations_are_about_what_autograd_keeps() -> None:
    rows, length = 4, 64
    model = built().to(torch.bfloat16)
    ids, states = read(rows, length)
    with kept(model) as held:
        model(ids, [each.to(torch.bfloat16) for each in states], logits_to_keep=1).sum()
    wanted = activations(counted(), rows * length, rows, checkpointing=False)
    assert sum(held.values()) == pytest.approx(wanted, rel=0.25)


def test_checkpointing_keeps_less_and_targets_cost_their_logits() -> None:
    found = counted()
    plain, less = (activations(found, 1000, 0, checkpointing=on) for on in (False, True))
    assert less < plain / 2
    more = activations(found, 1000, 100, checkpointing=True)
    assert more - less == 100 * 10 * VOCABULARY


def flops(model: QueenModel, rows: int, length: int, *, backward: bool) -> float:
    """Operations of a pass; attention by plain products, for others are not counted on a CPU."""
    ids, states = read(rows, length)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        logits: Any = model(ids, states)
        if backward:
            logits.float().square().mean().backward()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("frozen", [(), ("decoder",)])
def test_operations_are_about_what_torch_counts(frozen: tuple[str, ...]) -> None:
    rows, length = 2, 64
    found, model = counted(frozen), built(frozen)
    tokens = rows * length
    masked = tokens * 2 * found.layers * found.heads_width * length  # which plain products compute
    once = 2 * SQUARES * found.tied_keys  # for the whole batch
    forward = tokens * forward_flops(found, length) + rows * 2.0 * SQUARES * found.readers
    counted_forward = flops(model, rows, length, backward=False)
    assert counted_forward == pytest.approx(forward + masked + once, rel=0.02)
    trained = found.trained["pawn"]
    whole = train_flops(found, trained, 0, tokens, rows, length, checkpointing=False)
    counted_whole = flops(model, rows, length, backward=True)
    assert counted_whole == pytest.approx(whole + 3 * (masked + once), rel=0.08)


def test_checkpointing_computes_the_forward_pass_again() -> None:
    found = counted()
    cost = [
        train_flops(found, found.total, 0, 100.0, 0.0, 50.0, checkpointing=on)
        for on in (False, True)
    ]
    assert cost[1] - cost[0] == pytest.approx(100 * forward_flops(found, 50))


def test_decoding_is_bound_by_reading_when_few_and_by_computing_when_many() -> None:
    found, device = counted(), Device("a device", tflops=1e-3, bandwidth_gb=1.0, memory_gb=1.0)
    one = decode_seconds(found, device, 1.0, 1, 1000, 50)
    assert one == pytest.approx(1000 * 2 * found.total / 1e9, rel=0.2)
    many = decode_seconds(found, device, 1.0, 4096, 4096, 50)
    assert many == pytest.approx(compute_seconds(4096 * forward_flops(found, 50), device, 1.0))
    assert decode_seconds(found, device, 0.25, 1, 1000, 50) == pytest.approx(4 * one)
