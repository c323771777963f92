"""The value network in the one training loop: it learns, resumes exactly, and ranks share it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import chess
import numpy as np
import pytest
import torch
from halting import HaltError
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from queen.networks.value import ValueNet, new_value, save_value
from queen.networks.value import labels as lb
from queen.networks.value.cost import forward_flops, parameters
from queen.networks.value.settings import ValueSettings
from queen.positions.packed import pack
from queen.training.crew import Crew, CrewSettings
from queen.training.order import Reading, carry_out, put_down
from queen.training.rows import ROW, RowFile, Shuffle, write_rows_file
from queen.training.settings import TrainSettings
from queen.training.value import ValueBatch, ValueTask, ValueTraining, train_value

TINY = ValueSettings(width=16, residual_blocks=1, transformer_blocks=1, heads=2)
SHORT = TrainSettings(
    steps=90, batch_size=32, micro_batch=0, lr=4e-3, warmup_steps=5, precision="fp32", threads=1,
    checkpoint_every_s=0, checkpoint_every=30, log_every=10,
)  # fmt: skip
WORTH = {chess.PAWN: 100, chess.KNIGHT: 300, chess.BISHOP: 300, chess.ROOK: 500, chess.QUEEN: 900}


def material(board: chess.Board) -> int:
    return sum(
        worth * (len(board.pieces(kind, board.turn)) - len(board.pieces(kind, not board.turn)))
        for kind, worth in WORTH.items()
    )


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> RowFile:
    """Positions of random games with their material as the score."""
    rng, rows = random.Random(2), np.zeros(64, ROW)
    board = chess.Board()
    for row in rows:
        if board.is_game_over() or rng.random() < 0.02:
            board = chess.Board()
        board.push(rng.choice(list(board.legal_moves)))
        cp = material(board)
        row["position"] = np.frombuffer(pack(board), np.uint8)
        row["halfmove"], row["cp"] = board.halfmove_clock, cp
        row["label"] = lb.class_of(np.array(cp), np.array(0), np.array(False))
    return write_rows_file(tmp_path_factory.mktemp("rows") / "rows.npy", [rows], most=64)


@pytest.fixture(scope="module")
def whole(file: RowFile, tmp_path_factory):
    """An uninterrupted run: the network, the losses, the figures by step."""
    net, figures = new_value(TINY, 1), {}
    work = tmp_path_factory.mktemp("whole")
    result = train_value(net, file.path, SHORT, work=work, sink=figures.__setitem__)
    return net, result.losses, figures


def same_weights(one: ValueNet, other: ValueNet) -> bool:
    state = other.state_dict()
    return all(torch.equal(each, state[name]) for name, each in one.state_dict().items())


def test_the_loss_falls_below_what_a_constant_can_reach(file: RowFile, whole) -> None:
    _, losses, figures = whole
    counts = np.bincount(file.read()["label"], minlength=lb.CLASSES)
    share = counts[counts > 0] / counts.sum()
    constant = float(-(share * np.log(share)).sum())
    last = figures[SHORT.steps]
    assert losses[0] > np.log(lb.CLASSES) - 0.5
    assert last["cross_entropy"] < constant - 0.3 < losses[0]
    told = {"loss", "grad_norm", "lr", "positions_per_s", "memory_mb", "cross_entropy", "ordinal"}
    assert set(last) == told
    assert last["loss"] == pytest.approx(last["cross_entropy"] + 0.5 * last["ordinal"], rel=1e-5)


def test_a_stopped_run_ends_with_the_same_weights(file: RowFile, whole, tmp_path: Path) -> None:
    def halt(done: int, total: int, note: str = "") -> None:
        if done == 67:
            assert "positions/s" in note
            raise HaltError

    with pytest.raises(HaltError):
        train_value(new_value(TINY, 1), file.path, SHORT, work=tmp_path, progress=halt)
    net = new_value(TINY, 1)
    result = train_value(net, file.path, SHORT, work=tmp_path)
    assert result.resumed_from == 60
    assert same_weights(net, whole[0])
    assert np.array_equal(result.losses, whole[1])


def summed(task: ValueTask, net: ValueNet, parts: list[ValueBatch]) -> float:
    return sum(float(task.loss(net, part).detach()) for part in parts)


def test_a_batch_is_a_function_of_its_step_and_ranks_divide_it(file: RowFile) -> None:
    def task() -> ValueTask:
        return ValueTask(file, Shuffle(file.count, 4), 32)

    forward, again = task(), task()
    batches = [forward.batch(step) for step in range(40)]
    for step in (39, 3, 20, 21):
        other = again.batch(step)
        assert all(torch.equal(v, batches[step].tensors()[k]) for k, v in other.tensors().items())
    batch, net = batches[5], new_value(TINY, 2)
    wanted = summed(forward, net, [batch])
    for ranks in (2, 3):
        parts = [batch.share(rank, ranks) for rank in range(ranks)]
        assert sum(part.tokens for part in parts) == batch.tokens == 32
        assert summed(forward, net, parts) == pytest.approx(wanted, rel=1e-5)
    assert summed(forward, net, batch.split(5)) == pytest.approx(wanted, rel=1e-5)


def test_the_loss_is_what_the_method_says(file: RowFile) -> None:
    task = ValueTask(file, Shuffle(file.count, 0), 16, ordinal=0.25)
    batch, net = task.batch(0), new_value(TINY, 3)
    logits = net.logits(batch.packed.numpy(), batch.halfmove.numpy())
    classes = batch.classes
    wanted = lb.cross_entropy(logits, classes) + 0.25 * lb.ordinal_distance(logits, classes)
    assert float(task.loss(net, batch).detach()) == pytest.approx(float(wanted.sum()), rel=1e-5)
    assert task.figures(net)["cross_entropy"] == pytest.approx(
        float(lb.cross_entropy(logits, classes).mean()), rel=1e-5
    )
    assert task.figures(net) == {"cross_entropy": 0.0, "ordinal": 0.0}


def test_bf16_learns_too_and_other_data_is_refused(file: RowFile, whole, tmp_path: Path) -> None:
    halves = replace(SHORT, precision="bf16", steps=20)
    result = train_value(new_value(TINY, 1), file.path, halves, work=tmp_path / "halves")
    assert np.allclose(result.losses[:5], whole[1][:5], rtol=0.03)
    assert result.losses[-3:].mean() < result.losses[0] - 0.5


def test_an_order_carried_out_trains_alike(file: RowFile, whole, tmp_path: Path) -> None:
    order, work = tmp_path / "order", tmp_path / "work"
    order.mkdir()
    save_value(new_value(TINY, 1), order / "model")
    put_down(order, ValueTraining(file.path, SHORT, work, 0.5, 1))
    reading = Reading(order)
    carry_out(order, first=True)
    told = reading.new()
    assert told[-1]["kind"] == "result"
    assert np.array_equal(told[-1]["losses"], whole[1])


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_two_ranks_follow_the_same_curve(file: RowFile, whole, tmp_path: Path) -> None:
    net, figures = new_value(TINY, 1), {}
    with Crew(CrewSettings(ranks=2, threads=2), tmp_path / "ranks") as crew:
        result = train_value(
            net, file.path, SHORT, work=tmp_path / "work", crew=crew, sink=figures.__setitem__
        )
    assert np.allclose(result.losses, whole[1], rtol=2e-3)
    for name, each in net.state_dict().items():
        assert torch.allclose(each, whole[0].state_dict()[name], atol=2e-2), name
    for step, values in figures.items():
        wanted = whole[2][step]["cross_entropy"]
        assert values["cross_entropy"] == pytest.approx(wanted, rel=2e-3)


@pytest.mark.parametrize(("residual", "transformer"), [(2, 3), (4, 0), (0, 5)])
def test_costs_are_those_of_the_module(residual: int, transformer: int) -> None:
    settings = ValueSettings(24, residual, transformer, heads=2)
    net = new_value(settings, 0)
    assert parameters(settings) == sum(each.numel() for each in net.parameters())
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # others it does not count
        net(torch.zeros(3, 18, 8, 8, dtype=torch.uint8))
    assert 3 * forward_flops(settings) == pytest.approx(counter.get_total_flops(), rel=1e-6)
