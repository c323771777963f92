"""Several ranks: one curve whatever their number and backend, and no trace of those killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from halting import HaltError, halt_at

from queen.networks.queen import QueenModel, freeze, thaw
from queen.training import checkpoint as ck
from queen.training import zero
from queen.training.crew import Crew, CrewSettings, RankError, deepspeed_command
from queen.training.curriculum import question_examples
from queen.training.examples import encode_examples
from queen.training.loop import NotFiniteError, TrainSettings
from queen.training.order import Reading, carry_out, kept_error
from queen.training.settings import SettingsError
from queen.training.sft import Part, fine_tune
from queen.training.sft_order import write_order

SHORT = TrainSettings(
    steps=12, batch_size=8, micro_batch=2, lr=5e-3, warmup_steps=5, precision="fp32", threads=1,
    checkpoint_every_s=0, checkpoint_every=6, log_every=10,
)  # fmt: skip
LONG = replace(SHORT, steps=40, packing=True)
TWO = CrewSettings(ranks=2, threads=2)


@pytest.fixture(scope="module")
def mixture(questions, tokenizer):
    examples = question_examples(questions, turns=2, seed=0)
    return [Part("all", encode_examples(examples, tokenizer, 256), 1.0)]


@pytest.fixture(scope="module")
def alone(new_model, expert, mixture, tmp_path_factory):
    """Uninterrupted runs in this process: the model and the losses, by settings."""
    torch.set_num_threads(1)
    runs = {}
    for settings in (SHORT, LONG):
        model = new_model()
        work = tmp_path_factory.mktemp("alone")
        result = fine_tune(model, expert, mixture, settings, work=work)
        runs[settings] = model, result.losses
    return runs


def same_curve(model, losses, run):
    """Equal up to rounding, which training itself makes grow."""
    assert np.allclose(losses, run[1], rtol=2e-3)
    assert np.allclose(losses[:12], run[1][:12], rtol=2e-5)
    wanted = dict(run[0].named_parameters())
    for name, each in model.named_parameters():
        assert torch.allclose(each, wanted[name], atol=5e-3), name


def loads_as_hugging_face(work, model):
    found = ck.latest(work)
    loaded = QueenModel.from_pretrained(found.folder)
    thaw(model)
    for name, each in loaded.named_parameters():
        assert torch.equal(each, model.state_dict()[name]), name


@pytest.mark.timeout(900)
def test_ranks_and_backends_follow_one_curve_and_go_on_from_each_other(
    new_model, expert, mixture, alone, tmp_path
):
    def start(crew, settings, name, **more):
        model = new_model()
        result = crew.fine_tune(
            model, expert, mixture, settings, work=tmp_path / name, table_mb=64, **more
        )
        return model, result

    with Crew(TWO, tmp_path / "ranks") as crew:
        with pytest.raises(HaltError):
            fine_tune(
                new_model(), expert, mixture, SHORT, work=tmp_path / "z1", progress=halt_at(9)
            )
        model, result = start(crew, replace(SHORT, backend="deepspeed", zero=1), "z1")
        assert result.resumed_from == 6
        same_curve(model, result.losses, alone[SHORT])
        loads_as_hugging_face(tmp_path / "z1", model)

        def kill_one(done, total, note=""):
            if done >= 8 and crew.processes[1].poll() is None:
                crew.processes[1].kill()

        with pytest.raises(RankError, match="rank 1 was killed by signal 9"):
            start(crew, LONG, "long", progress=kill_one)
    left = ck.latest(tmp_path / "long")
    assert 6 <= left.step < LONG.steps
    model = new_model()
    with pytest.raises(HaltError):
        fine_tune(
            model, expert, mixture, LONG, work=tmp_path / "long", progress=halt_at(left.step + 8)
        )
    with Crew(TWO, tmp_path / "ranks") as crew:
        figures = {}
        model, result = start(crew, LONG, "long", sink=figures.__setitem__)
        assert result.resumed_from == left.step + 6
        same_curve(model, result.losses, alone[LONG])
        loads_as_hugging_face(tmp_path / "long", model)
        assert {"tokens_per_s", "memory_mb", "gate/ffn.0", "lr"} <= set(figures[LONG.steps])
        halves = replace(
            SHORT,
            steps=6,
            backend="deepspeed",
            zero=1,
            precision="bf16_weights",
            schedule="constant",
        )
        _, result = start(crew, halves, "halves")
        assert np.allclose(result.losses, alone[SHORT][1][:6], atol=0.05)
        deep = replace(LONG, backend="deepspeed", zero=3)
        with pytest.raises(HaltError):
            start(crew, deep, "deep", progress=halt_at(8))
    step = ck.latest(tmp_path / "deep").step
    assert 6 <= step < LONG.steps
    model = new_model()
    result = fine_tune(model, expert, mixture, LONG, work=tmp_path / "deep")
    assert result.resumed_from == step
    same_curve(model, result.losses, alone[LONG])


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_deepspeed_launcher_starts_ranks_by_a_host_file_and_frozen_parts_stay(
    new_model, expert, mixture, tmp_path, monkeypatch
):
    """Two ranks of this machine, as no second one is at hand."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    launched = CrewSettings(ranks=2, launcher="deepspeed", hostfile=str(hosts), threads=2)
    settings = replace(SHORT, backend="deepspeed", zero=2, steps=6)
    with Crew(launched, tmp_path / "ranks") as crew:
        model, plain = new_model(), new_model()
        for each in (model, plain):
            freeze(each, ["decoder"])
        work = tmp_path / "work"
        result = crew.fine_tune(model, expert, mixture, settings, work=work, table_mb=64)
        wanted = fine_tune(plain, expert, mixture, replace(SHORT, steps=6), work=tmp_path / "plain")
        assert np.allclose(result.losses, wanted.losses, rtol=2e-5)
        folder = ck.latest(work).folder
        assert (folder / "model.safetensors.index.json").is_file()
        loads_as_hugging_face(work, model)


@pytest.mark.parametrize("frozen", [[], ["decoder"]])
def test_in_one_process_with_weights_divided_and_layers_computed_anew(
    new_model, expert, mixture, tmp_path, monkeypatch, frozen
):
    """Only the gates stay whole; rows of chess tokens that train apart are divided too."""
    plain = zero._config

    def divided(settings, world):
        config = plain(settings, world)
        config["zero_optimization"]["stage3_param_persistence_threshold"] = 100
        return config

    monkeypatch.setattr(zero, "_config", divided)
    runs = []
    for backend in ("torch", "deepspeed"):
        model = new_model()
        freeze(model, frozen)
        settings = replace(
            SHORT, steps=4, backend=backend, zero=3, packing=True, gradient_checkpointing=True
        )
        result = fine_tune(model, expert, mixture, settings, work=tmp_path / backend)
        runs.append((model, result.losses))
    same_curve(*runs[1], runs[0])


def test_what_a_rank_stops_for_is_kept_for_who_waits(new_model, expert, mixture, tmp_path):
    order, work = tmp_path / "order", tmp_path / "work"
    order.mkdir()
    broken = new_model()
    broken.blocks[0].out.weight.data[0, 0] = float("nan")
    write_order(order, broken, expert, mixture, SHORT, work, 64)
    assert kept_error(order) is None
    with pytest.raises(NotFiniteError, match="step 0") as caught:
        carry_out(order, first=True)
    kept = kept_error(order)
    assert (type(kept), str(kept)) == (NotFiniteError, str(caught.value))
    assert Path(kept.where).is_file()


def test_an_order_carried_out_alone_tells_all(new_model, expert, mixture, tmp_path, alone):
    order, work = tmp_path / "order", tmp_path / "work"
    order.mkdir()
    write_order(order, new_model(), expert, mixture, SHORT, work, 64)
    reading = Reading(order)
    assert reading.new() == []
    carry_out(order, first=True)
    told = reading.new()
    steps = [report["done"] for report in told if report["kind"] == "progress"]
    assert steps == list(range(1, SHORT.steps + 1))
    assert told[-1]["kind"] == "result"
    assert np.array_equal(told[-1]["losses"], alone[SHORT][1])
    assert reading.new() == []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel ends them on Linux")
def test_no_rank_outlives_who_waits_for_it(new_model, expert, mixture, tmp_path):
    order, work = tmp_path / "order", tmp_path / "work"
    order.mkdir()
    endless = replace(LONG, steps=100_000)
    write_order(order, new_model(), expert, mixture, endless, work, 64)
    script = Path(__file__).with_name("ranks_parent.py")
    parent = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "ranks"), str(order)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    ranks = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(ranks) == 2
    for line in parent.stdout:
        if int(line) >= 8:
            break
    assert all(map(alive, ranks))
    parent.send_signal(signal.SIGKILL)
    parent.stdout.close()
    assert parent.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while any(map(alive, ranks)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, ranks))
    assert ck.latest(work).step >= 6


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"launcher": "slurm"}, "launcher"), ({"ranks": 0}, "ranks"),
     ({"launcher": "deepspeed", "hostfile": "/nowhere"}, "hostfile"),
     ({"hostfile": os.devnull}, "hostfile")],
)  # fmt: skip
def test_a_crew_that_cannot_be_is_refused(wrong, named):
    with pytest.raises(SettingsError, match=named):
        CrewSettings(**wrong)


def test_the_deepspeed_launcher_is_given_the_hosts(tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("one slots=8\ntwo slots=8\n")
    settings = CrewSettings(launcher="deepspeed", hostfile=str(hosts))
    command = deepspeed_command(settings, tmp_path)
    assert command[command.index("--hostfile") + 1] == str(hosts)
    assert command[-2:] == ["queen.training.worker", str(tmp_path)]
    assert "--no_ssh_check" not in command
    hosts.write_text("# this machine\nlocalhost slots=2\n")
    assert "--no_ssh_check" in deepspeed_command(settings, tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"precision": "bf16_weights"}, "zero"), ({"batch_size": 0}, "batch_size")],
)
def test_settings_that_deepspeed_cannot_follow(new_model, expert, mixture, tmp_path, change, named):
    settings = {**vars(SHORT), "backend": "deepspeed", **change}
    with pytest.raises(SettingsError, match=named):
        fine_tune(new_model(), expert, mixture, TrainSettings(**settings), work=tmp_path)
