from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from queen_parts import SIZE, queen, queen_of, states, tokens
from torch import Tensor

from queen.networks.digest import weights_digest
from queen.networks.freezing import HEAD_ROWS, ROWS, freeze, parameter_groups, thaw
from queen.networks.queen import QueenModel


def test_groups_cover_what_is_trainable_once() -> None:
    model = queen()
    groups = {group["name"]: group for group in parameter_groups(model, 1e-3, 10, 0.1)}
    counted = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(counted) == sorted(id(parameter) for parameter in model.parameters())
    assert groups["gates"]["lr"] == pytest.approx(1e-2)
    assert groups["gates"]["weight_decay"] == groups["plain"]["weight_decay"] == 0
    assert groups["matrices"]["weight_decay"] == 0.1
    assert len(groups["gates"]["params"]) == 2 * len(model.blocks)


def train_once(model: QueenModel) -> set[str]:
    """Names in the state dict that one step of AdamW moves."""
    before = {name: each.clone() for name, each in model.state_dict().items()}
    optimizer = torch.optim.AdamW(parameter_groups(model, 1e-2, 10, 0.1))
    model(tokens(2, 6), states(2)).square().mean().backward()
    optimizer.step()
    model.zero_grad()
    after = model.state_dict()
    return {name for name, old in before.items() if not torch.equal(old, after[name])}


def chess_rows(model: QueenModel) -> set[int]:
    return {*model.config.square_ids, *model.config.piece_ids}


def moved_rows(before: Tensor, after: Tensor) -> set[int]:
    return set((before != after).any(1).nonzero()[:, 0].tolist())


def test_what_is_frozen_stays() -> None:
    model = queen(gate=0.3)
    freeze(model, ["decoder", "chess_tokens"])
    assert {name.split(".")[0] for name in train_once(model)} == {"bridges"}
    freeze(model, ["bridge"])
    moved = train_once(model)
    assert moved
    assert {name.split(".")[0] for name in moved} == {"decoder"}


@pytest.mark.parametrize("frozen", [["decoder"], ["chess_tokens"]])
def test_chess_tokens_and_the_rest_freeze_apart(frozen: list[str]) -> None:
    model = queen(gate=0.3)
    freeze(model, frozen)
    before = model.get_input_embeddings().weight.detach().clone()
    moved_names = train_once(model)
    thaw(model)
    rows = moved_rows(before, model.get_input_embeddings().weight)
    others = set(range(SIZE)) - chess_rows(model)
    assert rows == (chess_rows(model) if frozen == ["decoder"] else others)
    layers_moved = any("layers" in name for name in moved_names)
    assert layers_moved is (frozen == ["chess_tokens"])
    train_once(model)
    assert (model.get_input_embeddings().weight != before).any(1).all()


@pytest.mark.parametrize("name", ["smollm3", "llama"])
def test_with_the_decoder_frozen_the_optimizer_holds_the_new_rows_and_no_table(name: str) -> None:
    model = queen_of(name, gate_init=0.3)
    tied = name == "smollm3"
    freeze(model, ["decoder"])
    held = [p for group in parameter_groups(model, 1e-3, 10, 0.1) for p in group["params"]]
    bridges = sum(p.numel() for p in model.bridges.parameters())
    width = model.config.decoder().hidden_size
    assert sum(p.numel() for p in held) == bridges + 76 * width * (1 if tied else 2)
    assert hasattr(model, HEAD_ROWS) is not tied
    assert not model.get_input_embeddings().weight.requires_grad


@pytest.mark.parametrize("name", ["smollm3", "llama", "gpt2"])
def test_rows_apart_give_the_logits_and_gradients_of_the_whole_table(name: str) -> None:
    whole = queen_of(name, gate_init=0.4)
    apart = copy.deepcopy(whole)
    freeze(apart, ["decoder"])
    ids, held = tokens(2, 9), states(2)
    logits = [model(ids, held) for model in (whole, apart)]
    assert torch.allclose(*logits, atol=1e-6)
    for each in logits:
        each.square().mean().backward()
    rows = sorted(chess_rows(whole))
    gradient = whole.get_input_embeddings().weight.grad[rows]
    assert torch.allclose(getattr(apart, ROWS).grad, gradient, atol=1e-6)
    assert apart.get_input_embeddings().weight.grad is None
    bridge = whole.blocks[0].out.weight.grad, apart.blocks[0].out.weight.grad
    assert torch.allclose(*bridge, atol=1e-6)


@pytest.mark.parametrize("name", ["smollm3", "llama"])
def test_what_was_learnt_apart_is_in_the_tables_after(name: str, tmp_path: Path) -> None:
    model, ids, held = queen_of(name, gate_init=0.3), tokens(2, 7), states(2)
    plain = set(model.state_dict())
    freeze(model, ["decoder"])
    assert model.frozen_parts == ("decoder",)
    for _ in range(3):
        train_once(model)
    with torch.no_grad():
        learnt = model(ids, held)
        model.save_pretrained(tmp_path / "meanwhile")
        thaw(model)
        assert torch.equal(model(ids, held), learnt)
        model.save_pretrained(tmp_path / "after")
        for folder in ("meanwhile", "after"):
            again = QueenModel.from_pretrained(tmp_path / folder).eval()
            assert torch.equal(again(ids, held), learnt)
            assert weights_digest(again) == weights_digest(model)
    assert set(model.state_dict()) == plain
    assert not hasattr(model, ROWS)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_copy_learns_rows_of_its_own() -> None:
    model = queen(gate=0.3)
    freeze(model, ["decoder"])
    twin = copy.deepcopy(model)
    train_once(twin)
    with torch.no_grad():
        assert not torch.equal(model(tokens(1, 5), states(1)), twin(tokens(1, 5), states(1)))
    thaw(model)
    thaw(twin)
    tables = model.get_input_embeddings().weight, twin.get_input_embeddings().weight
    assert moved_rows(*tables) == chess_rows(model)


def test_rows_apart_train_under_autocast() -> None:
    model = queen(gate=0.3)
    freeze(model, ["decoder"])
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(tokens(2, 6), states(2)).float().square().mean()
    loss.backward()
    assert torch.isfinite(getattr(model, ROWS).grad).all()
    assert getattr(model, ROWS).grad.abs().sum() > 0
