"""Shares of an axis agree with the data's, and nobody's memory is touched by accident."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlet.comm import arrays
from ringlet.comm.single import aligned_zeros
from ringlet.data.partition import bounds
from ringlet.errors import CommunicationError


@given(st.integers(0, 10**12), st.integers(1, 300), st.data())
def test_shares_are_those_of_the_data(n: int, size: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, size - 1))
    assert arrays.part(n, rank, size) == bounds(n, rank, size)
    start, stop = arrays.part(n, rank, size)
    assert arrays.part_lengths(n, size)[rank] == stop - start


@given(st.lists(st.integers(-2, 6), max_size=5), st.integers(0, 12), st.integers(1, 5))
def test_splits_fit_or_are_refused(splits: list[int], rows: int, size: int) -> None:
    if len(splits) == size and min(splits) >= 0 and sum(splits) == rows:
        assert arrays.check_splits(rows, splits, size) == splits
    else:
        with pytest.raises(CommunicationError, match=f"add up to its {rows} rows"):
            arrays.check_splits(rows, splits, size)


@pytest.mark.parametrize("dtype", ["u1", "f4", "c16", "U3", "i4,f8"])
def test_aligned_arrays_begin_at_a_cache_line(dtype: str) -> None:
    assert aligned_zeros((3, 0), dtype).shape == (3, 0)
    for shape in ((), (3,), (2, 5)):
        array = aligned_zeros(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.ctypes.data % 64 == 0
        assert array.flags.writeable


def test_bytes_are_a_view() -> None:
    array = np.zeros((2, 3), np.int16)
    arrays.as_bytes(array)[:] = 255
    assert (array == -1).all()
