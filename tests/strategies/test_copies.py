"""Where parameters lie, and the memory that loops walk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlet.strategies.copies import (
    OWN_COPY_BYTES,
    has_own_copies,
    ranges_between,
    staggered_zeros,
    whole_pages,
)
from ringlet.strategies.ownership import Range, owned_ranges


@given(st.integers(0, 3_000_000), st.integers(1, 7), st.integers(0, 6))
def test_owned_ranges_and_what_lies_between_are_everything_once(size: int, num_owners: int, owner: int) -> None:
    owned = [part.elements for part in owned_ranges(size, owner % num_owners, num_owners)]
    parts = sorted([*owned, *ranges_between(owned, size)])
    assert sum(part.size for part in parts) == size
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]


def test_nothing_lies_between_where_one_owner_has_all() -> None:
    assert ranges_between([Range(0, 5)], 5) == []
    assert ranges_between([], 5) == [Range(0, 5)]


@pytest.mark.parametrize(
    ("num_bytes", "local_sizes", "expected"),
    [
        (OWN_COPY_BYTES, [2], True),
        (OWN_COPY_BYTES + 1, [2], False),
        (4, [1, 1], False),
        (4, [1, 2], True),
    ],
)
def test_ranks_of_one_machine_have_own_copies_of_small_networks(num_bytes, local_sizes, expected) -> None:
    assert has_own_copies(num_bytes, local_sizes) is expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_that_a_loop_walks_lie_apart_within_their_pages(dtype) -> None:
    arrays = [staggered_zeros(1000, dtype, place) for place in range(5)]
    offsets = [array.ctypes.data % 4096 for array in arrays]
    assert len(set(offsets)) == len(arrays)
    assert all(offset % 64 == 0 for offset in offsets)
    assert all(not array.any() and array.flags.c_contiguous and array.flags.writeable for array in arrays)
    assert [array.shape for array in arrays] == [(1000,)] * 5


def test_rows_are_whole_pages() -> None:
    assert whole_pages(1, np.float32) == 1024
    assert whole_pages(1024, np.float32) == 1024
    assert whole_pages(1025, np.float64) == 1536
    assert whole_pages(0, np.float32) == 0
