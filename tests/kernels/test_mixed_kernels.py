"""Compiled kernels on activations in bfloat16 against the reference, which says where they round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ringlet.kernels import available, load
from ringlet.kernels.bfloat16 import BFLOAT16, rounded, widened
from ringlet.kernels.contract import Elementwise, Kernels
from ringlet.operations import OPERATIONS

pytestmark = pytest.mark.skipif("compiled" not in available(), reason="the compiled kernels are not built")

REFERENCE = Kernels()
BATCHES = [1, 7, 16, 17, 32]
Array = NDArray[Any]


@pytest.fixture(scope="module", autouse=True)
def _best_instructions():
    kernels = load("compiled")
    yield
    kernels.use_instruction_set(kernels.instruction_sets()[0])


@pytest.fixture(params=load(available()[0]).instruction_sets() if "compiled" in available() else [])
def compiled(request):
    kernels = load("compiled")
    kernels.use_instruction_set(request.param)
    return kernels.for_activations(BFLOAT16)


def lanes_of(n: int) -> int:
    """As many as samples; 17 of them as the last batch of an epoch, in the lanes of 32."""
    return 32 if n == 17 else n


class Arrays:
    """Random arrays by the rules of the contract."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)

    def parameter(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype("f4")

    def activation(self, n: int, *shape: int) -> Array:
        return rounded(self.parameter(*shape, lanes_of(n)))

    def gradient(self, n: int, *shape: int) -> Array:
        array = self.activation(n, *shape)
        array[..., n:] = 0
        return array


def both(compiled: Kernels, kernel: str, arrays: list[Any], /, **options: Any) -> list[tuple[Array, Array]]:
    """The arrays after the compiled and the reference kernel, as float32."""
    copies = [[value.copy() if isinstance(value, np.ndarray) else value for value in arrays] for _ in range(2)]
    results = [
        getattr(kernels, kernel)(*own, **options) for kernels, own in zip((compiled, REFERENCE), copies, strict=True)
    ]
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    pairs = [pair for pair in zip(*copies, strict=True) if isinstance(pair[0], np.ndarray)]
    return [tuple(widened(array) if array.dtype == BFLOAT16 else array for array in pair) for pair in pairs]  # type: ignore[misc]


def assert_equal_but_for_rounding(found: Array, expected: Array, *, exact: bool = True) -> None:
    """Sums in another order may fall on the other side of a tie; Winograd rounds transformed values."""
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() <= scale * (2**-7 if exact else 2**-3)
    assert np.linalg.norm(found - expected) <= np.linalg.norm(expected) * (2**-10 if exact else 2**-5)


GEOMETRIES = {
    "3x3": {"shape": (6, 9, 7), "filters": 10, "kernel": (3, 3), "padding": (1, 1)},
    "many channels": {"shape": (33, 5, 6), "filters": 40, "kernel": (3, 3), "padding": (1, 1)},
    "strided": {"shape": (5, 9, 8), "filters": 17, "kernel": (3, 3), "padding": (1, 1), "stride": (2, 2)},
    "1x1": {"shape": (20, 4, 4), "filters": 9, "kernel": (1, 1)},
    "1x1 strided": {"shape": (7, 6, 5), "filters": 9, "kernel": (1, 1), "stride": (2, 2)},
    "dilated": {"shape": (4, 9, 9), "filters": 5, "kernel": (3, 2), "padding": (2, 1), "dilation": (2, 1)},
    "groups": {"shape": (6, 6, 6), "filters": 12, "kernel": (3, 3), "padding": (1, 1), "groups": 3},
    "depthwise": {"shape": (9, 7, 7), "filters": 9, "kernel": (3, 3), "padding": (1, 1), "groups": 9},
    "deep": {"shape": (70, 3, 3), "filters": 8, "kernel": (3, 3), "padding": (1, 1)},
    "one pixel": {"shape": (3, 1, 1), "filters": 3, "kernel": (3, 3), "padding": (1, 1)},
}


def convolution(name: str) -> tuple[dict[str, Any], dict[str, Any], tuple[int, int]]:
    case = {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1} | GEOMETRIES[name]
    options = {key: case[key] for key in ("stride", "padding", "dilation", "groups")}
    sizes = [
        (extent + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for extent, pad, gap, kernel, step in zip(
            case["shape"][1:], case["padding"], case["dilation"], case["kernel"], case["stride"], strict=True
        )
    ]
    return case, options, (sizes[0], sizes[1])


CASES = [
    (name, algorithm)
    for name in GEOMETRIES
    for algorithm in ("direct", "gemm", "winograd_rows", "winograd2", "winograd4")
    if (algorithm == "direct" or convolution(name)[1]["groups"] == 1)
    and (not algorithm.startswith("winograd") or name in ("3x3", "many channels", "deep", "one pixel"))
]


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize(("name", "algorithm"), CASES)
def test_convolutions(compiled, name, algorithm, n):
    case, options, size = convolution(name)
    options |= {"algorithm": algorithm}
    make, exact = Arrays(n), not algorithm.startswith("winograd")
    channels, filters = case["shape"][0], case["filters"]
    weight = make.parameter(filters, channels // case["groups"], *case["kernel"])
    x, dy = make.activation(n, *case["shape"]), make.gradient(n, filters, *size)
    bias, y = make.parameter(filters), make.activation(n, filters, *size)
    assert_equal_but_for_rounding(
        *both(compiled, "conv2d_forward", [x, weight, bias, y], relu=True, **options)[3], exact=exact
    )
    dx = make.activation(n, *case["shape"])
    for accumulate, mask in ((False, None), (True, None), (False, x), (True, x)):
        found = both(compiled, "conv2d_backward_data", [dy, weight, dx, mask], accumulate=accumulate, **options)[2]
        assert_equal_but_for_rounding(*found, exact=exact)
    dweight = np.full_like(weight, np.nan)
    found = both(compiled, "conv2d_backward_weight", [x, dy, dweight], **options)[2]
    if exact:
        np.testing.assert_allclose(*found, atol=1e-5 * np.abs(found[1]).max())
    else:
        assert_equal_but_for_rounding(*found, exact=False)


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize(("outputs", "inputs"), [(10, 33), (40, 7), (17, 64), (1, 1)])
def test_dense_layers(compiled, outputs, inputs, n):
    make = Arrays(n)
    weight, bias = make.parameter(outputs, inputs), make.parameter(outputs)
    x, dy = make.activation(n, inputs), make.gradient(n, outputs)
    y, dx = make.activation(n, outputs), make.activation(n, inputs)
    assert_equal_but_for_rounding(*both(compiled, "dense_forward", [x, weight, bias, y], relu=False)[3])
    for accumulate in (False, True):
        assert_equal_but_for_rounding(
            *both(compiled, "dense_backward_data", [dy, weight, dx], accumulate=accumulate)[2]
        )
    found = both(compiled, "dense_backward_weight", [x, dy, np.full_like(weight, np.nan)])[2]
    np.testing.assert_allclose(*found, atol=1e-5 * np.abs(found[1]).max())


@pytest.mark.parametrize("n", BATCHES)
def test_batch_norm(compiled, n):
    make = Arrays(n)
    x, y, dy, dx = (make.activation(n, 5, 4, 3) for _ in range(4))
    dy[..., n:] = 0
    gamma, beta, running_mean = (make.parameter(5) for _ in range(3))
    statistics = [np.empty(5, "f4"), np.empty(5, "f4"), running_mean, np.abs(make.parameter(5)) + 0.5]
    forward = both(
        compiled,
        "batch_norm_forward_train",
        [x, gamma, beta, y, *statistics],
        n=n,
        momentum=0.9,
        epsilon=1e-5,
        relu=True,
    )
    assert_equal_but_for_rounding(*forward[3])
    for pair in forward[4:]:
        np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-5)
    infer = both(compiled, "batch_norm_forward_infer", [x, gamma, beta, *statistics[2:], y], epsilon=1e-5, relu=False)
    assert_equal_but_for_rounding(*infer[5])
    mean, inv_std = forward[4][1], forward[5][1]
    outputs = rounded(forward[3][1])
    for relu, accumulate in ((True, False), (False, True)):
        arrays = [x, outputs, gamma, dy, mean, inv_std, dx, np.empty(5, "f4"), np.empty(5, "f4")]
        back = both(compiled, "batch_norm_backward", arrays, n=n, relu=relu, accumulate=accumulate)
        assert_equal_but_for_rounding(back[6][0][..., :n], back[6][1][..., :n])
        for pair in back[7:]:
            np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-4)


WINDOWS = {
    "overlapping": ((7, 6), (4, 3), {"kernel": (3, 2), "stride": (2, 2), "padding": (1, 0)}),
    "side by side": ((8, 6), (4, 3), {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}),
}


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("windows", WINDOWS)
def test_pooling(compiled, n, relu, windows):
    size, pooled, window = WINDOWS[windows]
    make = Arrays(n)
    x, dy, dx = make.activation(n, 4, *size), make.gradient(n, 4, *pooled), make.activation(n, 4, *size)
    y, argmax = make.activation(n, 4, *pooled), np.zeros((4, *pooled, lanes_of(n)), np.uint16)
    forward = both(compiled, "max_pool2d_forward", [x, y, argmax], relu=relu, **window)
    for pair in forward[1:]:
        np.testing.assert_array_equal(*pair)
    back = both(compiled, "max_pool2d_backward", [dy, forward[2][1], dx, np.empty(4, "f4")], accumulate=relu, **window)
    assert_equal_but_for_rounding(*back[2])
    np.testing.assert_allclose(*back[3], rtol=1e-4, atol=1e-4)
    assert_equal_but_for_rounding(*both(compiled, "avg_pool2d_forward", [x, y], **window)[1])
    assert_equal_but_for_rounding(*both(compiled, "avg_pool2d_backward", [dy, dx], accumulate=relu, **window)[1])


@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh", "without a compiled kernel"])
def test_activations(compiled, kind, n):
    cube = Elementwise("cube", lambda x: x**3, lambda x: 3 * x**2, reads_input=True)
    make, function = Arrays(n), OPERATIONS[kind].elementwise({}) if kind in OPERATIONS else cube
    x, dy, dx = make.activation(n, 3, 50), make.gradient(n, 3, 50), make.activation(n, 3, 50)
    assert_equal_but_for_rounding(*both(compiled, "activation_forward", [function, x, np.zeros_like(x)])[1])
    for accumulate in (False, True):
        pairs = both(compiled, "activation_backward", [function, x, dy, dx], accumulate=accumulate)
        assert_equal_but_for_rounding(*pairs[2])


@pytest.mark.parametrize("n", BATCHES)
def test_the_rest(compiled, n):
    make = Arrays(n)
    x, y, dy = make.activation(n, 6, 5), make.activation(n, 6, 5), make.gradient(n, 6, 5)
    assert_equal_but_for_rounding(*both(compiled, "add", [x, y, np.zeros_like(x)])[2])
    assert_equal_but_for_rounding(*both(compiled, "bias_forward", [x, make.parameter(6)], relu=True)[0])
    np.testing.assert_allclose(*both(compiled, "bias_backward", [dy, np.empty(6, "f4")])[1], rtol=1e-4, atol=1e-5)
    for pair in both(compiled, "dropout", [x, y], rate=0.3, key=99, accumulate=True):
        assert_equal_but_for_rounding(*pair)
    soft = both(compiled, "softmax_forward", [x, np.zeros_like(x)])[1]
    assert_equal_but_for_rounding(*soft)
    assert_equal_but_for_rounding(*both(compiled, "softmax_backward", [rounded(soft[1]), dy, y], accumulate=False)[2])
    labels = make.rng.integers(0, 6, (5, lanes_of(n))).astype("i4")
    found = both(compiled, "loss", ["softmax_cross_entropy", x, labels, y], n=n, scale=0.5)
    assert_equal_but_for_rounding(*found[2])
    samples = make.parameter(n, 6, 5)
    np.testing.assert_array_equal(*both(compiled, "pack", [samples, np.zeros_like(x)])[1])
    np.testing.assert_array_equal(*both(compiled, "unpack", [x, np.zeros((n, 6, 5), "f4")])[1])


def test_rounding_is_that_of_the_specification(compiled):
    """Every kind of number: ties, overflow, numbers that are not normal, infinities, not a number."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32)
    special = [0x7F800001, 0xFFC00000, 0x7FFFFFFF, 1, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x3F808000]
    bits[: len(special)] = special
    bits[64:128] &= 0x807FFFFF
    bits[128:192] = bits[128:192] & 0xFFFF0000 | 0x8000
    samples = bits.view("f4").reshape(16, 256)
    out = np.zeros((256, 16), BFLOAT16)
    compiled.pack(samples, out)
    np.testing.assert_array_equal(out.view(np.uint16), rounded(samples.T).view(np.uint16))


@pytest.mark.parametrize("algorithm", ["gemm", "winograd2", "winograd4"])
def test_instructions_for_bfloat16_change_no_bit(algorithm):
    kernels = load("compiled")
    if not {"x86_64_v4", "x86_64_v4_bf16"} <= set(kernels.instruction_sets()):
        pytest.skip("the processor has no instructions for bfloat16")
    make = Arrays()
    x, dy, weight = make.activation(32, 19, 8, 8), make.gradient(32, 24, 8, 8), make.parameter(24, 19, 3, 3)
    geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1, "algorithm": algorithm}
    results = []
    for name in ("x86_64_v4", "x86_64_v4_bf16"):
        kernels.use_instruction_set(name)
        mixed = kernels.for_activations(BFLOAT16)
        y, dx, dweight = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(weight)
        mixed.conv2d_forward(x, weight, None, y, relu=False, **geometry)
        mixed.conv2d_backward_data(dy, weight, dx, None, accumulate=False, **geometry)
        mixed.conv2d_backward_weight(x, dy, dweight, **geometry)
        results.append((y.view(np.uint16), dx.view(np.uint16), dweight))
    for with_them, without in zip(*results, strict=True):
        np.testing.assert_array_equal(with_them, without)


@pytest.mark.parametrize(
    ("algorithm", "forward", "data", "weights"),
    [
        ("direct", 0.003, 0.003, 1e-5),
        ("gemm", 0.003, 0.003, 1e-5),
        ("winograd2", 0.005, 0.006, 0.005),
        ("winograd4", 0.012, 0.014, 0.012),
    ],
)
def test_errors_are_those_of_the_documentation(compiled, algorithm, forward, data, weights):
    """Norms of the differences to float64, relative to those of the results."""
    make = Arrays()
    x, dy = rounded(np.maximum(make.parameter(64, 8, 8, 32), 0)), make.gradient(32, 64, 8, 8)
    weight = make.parameter(64, 64, 3, 3)
    geometry = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    y, dx, dweight = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(weight)
    compiled.conv2d_forward(x, weight, None, y, relu=False, algorithm=algorithm, **geometry)
    compiled.conv2d_backward_data(dy, weight, dx, None, accumulate=False, algorithm=algorithm, **geometry)
    compiled.conv2d_backward_weight(x, dy, dweight, algorithm=algorithm, **geometry)
    exact = [array.astype("f8") for array in (widened(y), widened(dx), dweight, widened(x), widened(dy), weight)]
    geometry |= {"algorithm": "direct"}
    REFERENCE.conv2d_forward(exact[3], exact[5], None, exact[0], relu=False, **geometry)
    REFERENCE.conv2d_backward_data(exact[4], exact[5], exact[1], None, accumulate=False, **geometry)
    REFERENCE.conv2d_backward_weight(exact[3], exact[4], exact[2], **geometry)
    found = zip((widened(y), widened(dx), dweight), exact, (forward, data, weights), strict=False)
    for value, truth, limit in found:
        assert np.linalg.norm(value - truth) < limit * np.linalg.norm(truth)
