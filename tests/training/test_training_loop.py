"""The loop: it learns, resumes exactly, and fails with what is needed to go on."""

from __future__ import annotations

import itertools
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from halting import HaltError, halt_at
from safetensors.torch import load_file
from training_tiny import WIDTH, Chain, TinyNet, digest, tiny_settings

from queen.training import checkpoint as ck
from queen.training.loop import NotFiniteError, TrainSettings, train
from queen.training.progress import progress_line
from queen.training.settings import SettingsError

STEPS = 150


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A whole run: the model, the result, and its figures by step."""
    model, figures = TinyNet(), {}
    work = tmp_path_factory.mktemp("whole")
    result = train(model, Chain(), tiny_settings(STEPS), work=work, sink=figures.__setitem__)
    return model, result, figures, work


def test_it_learns_the_chain(uninterrupted):
    _, result, figures, _ = uninterrupted
    rows = Chain().rows
    entropy = -(rows * np.log(np.maximum(rows, 1e-12))).sum(1).mean()
    assert result.losses[0] > 2.3
    assert entropy - 0.1 < result.final_loss < entropy + 0.3
    assert result.tokens == STEPS * 32
    assert sorted(figures) == list(range(10, STEPS + 1, 10))
    told = {"loss", "grad_norm", "lr", "tokens_per_s", "memory_mb", "table_norm"}
    assert set(figures[10]) == told
    assert figures[20]["loss"] == pytest.approx(result.losses[10:20].mean())


@pytest.mark.parametrize("stop", [1, 10, STEPS - 1])
def test_a_stopped_run_ends_with_the_same_weights(uninterrupted, tmp_path, stop):
    model, result, figures, _ = uninterrupted

    with pytest.raises(HaltError):
        train(TinyNet(), Chain(), tiny_settings(STEPS), work=tmp_path, progress=halt_at(stop))
    torch.rand(7)
    resumed, again = TinyNet(), {}
    second = train(resumed, Chain(), tiny_settings(STEPS), work=tmp_path, sink=again.__setitem__)
    assert second.resumed_from == (stop - 1) // 10 * 10
    assert digest(resumed) == digest(model)
    assert np.array_equal(second.losses, result.losses)
    assert second.tokens == result.tokens
    for step, values in again.items():
        assert values["loss"] == figures[step]["loss"]
        assert values["grad_norm"] == figures[step]["grad_norm"]


def test_killed_at_random_it_ends_with_the_same_weights(uninterrupted, tmp_path):
    works = [tmp_path / str(number) for number in range(2)]
    command = [sys.executable, str(Path(__file__).with_name("training_tiny.py"))]
    for work in works:
        arguments = [*command, str(work), str(STEPS)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        last = random.randrange(15, STEPS - 20)
        for line in process.stdout:
            if int(line) >= last:
                break
        time.sleep(random.random() * 0.03)
        process.send_signal(signal.SIGKILL)
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
    for work in works:
        model = TinyNet()
        result = train(model, Chain(), tiny_settings(STEPS), work=work)
        assert 0 < result.resumed_from < STEPS
        assert digest(model) == digest(uninterrupted[0])


def test_a_finished_run_is_read_and_not_run_again(uninterrupted, tmp_path):
    model, result, _, work = uninterrupted
    shutil.copytree(work, tmp_path / "copy")
    again = TinyNet()
    second = train(again, Chain(), tiny_settings(STEPS), work=tmp_path / "copy")
    assert second.resumed_from == STEPS
    assert digest(again) == digest(model)
    assert np.array_equal(second.losses, result.losses)


def test_what_does_not_touch_the_weights_may_change_on_resume(uninterrupted, tmp_path):
    shutil.copytree(uninterrupted[3], tmp_path / "copy")
    other = {"log_every": 7, "checkpoint_every": 0, "checkpoint_every_s": 3.0, "threads": 2}
    result = train(TinyNet(), Chain(), tiny_settings(STEPS, **other), work=tmp_path / "copy")
    assert result.resumed_from == STEPS


def test_checkpoints_by_time(tmp_path):
    seen = []

    def look(done, total, note=""):
        seen.append(sorted(each.name for each in tmp_path.iterdir()))

    settings = tiny_settings(4, checkpoint_every=0, checkpoint_every_s=1e-6)
    train(TinyNet(), Chain(), settings, work=tmp_path, progress=look)
    assert seen == [[], *([f"checkpoint-{step:09d}"] for step in (1, 2, 3))]


def test_micro_batches_change_rounding_only(tmp_path):
    ends = []
    for micro in (0, 7):
        model = TinyNet()
        model.inner[2].p, model.norm = 0.0, torch.nn.Identity()
        settings = tiny_settings(30, micro_batch=micro)
        ends.append(train(model, Chain(), settings, work=tmp_path / str(micro)).losses)
    assert np.allclose(*ends, rtol=1e-4)


def test_frozen_parameters_and_tied_ones_stay_so(uninterrupted):
    model, _, _, work = uninterrupted
    assert torch.equal(model.frozen.weight, TinyNet().frozen.weight)
    assert model.head.weight is model.table.weight
    saved = load_file(work / f"checkpoint-{STEPS:09d}" / "model.safetensors")
    assert "frozen.weight" not in saved
    assert "head.weight" not in saved
    assert {"table.weight", "norm.running_mean", "norm.num_batches_tracked"} <= set(saved)


def test_a_loss_that_is_not_finite_stops_with_its_batch(tmp_path):
    model = TinyNet()
    with pytest.raises(NotFiniteError, match="loss is nan at step 23") as caught:
        train(model, Chain(poison=23), tiny_settings(50), work=tmp_path)
    saved = load_file(caught.value.where)
    assert torch.equal(saved["after"], Chain().batch(23).after)
    whole = ck.latest(tmp_path)
    assert whole is not None
    assert whole.step == 20
    fixed = TinyNet()
    train(fixed, Chain(), tiny_settings(50), work=tmp_path)
    straight = TinyNet()
    train(straight, Chain(), tiny_settings(50), work=tmp_path / "straight")
    assert digest(fixed) == digest(straight)


def test_a_gradient_that_is_not_finite_changes_no_weight(tmp_path):
    model = TinyNet()
    before = model.table.weight.detach().clone()

    class Steep(Chain):
        def loss(self, model, batch):
            return super().loss(model, batch) + model.table.weight.sub(before).abs().sqrt().sum()

    with pytest.raises(NotFiniteError, match="gradient norm"):
        train(model, Steep(), tiny_settings(5), work=tmp_path)
    assert torch.equal(model.table.weight, before)


def test_a_full_disk_leaves_the_last_checkpoint_whole(tmp_path):
    train(TinyNet(), Chain(), tiny_settings(20), work=tmp_path)
    kept = ck.latest(tmp_path)
    assert kept is not None
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limits[1]))
    try:
        with pytest.raises(ck.CheckpointError, match="could not be written") as caught:
            ck.save(tmp_path, ck.Checkpoint(30, kept.model, kept.optimizer, {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "free space" in caught.value.remedy
    after = ck.latest(tmp_path)
    assert after is not None
    assert after.step == 20
    assert [each.name for each in tmp_path.iterdir()] == ["checkpoint-000000020"]


def test_another_shape_is_named_with_file_and_tensor(tmp_path):
    train(TinyNet(), Chain(), tiny_settings(10), work=tmp_path)
    with pytest.raises(ck.CheckpointError) as caught:
        train(TinyNet(WIDTH * 2), Chain(), tiny_settings(10), work=tmp_path)
    assert "inner.0.bias" in caught.value.what
    assert f"({WIDTH},)" in caught.value.what
    assert caught.value.where.endswith("model.safetensors")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"settings": tiny_settings(10, lr=0.5)}, r"training\.lr \(was 0\.01, now 0\.5\)"),
        ({"task": Chain(name="other")}, "training data"),
        ({"model": TinyNet(seed=1)}, "model at the start"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, named):
    same = {"model": TinyNet(), "task": Chain(), "settings": tiny_settings(10)}
    train(*same.values(), work=tmp_path)
    with pytest.raises(ck.CheckpointError, match=named):
        train(*{**same, "model": TinyNet(), **change}.values(), work=tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_is_named(tmp_path, name):
    train(TinyNet(), Chain(), tiny_settings(10), work=tmp_path)
    path = tmp_path / "checkpoint-000000010" / name
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ck.CheckpointError) as caught:
        train(TinyNet(), Chain(), tiny_settings(10), work=tmp_path)
    assert caught.value.where == str(path)


def test_what_was_left_half_written_is_not_taken_for_whole(tmp_path):
    train(TinyNet(), Chain(), tiny_settings(10), work=tmp_path)
    shutil.copytree(
        tmp_path / "checkpoint-000000010", tmp_path / ".unfinished-checkpoint-000000020"
    )
    found = ck.latest(tmp_path)
    assert found is not None
    assert found.step == 10
    assert len(list(tmp_path.iterdir())) == 1


def test_threads_and_determinism_are_given_back(tmp_path):
    before = torch.get_num_threads()
    train(TinyNet(), Chain(), tiny_settings(2, threads=before + 1), work=tmp_path)
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_weights_in_bf16_need_deepspeed(tmp_path):
    with pytest.raises(SettingsError, match="float32"):
        train(TinyNet(), Chain(), tiny_settings(2, precision="bf16_weights"), work=tmp_path)


def test_a_network_that_cannot_recompute_its_layers_says_so(tmp_path):
    with pytest.raises(SettingsError, match="gradient_checkpointing"):
        train(TinyNet(), Chain(), tiny_settings(2, gradient_checkpointing=True), work=tmp_path)


def test_the_share_of_the_peak_is_told_where_the_peak_is_known(tmp_path):
    class Costly(Chain):
        def flops(self, model, batch):
            return 1e6 * batch.tokens

    figures, notes = {}, []
    train(
        TinyNet(), Costly(), tiny_settings(20, peak_tflops=0.5), work=tmp_path,
        sink=figures.__setitem__, progress=lambda done, total, note="": notes.append(note),
    )  # fmt: skip
    for values in figures.values():
        assert values["mfu"] == pytest.approx(values["tokens_per_s"] * 1e6 / 0.5e12)
    assert "MFU" in notes[-1]


@pytest.mark.parametrize(
    "wrong",
    [{"steps": 0}, {"schedule": "step"}, {"precision": "fp8"}, {"lr": -1.0}, {"threads": 0},
     {"lr": float("nan")}, {"betas": (0.9, 1.0)}, {"backend": "jax"}, {"zero": 4},
     {"optimizer": "lion"}],
)  # fmt: skip
def test_settings_out_of_range_are_named(wrong):
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        TrainSettings(**{"steps": 5, **wrong})


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_the_rate_rises_then_falls_to_its_floor(schedule):
    settings = TrainSettings(steps=100, warmup_steps=10, schedule=schedule, min_lr_share=0.1)
    shares = [settings.lr_share(step) for step in range(101)]
    assert shares[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    assert shares[10] == pytest.approx(1.0)
    assert all(a >= b for a, b in itertools.pairwise(shares[10:]))
    assert shares[100] == pytest.approx(1.0 if schedule == "constant" else 0.1)
    assert shares[55] == pytest.approx(1.0 if schedule == "constant" else 0.55)


def test_no_terminal_no_output(capfd):
    with progress_line("train") as show:
        show(1, 2, "loss 1")
    out, err = capfd.readouterr()
    assert out == err == ""


def test_on_a_terminal_the_line_goes_to_standard_error(tmp_path):
    script = (
        "from queen.training.progress import progress_line\n"
        "with progress_line('train') as show:\n"
        "    for done in range(1, 4): show(done, 3, f'loss {done}')\n"
    )
    log = tmp_path / "log"
    command = f'{sys.executable} -c "{script}" > {tmp_path / "out"}'
    Path(tmp_path / "run.sh").write_text(command)
    subprocess.run(
        ["script", "-qec", f"sh {tmp_path / 'run.sh'}", str(log)],
        check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (tmp_path / "out").read_text() == ""
    assert "3/3" in log.read_text()
