"""Order of examples: pure, fair, complete, and short on padding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queen.training.sampling import BatchPlan, MixtureError, Share, steps_for


def part(name: str, count: int, share: float, seed: int = 0) -> Share:
    lengths = np.random.default_rng(seed).integers(5, 200, count)
    return Share(name, lengths, share)


mixtures = st.lists(st.tuples(st.integers(1, 60), st.floats(0.001, 10.0)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(
    mixture=mixtures,
    batch=st.integers(1, 17),
    steps=st.integers(1, 40),
    megabatch=st.integers(1, 9),
    seed=st.integers(0, 2**40),
)
def test_any_step_alone_equals_the_step_of_a_whole_run(mixture, batch, steps, megabatch, seed):
    parts = [part(f"p{i}", n, share, i) for i, (n, share) in enumerate(mixture)]
    whole = BatchPlan(parts, batch, steps, seed, megabatch)
    run = [whole.batch_indices(step) for step in range(steps)]
    for step in (steps - 1, steps // 2, 0):
        fresh = BatchPlan(parts, batch, steps, seed, megabatch)
        assert np.array_equal(fresh.batch_indices(step), run[step])
    assert all(len(indices) == batch for indices in run)


@settings(max_examples=60, deadline=None)
@given(mixture=mixtures, batch=st.integers(1, 17), steps=st.integers(1, 60))
def test_shares_hold_at_every_length_and_counts_never_fall(mixture, batch, steps):
    parts = [part(f"p{i}", n, share) for i, (n, share) in enumerate(mixture)]
    plan = BatchPlan(parts, batch, steps, 0)
    total = sum(share for _, share in mixture)
    before = [0] * len(parts)
    for step in range(1, steps + 1):
        counts = plan.drawn(step)
        assert sum(counts) == step * batch
        assert all(now >= then for now, then in zip(counts, before, strict=True))
        for count, (_, share) in zip(counts, mixture, strict=True):
            assert abs(count - share / total * step * batch) <= len(parts)
        before = counts


def test_an_epoch_meets_every_example_once_before_any_twice():
    only = part("only", 96, 1.0)
    plan = BatchPlan([only], 12, steps_for(3, 96, 1.0, 12), 5, megabatch=8)
    run = np.concatenate([plan.batch_indices(step) for step in range(plan.steps)])
    assert plan.steps == 24
    for epoch in range(3):
        assert sorted(run[epoch * 96 : (epoch + 1) * 96]) == list(range(96))


def test_the_mixture_is_what_the_shares_say():
    parts = [part("new", 500, 0.7), part("seeds", 40, 0.15), part("replay", 90, 0.15)]
    plan = BatchPlan(parts, 20, 50, 1)
    drawn = np.concatenate([plan.batch_indices(step) for step in range(50)])
    names = Counter(np.searchsorted([500, 540], drawn, side="right").tolist())
    assert names == {0: 700, 1: 150, 2: 150}
    seeds = Counter(drawn[(drawn >= 500) & (drawn < 540)].tolist())
    assert max(seeds.values()) - min(seeds.values()) <= 1


def test_megabatches_cut_the_padding():
    parts = [part("only", 4000, 1.0)]

    def padding(megabatch: int) -> float:
        plan = BatchPlan(parts, 32, 64, 0, megabatch)
        lengths = [parts[0].lengths[plan.batch_indices(step)] for step in range(64)]
        padded = sum(rows.max() * len(rows) for rows in lengths)
        return 1 - sum(rows.sum() for rows in lengths) / padded

    assert padding(1) > 0.35
    assert padding(16) < 0.08


def test_seeds_differ_and_steps_end():
    parts = [part("only", 50, 1.0)]
    one, two = BatchPlan(parts, 10, 4, 1), BatchPlan(parts, 10, 4, 2)
    assert not np.array_equal(one.batch_indices(0), two.batch_indices(0))
    with pytest.raises(IndexError):
        one.batch_indices(4)


@pytest.mark.parametrize(
    "parts", [[], [part("empty", 0, 1.0)], [part("none", 3, 0.0)], [part("nan", 3, float("nan"))]]
)
def test_a_mixture_that_cannot_be_drawn_from_is_named(parts):
    with pytest.raises(MixtureError) as caught:
        BatchPlan(parts, 4, 4, 0)
    assert caught.value.remedy
    assert not parts or parts[0].name in str(caught.value)
