"""Muon beside AdamW: what each takes, that it learns, and that it goes on where it stopped."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from halting import HaltError, halt_at
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import distributed as dist
from torch.multiprocessing import spawn
from training_tiny import SYMBOLS, Chain, TinyNet, digest, tiny_settings

from queen.training.backend import TorchBackend, plain_groups, trained
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
    with pytest.raises(SettingsError, match=r"train\.optimizer"):
        Optimizers(plain_groups(model, settings), settings)
    pytest.importorskip("deepspeed")
    settings = tiny_settings(5, optimizer="muon", backend="deepspeed")
    with pytest.raises(SettingsError, match=r"train\.optimizer"):
        train(model, Chain(), settings, work=tmp_path)


def few_steps(rank, ranks, folder):
    """Three steps of one rank, each giving its share of the gradients; its end as a file."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store-{ranks}"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    model, settings, task = TinyNet(), tiny_settings(5, optimizer="muon"), Chain()
    backend = TorchBackend(model, task.groups(model, settings), settings)
    for step in range(3):
        torch.manual_seed(step)
        batch = task.batch(step)
        backend.backward(partial(task.loss, model, batch), batch.weight * ranks)
        backend.step(1.0)
    owned = list(backend.optimizer.owners.values()).count(rank)
    end = {**backend.model_tensors(), **backend.optimizer_tensors()}
    save_file(end, folder / f"{ranks}-{rank}.safetensors", {"owned": str(owned)})
    dist.destroy_process_group()


def test_ranks_share_muons_matrices_and_all_end_with_the_same_bits(tmp_path):
    """Alone, by two ranks, and by four of which two have no matrix to move."""
    ends, owned = {}, {}
    for ranks in (1, 2, 4):  # powers of two: gradients divided and added up lose no bit
        spawn(few_steps, (ranks, tmp_path), nprocs=ranks)
        files = [tmp_path / f"{ranks}-{rank}.safetensors" for rank in range(ranks)]
        ends[ranks] = [load_file(path) for path in files]
        owned[ranks] = [int(safe_open(path, "pt").metadata()["owned"]) for path in files]
    assert owned == {1: [2], 2: [1, 1], 4: [1, 1, 0, 0]}
    (alone,) = ends[1]
    assert alone["momentum_buffer/inner.0.weight"].abs().max() > 0
    for end in (*ends[2], *ends[4]):
        assert end.keys() == alone.keys()
        assert all(torch.equal(value, alone[name]) for name, value in end.items())
