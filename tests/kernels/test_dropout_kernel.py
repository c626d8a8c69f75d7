"""Dropout: a mask that is a pure function of its key, equal in every implementation."""

from __future__ import annotations

import numpy as np
import pytest

from ringlet.kernels.reference.elements import mix32

KEY = 0x0123_4567_89AB_CDEF
MASK = 0xFFFFFFFF


def mix(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D & MASK
    x ^= x >> 15
    x = x * 0x846CA68B & MASK
    return x ^ x >> 16


def kept(element: int, lane: int, rate: float, key: int) -> bool:
    """The contract's formula in whole numbers."""
    inner = (mix((element & MASK) ^ (key & MASK)) + lane * 0x9E3779B9) & MASK
    return mix(inner ^ (key >> 32)) >= int(rate * 2**32)


def run(lab, x, *, rate=0.5, key=KEY):
    y = np.full_like(x, np.nan)
    lab.kernels.dropout(x, y, rate=rate, key=key, accumulate=False)
    return y


@pytest.mark.parametrize("key", [0, 1, KEY, 2**63 + 5, 2**64 - 1])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.75])
def test_the_mask_is_the_contract_s_hash(lab, rate, key):
    x = np.ones((3, 5, 7, 24), lab.dtype)
    expected = [[kept(element, lane, rate, key) for lane in range(24)] for element in range(105)]
    np.testing.assert_array_equal(run(lab, x, rate=rate, key=key).reshape(105, 24) > 0, expected)


def test_mix32_is_the_whole_number_formula_and_one_to_one():
    values = np.arange(0, 2**32, 65_521, dtype=np.uint64).astype(np.uint32)
    mixed = mix32(values)
    assert mixed.tolist()[:500] == [mix(int(value)) for value in values[:500]]
    assert len(np.unique(mixed)) == len(values)


def test_kept_values_are_scaled_and_the_others_are_zero(lab, n):
    x = lab.activation(n, 4, 3, 3)
    y = run(lab, x, rate=0.3)
    kept_values = y != 0
    np.testing.assert_array_equal(y[kept_values], (x * lab.dtype.type(1 / 0.7))[kept_values])


@pytest.mark.parametrize("rate", [0.05, 0.25, 0.5, 0.9])
def test_the_fraction_of_zeros_is_the_rate(lab, rate):
    y = run(lab, np.ones((100, 10, 10, 8), lab.dtype), rate=rate)
    deviation = (rate * (1 - rate) / y.size) ** 0.5
    assert abs(np.mean(y == 0) - rate) < 5 * deviation


def test_rate_zero_keeps_everything(lab):
    x = lab.parameter(5, 4, 4, 16)
    np.testing.assert_array_equal(run(lab, x, rate=0.0), x)


def test_every_sample_has_its_own_mask(lab):
    y = run(lab, np.ones((200, 16), lab.dtype))
    assert len({y[:, lane].tobytes() for lane in range(16)}) == 16


def test_every_element_has_its_own_mask(lab):
    y = run(lab, np.ones((30, 64), lab.dtype))
    assert len({y[element].tobytes() for element in range(30)}) == 30


def test_other_keys_give_other_masks(lab):
    x = np.ones((200, 8), lab.dtype)
    masks = {run(lab, x, key=key).tobytes() for key in (0, 1, 2, 1 << 32, 2 << 32, KEY)}
    assert len(masks) == 6


def test_the_mask_does_not_depend_on_the_number_of_lanes(lab):
    many, few = np.ones((50, 64), lab.dtype), np.ones((50, 8), lab.dtype)
    np.testing.assert_array_equal(run(lab, many)[:, :8], run(lab, few))


def test_the_mask_does_not_depend_on_the_dtype(kernels, make_lab):
    masks = [run(make_lab(kernels, dtype), np.ones((50, 8), dtype)) > 0 for dtype in ("float32", "float64")]
    np.testing.assert_array_equal(*masks)


def test_backward_uses_the_mask_of_the_forward_pass(lab, n):
    forward = run(lab, np.ones_like(lab.activation(n, 6, 2, 2)))
    dy, before = lab.gradient(n, 6, 2, 2), lab.gradient(n, 6, 2, 2)
    dx = before.copy()
    lab.kernels.dropout(dy, dx, rate=0.5, key=KEY, accumulate=True)
    lab.assert_gradient(dx, lab.samples(before + dy * forward, n), n)
