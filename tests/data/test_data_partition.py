import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlet.data import hashing, partition
from ringlet.errors import UsageError


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_shares_are_contiguous_cover_everything_and_differ_by_at_most_one(n: int, size: int) -> None:
    shares = [partition.bounds(n, rank, size) for rank in range(size)]
    assert shares[0][0] == 0
    assert shares[-1][1] == n
    assert all(left[1] == right[0] for left, right in itertools.pairwise(shares))
    lengths = [end - start for start, end in shares]
    assert sorted(lengths, reverse=True) == lengths
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(("n", "rank", "size"), [(5, 2, 2), (5, -1, 2), (5, 0, 0), (-1, 0, 1)])
def test_an_impossible_share_is_refused(n: int, rank: int, size: int) -> None:
    with pytest.raises(UsageError, match="no share"):
        partition.bounds(n, rank, size)


@given(st.integers(0, 2_000), st.integers(0, 2**63), st.integers(0, 1_000))
def test_the_order_is_a_permutation_and_a_pure_function(n: int, seed: int, epoch: int) -> None:
    order = partition.order(n, seed, epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(order, partition.order(n, seed, epoch))


def test_the_order_changes_with_seed_and_with_epoch() -> None:
    orders = [partition.order(100, seed, epoch).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_the_order_of_a_given_seed_never_changes_between_versions() -> None:
    assert partition.order(10, 1, 2).tolist() == [7, 6, 1, 9, 0, 3, 5, 4, 2, 8]


def test_the_order_does_not_touch_the_global_random_state() -> None:
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    partition.order(1000, 3, 4)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_positions_of_a_sample_are_spread_over_the_epochs() -> None:
    positions = [int(np.flatnonzero(partition.order(50, 0, epoch) == 7)[0]) for epoch in range(400)]
    counts = np.bincount(np.array(positions) // 10, minlength=5)
    assert counts.min() > 50


@given(st.integers(2, 500), st.integers(0, 100), st.data())
def test_a_split_is_disjoint_and_complete(n: int, seed: int, data: st.DataObject) -> None:
    held = data.draw(st.integers(1, n - 1))
    kept, held_out = partition.split_indices(n, seed, held)
    assert len(held_out) == held
    assert np.array_equal(np.sort(np.concatenate([kept, held_out])), np.arange(n))


def test_uniform_numbers_fill_the_unit_interval_evenly() -> None:
    values = hashing.uniform(hashing.stream(5, 6), np.arange(100_000))
    assert values.min() >= 0.0
    assert values.max() < 1.0
    assert np.histogram(values, bins=10, range=(0, 1))[0].min() > 9_600
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.02


def test_streams_depend_on_the_order_of_their_keys() -> None:
    assert len({hashing.stream(1, 2), hashing.stream(2, 1), hashing.stream(1), hashing.stream(1, 2, 0)}) == 4
