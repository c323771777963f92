from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from queen.networks.bridge import Bridge, BridgeShape, initialise, route
from queen.networks.errors import NetworkError

SHAPE = BridgeShape(hidden=32, state=16, width=24, heads=3, ffn=64, tied_keys=True, state_mlp=20)


def bridge(seed: int = 0, **changes: object) -> Bridge:
    made = Bridge(replace(SHAPE, **changes))  # type: ignore[arg-type]
    initialise(made, torch.Generator().manual_seed(seed))
    return made.eval()


def inputs(positions: int, rows: int, length: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(rows, length, 32, generator=generator),
        torch.randn(positions, 64, 16, generator=generator),
        torch.randn(64, 32, generator=generator),
    )


def test_with_gates_at_zero_the_input_passes_unchanged() -> None:
    hidden, states, squares = inputs(2, 2, 5)
    block = bridge()
    for dtype in (torch.float32, torch.bfloat16):
        block = block.to(dtype)
        context = block.read(states.to(dtype), squares.to(dtype))
        assert torch.equal(block(hidden.to(dtype), context), hidden.to(dtype))


def test_gates_at_zero_learn_and_hold_back_the_rest() -> None:
    hidden, states, squares = inputs(2, 2, 5)
    block = bridge()
    block(hidden, block.read(states, squares)).square().sum().backward()
    assert block.attention_gate.grad is not None
    assert block.attention_gate.grad.abs().item() > 0
    assert block.ffn_gate.grad is not None
    assert block.ffn_gate.grad.abs().item() > 0
    assert block.out.weight.grad is not None
    assert block.out.weight.grad.abs().max().item() == 0


def test_open_gates_compute_the_published_block() -> None:
    hidden, states, squares = inputs(2, 2, 5)
    block = bridge(gate_init=0.6, tied_keys=False, state_mlp=0)
    got = block(hidden, block.read(states, squares))

    def rms(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    normed = torch.nn.functional.layer_norm(states, (16,), block.reader.norm.weight)
    query = rms(hidden, block.norm.weight) @ block.query.weight.T
    keys, values = normed @ block.reader.keys.weight.T, normed @ block.reader.values.weight.T
    read = torch.zeros_like(query)
    for head in range(3):
        part = slice(8 * head, 8 * head + 8)
        weights = (query[..., part] @ keys[..., part].transpose(1, 2) / 8**0.5).softmax(-1)
        read[..., part] = weights @ values[..., part]
    gate = torch.tanh(torch.tensor(0.6))
    middle = hidden + gate * (read @ block.out.weight.T)
    inner = torch.nn.functional.gelu(rms(middle, block.ffn_norm.weight) @ block.up.weight.T)
    assert torch.allclose(got, middle + gate * (inner @ block.down.weight.T), atol=1e-5)


def test_a_square_token_finds_its_square_before_anything_is_learnt() -> None:
    _, states, _ = inputs(1, 1, 1)
    squares = torch.randn(64, 128, generator=torch.Generator().manual_seed(2))
    block = bridge(hidden=128, width=120)
    with torch.no_grad():
        keys = block.read(states, squares).keys[0].transpose(0, 1).flatten(1)
        query = block.query(block.norm(squares))
    found = (query @ keys.T).argmax(1)
    assert torch.equal(found, torch.arange(64))


def test_untied_keys_do_not_depend_on_the_square_tokens() -> None:
    _, states, squares = inputs(1, 1, 1)
    for tied in (True, False):
        block = bridge(tied_keys=tied)
        same = torch.equal(block.read(states, squares).keys, block.read(states, -squares).keys)
        assert same is not tied


def test_a_position_is_read_by_its_own_row_alone() -> None:
    hidden, states, squares = inputs(3, 3, 4)
    block = bridge(gate_init=0.8)
    changed = states.clone()
    changed[1] = states[1].flip(1)
    before = block(hidden, block.read(states, squares))
    after = block(hidden, block.read(changed, squares))
    assert torch.equal(before[[0, 2]], after[[0, 2]])
    assert not torch.allclose(before[1], after[1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), min_size=6, max_size=6), min_size=1, max_size=3))
def test_packed_tokens_read_as_if_each_stood_alone(rows: list[list[int]]) -> None:
    hidden, states, squares = inputs(4, len(rows), 6)
    block = bridge(gate_init=0.5)
    context = block.read(states, squares)
    with torch.no_grad():
        packed = block(hidden, context, route(torch.tensor(rows), 4))
        for b, row in enumerate(rows):
            for t, position in enumerate(row):
                one = hidden[b : b + 1, t : t + 1]
                if position < 0:
                    normed = block.ffn_norm(one)
                    inner = block.down(torch.nn.functional.gelu(block.up(normed)))
                    alone = one + torch.tanh(block.ffn_gate) * inner
                else:
                    own = type(context)(*(part[position : position + 1] for part in context))
                    alone = block(one, own)
                assert torch.allclose(packed[b, t], alone[0, 0], atol=1e-5)


def test_tied_values_say_a_square_by_its_token() -> None:
    _, states, squares = inputs(2, 1, 1)
    block = bridge(tied_values=True)
    with torch.no_grad():
        block.reader.values.weight.zero_()
    values = block.read(states, squares).values.transpose(1, 2).flatten(2)
    assert block.square_value is not None
    said = block.square_value(block.norm(squares))
    assert torch.allclose(values, said.expand_as(values))
    changed = block.read(states, squares.flip(0)).values.transpose(1, 2).flatten(2)
    assert torch.allclose(changed, values.flip(1))


def test_the_side_to_move_is_a_vector_with_its_sign() -> None:
    _, states, squares = inputs(2, 1, 1)
    block = bridge(side_to_move=True, state_mlp=0)
    side = torch.ones(2, 64, 1)
    white = block.read(torch.cat([states, side], -1), squares).values
    black = block.read(torch.cat([states, -side], -1), squares).values
    assert block.reader.side is not None
    moved = block.reader.values(2 * block.reader.side).view(3, 1, 8).expand(3, 64, 8)
    assert torch.allclose(white - black, moved.expand_as(white), atol=1e-5)
    with pytest.raises(NetworkError, match="who is to move"):
        block.read(states, squares)
    without = bridge(state_mlp=0)
    assert torch.equal(without.read(torch.cat([states, side], -1), squares).keys,
                       without.read(states, squares).keys)  # fmt: skip
