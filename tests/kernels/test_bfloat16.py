"""Rounding to bfloat16, and kernels on activations in it: computed in float32, rounded where they are stored."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ringlet.kernels.bfloat16 import BFLOAT16, parameter_dtype, rounded, widened
from ringlet.kernels.contract import Kernels
from ringlet.kernels.reference import elements

REFERENCE = Kernels()


def bits(*values: int) -> np.ndarray:
    return np.array(values, np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("given_bits", "expected"),
    [
        pytest.param(0x3F800000, 0x3F80, id="one"),
        pytest.param(0x3F808000, 0x3F80, id="a tie goes down to the even neighbour"),
        pytest.param(0x3F818000, 0x3F82, id="a tie goes up to the even neighbour"),
        pytest.param(0x3F808001, 0x3F81, id="just above a tie"),
        pytest.param(0xBF818000, 0xBF82, id="negative"),
        pytest.param(0x7F7FFFFF, 0x7F80, id="the largest number overflows"),
        pytest.param(0xFF800000, 0xFF80, id="infinity stays"),
        pytest.param(0x7F800001, 0x7FC0, id="not a number stays none, quietly"),
        pytest.param(0xFFFFFFFF, 0xFFFF, id="negative not a number"),
        pytest.param(0x00800000, 0x0080, id="the smallest normal number"),
        pytest.param(0x007FFFFF, 0x0000, id="below it there is zero"),
        pytest.param(0x807FFFFF, 0x8000, id="with its sign"),
    ],
)
def test_rounding(given_bits, expected):
    assert rounded(bits(given_bits)).view(np.uint16)[0] == expected


@given(arrays.arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32, allow_subnormal=False)))
@settings(max_examples=100, deadline=None)
def test_normal_numbers_round_as_everyone_does(values):
    theirs = values.astype(ml_dtypes.bfloat16)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(rounded(values)[numbers].view(np.uint16), theirs[numbers].view(np.uint16))
    assert np.isnan(widened(rounded(values))[~numbers]).all()


def test_a_stored_number_stays_as_it_is():
    every = np.arange(2**16, dtype=np.uint16)
    normal = every[((every & 0x7F80) != 0) | ((every & 0x7F) == 0)].view(BFLOAT16)
    again = rounded(widened(normal))
    numbers = ~np.isnan(widened(normal))
    np.testing.assert_array_equal(again[numbers].view(np.uint16), normal[numbers].view(np.uint16))


@pytest.mark.parametrize(("dtype", "expected"), [("float64", "f8"), ("float32", "f4"), ("bfloat16", "f4")])
def test_parameters_of_passes_in_bfloat16_are_float32(dtype, expected):
    assert parameter_dtype(dtype) == np.dtype(expected)


def narrow(seed: int, *shape: int) -> np.ndarray:
    return rounded(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def test_a_result_is_rounded_once():
    """The sum of a layer, its bias and what is there already are added in float32."""
    x, weight, bias = narrow(0, 40, 8), np.random.default_rng(1).standard_normal((3, 40)).astype("f4"), np.ones(3, "f4")
    y = narrow(2, 3, 8)
    REFERENCE.dense_forward(x, weight, bias, y, relu=False)
    exact = widened(rounded(weight)).astype("f8") @ widened(x).astype("f8") + 1
    assert np.abs(widened(y) - exact).max() <= np.abs(exact).max() * 2**-8
    np.testing.assert_array_equal(y.view(np.uint16), rounded(exact.astype("f4")).view(np.uint16))


def test_weights_are_rounded_before_they_are_multiplied():
    weight = np.array([[1 + 2**-9]], "f4")
    y = np.zeros((1, 8), BFLOAT16)
    REFERENCE.dense_forward(rounded(np.full((1, 8), 3.0, "f4")), weight, None, y, relu=False)
    np.testing.assert_array_equal(widened(y), 3.0)


def test_gradients_of_weights_are_not_rounded():
    x, dy, dweight = narrow(3, 5, 8), narrow(4, 3, 8), np.empty((3, 5), "f4")
    REFERENCE.dense_backward_weight(x, dy, dweight)
    np.testing.assert_array_equal(dweight, widened(dy) @ widened(x).T)
    assert not np.array_equal(dweight, widened(rounded(dweight)))


def test_what_accumulates_is_added_before_it_is_rounded():
    dy, dx = narrow(5, 4, 8), narrow(6, 4, 8)
    expected = widened(dx)
    elements.dropout(widened(dy), expected, rate=0.25, key=7, accumulate=True)
    REFERENCE.dropout(dy, dx, rate=0.25, key=7, accumulate=True)
    np.testing.assert_array_equal(dx.view(np.uint16), rounded(expected).view(np.uint16))


def test_a_kernel_may_write_where_it_reads():
    x = narrow(7, 4, 8)
    expected = rounded(np.maximum(widened(x), 0))
    from ringlet.kernels.contract import RELU

    REFERENCE.activation_forward(RELU, x, x)
    np.testing.assert_array_equal(x.view(np.uint16), expected.view(np.uint16))


def test_statistics_are_float32():
    x, y = narrow(8, 3, 4, 4, 8), np.zeros((3, 4, 4, 8), BFLOAT16)
    mean, inv_std, running_mean, running_var = (np.zeros(3, "f4") for _ in range(4))
    affine = np.ones(3, "f4"), np.zeros(3, "f4")
    REFERENCE.batch_norm_forward_train(
        x, *affine, y, mean, inv_std, running_mean, running_var, n=8, momentum=0.9, epsilon=1e-5, relu=False
    )
    np.testing.assert_allclose(mean, widened(x).mean((1, 2, 3)), rtol=1e-5, atol=1e-7)
    assert np.abs(widened(y).mean((1, 2, 3))).max() < 2**-8
