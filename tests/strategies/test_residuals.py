"""What machines have kept back, when their number changes."""

from __future__ import annotations

import numpy as np

from ringlet.strategies.saved_state import is_residual, shared_out

SAVED = {
    "first": np.array([9.0, 9.0]),
    "kept_back_0": np.array([1.0, 2.0]),
    "kept_back_1": np.array([0.5, -2.0]),
}


def test_as_many_machines_go_on_with_their_own():
    shared = shared_out(("kept_back_0", "kept_back_1"), SAVED)
    assert {name: list(array) for name, array in shared.items()} == {"kept_back_0": [1, 2], "kept_back_1": [0.5, -2]}


def test_of_another_number_the_first_takes_over_the_sum():
    first, *others = shared_out(("kept_back_0", "kept_back_1", "kept_back_2"), SAVED).values()
    assert list(first) == [1.5, 0.0]
    assert others == [0.0, 0.0]


def test_a_run_without_compression_begins_with_nothing():
    assert shared_out(("kept_back_0", "kept_back_1"), {"first": SAVED["first"]}) == {"kept_back_0": 0, "kept_back_1": 0}
    assert shared_out((), SAVED) == {}


def test_the_optimizers_own_arrays_are_told_apart():
    assert [is_residual(name) for name in SAVED] == [False, True, True]
