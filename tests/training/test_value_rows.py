"""The file of labelled positions, and the order in which its rows are met."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.training.rows import ROW, RowsError, Shuffle, open_rows_file, write_rows_file


def some_rows(count: int, seed: int = 0) -> np.ndarray:
    raw = np.random.default_rng(seed).integers(0, 256, (count, ROW.itemsize), np.uint8)
    return raw.reshape(-1).view(ROW)


@pytest.mark.parametrize("cuts", [[7], [3, 3, 1], [1] * 7])
def test_a_file_holds_the_rows_however_they_came(tmp_path, cuts: list[int]) -> None:
    rows, parts = some_rows(7), iter(np.split(some_rows(7), np.cumsum(cuts)[:-1]))
    written = write_rows_file(tmp_path / "rows.npy", parts, most=20)
    assert np.array_equal(written.read(), rows)
    assert open_rows_file(written.path) == written
    assert isinstance(written.read(), np.memmap)
    assert np.array_equal(np.load(written.path), rows)
    assert written.digest == write_rows_file(tmp_path / "again.npy", [rows], most=7).digest
    other = write_rows_file(tmp_path / "other.npy", [rows[::-1]], most=7)
    assert other.digest != written.digest
    assert ROW.itemsize == 40


def test_a_file_that_is_not_whole_is_refused(tmp_path) -> None:
    path = tmp_path / "rows.npy"
    with pytest.raises(RowsError, match="whole"):
        open_rows_file(path)
    with pytest.raises(RowsError, match="no labelled position"):
        write_rows_file(path, [], most=5)
    assert list(tmp_path.iterdir()) == []
    write_rows_file(path, [some_rows(50)], most=50)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RowsError, match="whole"):
        open_rows_file(path)


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(1, 700), run=st.integers(1, 40), seed=st.integers(0, 5),
    epoch=st.integers(0, 3),
)  # fmt: skip
def test_an_epoch_meets_each_row_at_most_once(count: int, run: int, seed: int, epoch: int) -> None:
    shuffle = Shuffle(count, seed, run)
    size = shuffle.epoch
    assert size == count - count % min(run, count)
    found = shuffle.rows(epoch * size, (epoch + 1) * size)
    assert len(set(found.tolist())) == size
    assert set(found.tolist()) <= set(range(count))


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(20, 300), run=st.integers(1, 9),
    cuts=st.lists(st.integers(0, 900), min_size=1, max_size=6),
)  # fmt: skip
def test_a_sample_is_the_same_row_whatever_is_asked_with_it(
    count: int, run: int, cuts: list[int]
) -> None:
    shuffle = Shuffle(count, 3, run)
    whole = shuffle.rows(0, 900)
    bounds = [0, *sorted(cuts), 900]
    spans = [span for span in itertools.pairwise(bounds) if span[0] < span[1]]
    parts = [shuffle.rows(*span) for span in spans]
    assert np.array_equal(np.concatenate(parts), whole)


def test_epochs_and_seeds_are_shuffled_apart_and_evenly() -> None:
    count = 5000
    shuffle = Shuffle(count, 1)
    first, second = shuffle.rows(0, count), shuffle.rows(count, 2 * count)
    other = Shuffle(count, 2).rows(0, count)
    at = np.arange(count)
    for order in (first, second, other):
        assert abs(np.corrcoef(at, order)[0, 1]) < 0.06
        assert (order == at).sum() < 10
    assert (first == second).sum() < 10
    assert (first == other).sum() < 10
    # The tenths of an epoch draw from all tenths of the file alike.
    table = np.histogram2d(at, first, bins=10)[0]
    assert table.min() > 25
    assert table.max() < 80


def test_rows_of_a_run_are_met_together_and_other_runs_in_another_epoch() -> None:
    shuffle = Shuffle(1003, 5, run=10)
    found = shuffle.rows(0, 1000).reshape(100, 10)
    assert ((found - found[:, :1]) % 1003 == np.arange(10)).all()
    starts = [set((shuffle.rows(e * 1000, e * 1000 + 1000)[::10] % 10).tolist()) for e in range(4)]
    assert len({frozenset(each) for each in starts}) > 1


def test_billions_of_rows_take_no_table() -> None:
    found = Shuffle(4_000_000_000, 7, run=32).rows(10**12, 10**12 + 64)
    assert found.min() >= 0
    assert found.max() < 4_000_000_000
    assert len(np.unique(found)) == 64


@pytest.mark.parametrize("wrong", [(0, 1), (5, 0)])
def test_nothing_to_shuffle_is_refused(wrong: tuple[int, int]) -> None:
    with pytest.raises(RowsError):
        Shuffle(wrong[0], 0, wrong[1])
