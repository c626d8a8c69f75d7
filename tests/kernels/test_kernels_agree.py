"""The compiled kernels compute what the reference ones specify, for random shapes, with every instruction set."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.kernels import available, load
from ringlet.kernels.contract import CONV_ALGORITHMS, Loss
from ringlet.operations.activations import OPERATIONS

ACTIVATIONS = [operation.name for operation in OPERATIONS]

if "compiled" not in available():
    pytest.skip("the compiled kernels are not built here", allow_module_level=True)

FACTORS = {"winograd_rows": 5.0, "winograd2": 3.0, "winograd4": 20.0}
NAMES = ("reference", "compiled")
few_examples = settings(max_examples=25, deadline=None, derandomize=True, database=None)
samples = st.integers(1, 40)
seeds = st.integers(0, 2**16)


def instruction_sets() -> list[str]:
    return load("compiled").instruction_sets()


@pytest.fixture(scope="module", params=instruction_sets())
def instruction_set(request):
    compiled = load("compiled")
    before = compiled.instruction_set()
    compiled.use_instruction_set(request.param)
    yield request.param
    compiled.use_instruction_set(before)


@pytest.fixture(scope="module")
def both(make_lab, dtype, instruction_set):
    """Two labs with the same random numbers, the reference one first."""
    return lambda seed: [make_lab(load(name), dtype, seed) for name in NAMES]


def assert_agree(lab, results, *, factor: float = 5.0) -> None:
    for expected, actual in zip(*results, strict=True):
        lab.assert_close(np.asarray(actual), np.asarray(expected), factor=factor)


@given(
    n=samples, seed=seeds, channels=st.integers(1, 20), filters=st.integers(1, 20),
    size=st.tuples(st.integers(2, 13), st.integers(2, 13)), algorithm=st.sampled_from(CONV_ALGORITHMS),
)  # fmt: skip
@few_examples
def test_convolutions_agree(both, n, seed, channels, filters, size, algorithm):
    window = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    results = []
    for lab in both(seed):
        x, dy = lab.activation(n, channels, *size), lab.gradient(n, filters, *size)
        weight, bias = lab.parameter(filters, channels, 3, 3), lab.parameter(filters)
        y, dx, dweight = np.empty_like(dy), np.empty_like(x), np.empty_like(weight)
        lab.kernels.conv2d_forward(x, weight, bias, y, **window, relu=True, algorithm=algorithm)
        lab.kernels.conv2d_backward_data(dy, weight, dx, **window, algorithm=algorithm, accumulate=False)
        lab.kernels.conv2d_backward_weight(x, dy, dweight, **window, algorithm=algorithm)
        results.append((y[..., :n], dx, dweight))
    assert_agree(lab, results, factor=FACTORS.get(algorithm, 1.0))


@given(n=samples, seed=seeds, channels=st.integers(1, 9), size=st.tuples(st.integers(3, 12), st.integers(3, 12)))
@few_examples
def test_pooling_agrees_exactly_on_the_maximum(both, n, seed, channels, size):
    window = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    out = [(extent - 1) // 2 + 1 for extent in size]
    results = []
    for lab in both(seed):
        x = np.round(lab.activation(n, channels, *size) * 3) / 3  # many ties
        y, mean = lab.output(n, channels, *out), lab.output(n, channels, *out)
        argmax = np.empty(y.shape, np.uint16)
        lab.kernels.max_pool2d_forward(x, y, argmax, **window)
        lab.kernels.avg_pool2d_forward(x, mean, **window)
        results.append((y, argmax, mean))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
    assert_agree(lab, [(result[2],) for result in results])


@given(n=samples, seed=seeds, channels=st.integers(1, 9), size=st.integers(1, 8), relu=st.booleans())
@few_examples
def test_batch_normalisation_agrees(both, n, seed, channels, size, relu):
    results = []
    for lab in both(seed):
        shape = (channels, size, size)
        x, dy, gamma, beta = (
            lab.activation(n, *shape), lab.gradient(n, *shape), lab.parameter(channels), lab.parameter(channels),
        )  # fmt: skip
        y, dx, dgamma, dbeta = np.empty_like(x), np.empty_like(x), np.empty_like(gamma), np.empty_like(beta)
        mean, inv_std, running_mean, running_var = np.ones((4, channels), lab.dtype)
        lab.kernels.batch_norm_forward_train(
            x, gamma, beta, y, mean, inv_std, running_mean, running_var, n=n, momentum=0.9, epsilon=1e-2, relu=relu
        )
        lab.kernels.batch_norm_backward(
            x, np.ones_like(x), gamma, dy, mean, inv_std, dx, dgamma, dbeta, n=n, relu=relu, accumulate=False
        )
        results.append((y[..., :n], mean, inv_std, running_mean, running_var, dgamma, dbeta, dx))
    # Ten bounds wide: a channel of few values leaves dx a small difference of large terms.
    assert_agree(lab, [result[:-1] for result in results], factor=10)
    np.testing.assert_allclose(results[1][-1], results[0][-1], rtol=0, atol=lab.tolerance * 50)


@given(n=samples, seed=seeds, kind=st.sampled_from(ACTIVATIONS), spread=st.sampled_from([0.9, 10.0, 1e4]))
@few_examples
def test_activations_agree(both, n, seed, kind, spread):
    results = []
    for lab in both(seed):
        x, dy = lab.activation(n, 3, 5, 4, low=-spread, high=spread), lab.gradient(n, 3, 5, 4)
        y, dx = np.empty_like(x), np.empty_like(x)
        lab.activate(kind, x, y, slope=0.2)
        lab.differentiate(kind, y, dy, dx, slope=0.2, accumulate=False)
        # Near its ends arctanh's derivative is huge and magnifies the rounding of y.
        results.append((y,) if kind == "arctanh" and spread > 0.9 else (y, dx))
    assert_agree(lab, results)


@given(n=samples, seed=seeds, kind=st.sampled_from(get_args(Loss)), classes=st.integers(1, 12))
@few_examples
def test_losses_agree(both, n, seed, kind, classes):
    results = []
    for lab in both(seed):
        prediction = lab.activation(n, classes, 3, 3, low=0.01, high=0.99)
        if kind in ("softmax_cross_entropy", "categorical_cross_entropy"):
            target = lab.rng.integers(0, classes, (3, 3, prediction.shape[-1])).astype(np.int32)
        else:
            target = lab.activation(n, classes, 3, 3, low=0, high=1)
        gradient = np.empty_like(prediction)
        value = lab.kernels.loss(kind, prediction, target, gradient, n=n, scale=0.5)
        results.append((np.float64(value), gradient))
    assert_agree(lab, results)


@given(n=samples, seed=seeds, rate=st.floats(0, 0.95), key=st.integers(0, 2**64 - 1))
@few_examples
def test_dropout_agrees_exactly(both, n, seed, rate, key):
    results = []
    for lab in both(seed):
        x = lab.activation(n, 5, 4, 3)
        y = np.empty_like(x)
        lab.kernels.dropout(x, y, rate=rate, key=key, accumulate=False)
        results.append(y)
    np.testing.assert_array_equal(*results)
