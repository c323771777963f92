"""One table of the expert's states for all ranks of a machine: the bits of a table made alone."""

from __future__ import annotations

import errno
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import chess
import pytest
import torch

from queen.games.chess.position import Position
from queen.training.states import PositionStates

COUNT, BLOCK, MANY = 53, 8, 10**6


class Ranks:
    """Two ranks as threads of this process: what `World` offers them, without a network."""

    size = 2

    def __init__(self, rank: int, barrier: threading.Barrier, told: dict[str, int]) -> None:
        self.rank, self.barrier, self.told = rank, barrier, told

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        self.barrier.wait(60)

    def agree(self, value: int) -> int:
        if self.first:
            self.told["value"] = value
        self.wait()
        return self.told["value"]


@pytest.fixture(scope="module")
def positions() -> list[Position]:
    rng, found, board = random.Random(3), [], chess.Board()
    while len(found) < COUNT:
        if board.is_game_over():
            board.reset()
        board.push(rng.choice(list(board.legal_moves)))
        found.append(Position(board.fen(en_passant="legal")))
    return found


def shared(expert, positions, folder):
    """The states of two ranks that share what they can."""
    barrier, told = threading.Barrier(2), {}

    def rank(number: int) -> PositionStates:
        states = PositionStates(expert, positions, MANY, 64, BLOCK)
        states.share(Ranks(number, barrier, told), folder / "deep" / "states.npy")
        return states

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(rank, range(2)))


def test_ranks_fill_one_table_between_them(expert, positions, tmp_path):
    alone = PositionStates(expert, positions, MANY, 64, BLOCK)
    ranks = shared(expert, positions, tmp_path)
    for states in ranks:
        assert torch.equal(states.table, alone.table)
    ranks[0].table[0, 0, 0, 0] = 7.0
    assert ranks[1].table[0, 0, 0, 0] == 7.0
    calls = [states.expert.calls for states in ranks]
    assert sum(calls) == COUNT
    assert min(calls) >= 3 * BLOCK
    assert list(tmp_path.rglob("*.npy")) == []


def test_on_a_full_disk_each_keeps_its_own(expert, positions, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    alone = PositionStates(expert, positions, MANY, 64, BLOCK)
    for states in shared(expert, positions, tmp_path):
        assert torch.equal(states.table, alone.table)
        assert states.expert.calls == COUNT
    assert list(tmp_path.rglob("*.npy")) == []


def test_what_would_not_fit_has_no_table(expert, positions, tmp_path):
    states = PositionStates(expert, positions, MANY, 0, BLOCK)
    assert not states.tabled
    states.share(Ranks(0, threading.Barrier(2), {}), tmp_path / "states.npy")
    assert list(tmp_path.iterdir()) == []
