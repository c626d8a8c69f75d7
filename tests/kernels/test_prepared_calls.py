"""Calls that are prepared once and made often compute what the kernel does, with what the arrays hold by then."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ringlet.kernels.contract import RELU, Elementwise

N = 7


def test_a_prepared_call_reads_its_arrays_each_time(lab):
    x, weight, bias = lab.activation(N, 5), lab.parameter(3, 5), lab.parameter(3)
    y, expected = lab.output(N, 3), lab.output(N, 3)
    call = lab.kernels.prepare("dense_forward", (x, weight, bias, y), {"relu": True})
    assert np.isnan(y).all(), "preparing computes nothing"
    for _ in range(2):
        x[:] = lab.activation(N, 5)
        call()
        lab.kernels.dense_forward(x, weight, bias, expected, relu=True)
        assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("bias", [True, False])
def test_all_kinds_of_arguments(lab, bias):
    x, weight = lab.activation(N, 2, 6, 5), lab.parameter(4, 2, 3, 3)
    shift = lab.parameter(4) if bias else None
    options = {
        "stride": (1, 2), "padding": (1, 0), "dilation": (1, 1), "groups": 1, "relu": False, "algorithm": "direct",
    }  # fmt: skip
    y, expected = lab.output(N, 4, 6, 2), lab.output(N, 4, 6, 2)
    lab.kernels.conv2d_forward(x, weight, shift, expected, **options)
    lab.kernels.prepare("conv2d_forward", (x, weight, shift, y), options)()
    assert y.tobytes() == expected.tobytes()


def test_options_may_be_left_out_as_in_the_kernel(lab):
    x, y, argmax = lab.activation(N, 2, 4, 4), lab.output(N, 2, 2, 2), np.empty(lab.output(N, 2, 2, 2).shape, np.uint16)
    window = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}
    lab.kernels.prepare("max_pool2d_forward", (x, y, argmax), window)()
    lab.assert_close(y, x.reshape(2, 2, 2, 2, 2, -1).max(axis=(2, 4)))


def test_a_prepared_call_keeps_what_it_needs(lab):
    y = lab.output(N, 3)
    numbers = lab.activation(N, 3)
    expected = np.maximum(numbers, 0)
    kind = Elementwise("".join(["re", "lu"]), RELU.function, RELU.derivative)  # with a text that no one else holds
    call = lab.kernels.prepare("activation_forward", (kind, numbers.copy(), y), {})
    del kind
    gc.collect()
    litter = [np.full_like(numbers, np.nan) for _ in range(100)]  # would lie where the arrays were
    call()
    del litter
    assert y.tobytes() == expected.tobytes()


def test_calls_in_turn(lab):
    x, y = lab.activation(N, 3), lab.output(N, 3)
    rectify = lab.kernels.prepare("activation_forward", (RELU, x, y), {})
    double = lab.kernels.prepare("add", (y, y, y), {})
    both = lab.kernels.in_turn([rectify, double])
    del rectify, double
    lab.kernels.in_turn([both, both, lab.kernels.prepare("add", (y, y, y), {})])()
    lab.assert_close(y, 4 * np.maximum(x, 0).astype(np.float64))
    lab.kernels.in_turn([])()


def test_shapes_that_do_not_fit_are_refused(lab):
    x, weight, y = lab.activation(N, 5), lab.parameter(3, 4), lab.output(N, 3)
    call = lab.kernels.prepare("dense_forward", (x, weight, None, y), {"relu": False})
    with pytest.raises(ValueError, match=r"weight|mismatch|core dim"):
        lab.kernels.in_turn([call])()


def test_an_unknown_kernel_is_refused(lab):
    with pytest.raises((AttributeError, KeyError), match="no_such_kernel"):
        lab.kernels.prepare("no_such_kernel", (), {})
