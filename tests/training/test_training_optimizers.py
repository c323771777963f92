"""Muon beside AdamW: what each takes, that it learns, and that it goes on where it stopped."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from halting import HaltError, halt_at
from training_tiny import SYMBOLS, Chain, TinyNet, digest, tiny_settings

from queen.training.backend import plain_groups, trained
from queen.training.checkpoint import CheckpointError
from queen.training.loop import train
from queen.training.optimizers import Optimizers
from queen.training.settings import SettingsError

STEPS = 120


def test_muon_learns_and_goes_on_to_the_same_weights(tmp_path):
    settings = tiny_settings(STEPS, optimizer="muon", lr=0.05)
    whole, resumed = TinyNet(), TinyNet()
    result = train(whole, Chain(), settings, work=tmp_path / "whole")
    rows = Chain().rows
    entropy = -(rows * np.log(np.maximum(rows, 1e-12))).sum(1).mean()
    assert entropy - 0.1 < result.final_loss < entropy + 0.3
    with pytest.raises(HaltError):
        train(TinyNet(), Chain(), settings, work=tmp_path / "cut", progress=halt_at(57))
    second = train(resumed, Chain(), settings, work=tmp_path / "cut")
    assert second.resumed_from == 50
    assert digest(resumed) == digest(whole)
    adamw = TinyNet()
    train(adamw, Chain(), tiny_settings(STEPS, lr=0.05), work=tmp_path / "adamw")
    assert digest(adamw) != digest(whole)


def test_muon_steps_are_orthogonal_and_the_rest_is_adamw():
    model, reference = TinyNet(), TinyNet()
    settings = tiny_settings(5, optimizer="muon", weight_decay=0.0, muon_lr_factor=3.0)
    chain = Chain()
    matrices, vectors = chain.groups(model, settings)
    own = Optimizers([matrices, vectors], settings)
    plain = torch.optim.AdamW(plain_groups(reference, settings), betas=settings.betas)
    batch = chain.batch(0)
    before = {name: each.detach().clone() for name, each in trained(model).items()}
    for each in (model, reference):
        torch.manual_seed(3)
        chain.loss(each, batch).backward()
    own.step(1.0)
    plain.step()
    after, other = trained(model), trained(reference)
    moved = before["inner.0.weight"] - after["inner.0.weight"].detach()
    values = torch.linalg.svdvals(moved) / (3 * settings.lr * 0.2 * 24**0.5)
    assert ((values > 0.6) & (values < 1.3)).sum() == SYMBOLS - 1  # as near as five iterations come
    torch.testing.assert_close(after["norm.bias"], other["norm.bias"])
    kinds = {key.partition("/")[0] for key in own.tensors(after)}
    assert kinds == {"step", "exp_avg", "exp_avg_sq", "momentum_buffer"}


def test_a_momentum_of_another_shape_is_named(tmp_path):
    model = TinyNet()
    settings = tiny_settings(5, optimizer="muon")
    own = Optimizers(Chain().groups(model, settings), settings)
    saved = {"momentum_buffer/inner.0.weight": torch.zeros(3, 3)}
    with pytest.raises(CheckpointError, match=r"momentum_buffer/inner\.0\.weight"):
        own.restore(trained(model), saved, tmp_path / "optimizer.safetensors")


def test_muon_wants_named_matrices_and_torchs_backend(tmp_path):
    model = TinyNet()
    settings = tiny_settings(5, optimizer="muon")
    with pytest.raises(SettingsError, match=r"training\.optimizer"):
        Optimizers(plain_groups(model, settings), settings)
    pytest.importorskip("deepspeed")
    settings = tiny_settings(5, optimizer="muon", backend="deepspeed")
    with pytest.raises(SettingsError, match=r"training\.optimizer"):
        train(model, Chain(), settings, work=tmp_path)
