from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringlet.comm.single import SingleCommunicator
from ringlet.kernels import load
from ringlet.optim import Segment, global_norm
from ringlet.strategies import ownership
from ringlet.strategies.ownership import BLOCK, Norms, Range, blocks, owned_ranges


@given(st.integers(0, 3_000_000), st.integers(1, 7))
def test_every_element_has_one_owner_and_borders_lie_on_blocks(num_elements: int, num_owners: int) -> None:
    ranges = sorted(
        owned.elements for owner in range(num_owners) for owned in owned_ranges(num_elements, owner, num_owners)
    )
    assert sum(part.size for part in ranges) == num_elements
    assert all(left.stop == right.start for left, right in pairwise(ranges))
    assert all(part.start % BLOCK == 0 for part in ranges)


@given(st.integers(1, 3_000_000), st.integers(1, 7))
def test_owners_have_nearly_equal_shares(num_elements: int, num_owners: int) -> None:
    sizes = [ownership.num_owned(owned_ranges(num_elements, owner, num_owners)) for owner in range(num_owners)]
    assert max(sizes) - min(sizes) <= 2 * BLOCK


@given(st.integers(1, 3_000_000), st.integers(1, 7), st.integers(0, 6))
def test_the_state_of_an_owner_has_no_gaps(num_elements: int, num_owners: int, owner: int) -> None:
    owned = owned_ranges(num_elements, owner % num_owners, num_owners)
    position = 0
    for part in owned:
        assert part.in_state == (position, position + part.elements.size)
        position += part.elements.size
    assert position == ownership.num_owned(owned)


def test_parameters_that_cross_a_border_are_cut_and_remember_their_size() -> None:
    segments = (Segment(0, 100, "a.weight"), Segment(100, 3 * BLOCK, "b.weight"))
    first, second = (owned_ranges(3 * BLOCK, owner, 2, segments)[0] for owner in (0, 1))
    assert [(part.name, part.start, part.stop) for part in first.segments] == [
        ("a.weight", 0, 100),
        ("b.weight", 100, 2 * BLOCK),
    ]
    assert [(part.start, part.stop, part.is_cut) for part in second.segments] == [(0, BLOCK, True)]


def test_blocks_of_a_range_end_at_multiples_of_the_block() -> None:
    assert list(blocks(Range(10, 2 * BLOCK + 5))) == [(10, BLOCK), (BLOCK, 2 * BLOCK), (2 * BLOCK, 2 * BLOCK + 5)]


@pytest.mark.parametrize("kernels", ["reference", "compiled"])
def test_norms_equal_those_of_numpy(kernels: str) -> None:
    chosen = load(kernels)
    size = 5 * BLOCK + 77
    values = np.random.default_rng(0).normal(size=(2, size)).astype(np.float32)
    segments = (Segment(0, 100, "a"), Segment(100, 4 * BLOCK, "b"), Segment(4 * BLOCK, size, "c"))
    norms = Norms(SingleCommunicator(), segments, owned_ranges(size, 0, 1, segments), chosen)
    assert norms.global_norm(values[0]) == pytest.approx(global_norm(values[0], kernels=chosen), rel=1e-12)
    found = norms.segment_norms(values[0], values[1])
    for segment in segments:
        expected = np.linalg.norm(values[:, segment.start : segment.stop].astype(np.float64), axis=1)
        np.testing.assert_allclose(found[segment.name], expected, rtol=1e-7)
