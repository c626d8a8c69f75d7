"""One suite over every implementation of the kernels: fixtures that make arrays by the rules of the contract.

Padding lanes of activations hold random garbage and outputs start as NaN, so a kernel that looks at the one or forgets
a part of the other fails. PyTorch in float64 is the independent oracle, whatever the dtype under test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ringlet.kernels import available, load
from ringlet.kernels.contract import Elementwise, Kernels
from ringlet.operations import OPERATIONS

Array = NDArray[Any]
GARBAGE = 50.0


def elementwise(kind: str, slope: float = 0.0) -> Elementwise:
    """An activation, as kernels want to know it."""
    operation = OPERATIONS[kind]
    return operation.elementwise({"slope": slope} if operation.attributes else {})


def lanes_of(n: int) -> int:
    """Lanes for ``n`` samples: batches of 7 and 17 have some padding, as a smaller last batch has; others have none."""
    return n + {7: 2, 17: 3}.get(n, 0)


class Lab:
    """Arrays for one implementation and dtype, and comparisons with tolerances that fit the dtype."""

    def __init__(self, kernels: Kernels, dtype: str, seed: int = 0) -> None:
        self.kernels = kernels
        self.dtype = np.dtype(dtype)
        self.rng = np.random.default_rng(seed)

    def activation(self, n: int, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
        """Random values in the real lanes, large random garbage in the padding lanes."""
        array = self.rng.uniform(-GARBAGE, GARBAGE, (*shape, lanes_of(n)))
        array[..., :n] = self.rng.uniform(low, high, (*shape, n))
        return array.astype(self.dtype)

    def activate(self, kind: str, x: Array, y: Array, *, slope: float = 0.0) -> None:
        self.kernels.activation_forward(elementwise(kind, slope), x, y)

    def differentiate(
        self, kind: str, y: Array, dy: Array, dx: Array, *, slope: float = 0.0, accumulate: bool = False
    ) -> None:
        self.kernels.activation_backward(elementwise(kind, slope), y, dy, dx, accumulate=accumulate)

    def gradient(self, n: int, *shape: int) -> Array:
        """Random values in the real lanes, zeros in the padding lanes."""
        array = self.activation(n, *shape)
        array[..., n:] = 0
        return array

    def parameter(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
        return self.rng.uniform(low, high, shape).astype(self.dtype)

    def output(self, n: int, *shape: int) -> Array:
        """An activation that nobody has written yet."""
        return np.full((*shape, lanes_of(n)), np.nan, self.dtype)

    def unwritten(self, *shape: int) -> Array:
        """A parameter's gradient that nobody has written yet."""
        return np.full(shape, np.nan, self.dtype)

    @staticmethod
    def samples(array: Array, n: int) -> Array:
        """The real lanes in PyTorch's order ``(n, *shape)``, in float64."""
        return np.ascontiguousarray(np.moveaxis(array[..., :n], -1, 0)).astype(np.float64)

    def oracle(self, array: Array, n: int | None = None) -> torch.Tensor:
        """A float64 leaf tensor that collects a gradient: of an activation if ``n`` is given, else of a parameter."""
        values = array.astype(np.float64) if n is None else self.samples(array, n)
        return torch.tensor(values, dtype=torch.float64, requires_grad=True)

    def constant(self, array: Array, n: int) -> torch.Tensor:
        return torch.tensor(self.samples(array, n), dtype=torch.float64)

    @property
    def tolerance(self) -> float:
        return 2e-5 if self.dtype == np.float32 else 1e-11

    def assert_close(self, actual: Array, expected: Any, *, factor: float = 1.0) -> None:
        """Equal up to the tolerance times the largest expected magnitude."""
        if isinstance(expected, torch.Tensor):
            expected = expected.detach().numpy()
        expected = np.asarray(expected, np.float64)
        assert actual.shape == expected.shape
        bound = self.tolerance * factor * max(1e-3, float(np.max(np.abs(expected), initial=0.0)))
        np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=bound)

    def assert_activation(self, actual: Array, expected: Any, n: int, *, factor: float = 1.0) -> None:
        assert np.isfinite(actual).all(), "padding lanes of an activation must be finite"
        self.assert_close(self.samples(actual, n), expected, factor=factor)

    def assert_gradient(self, actual: Array, expected: Any, n: int, *, factor: float = 1.0) -> None:
        assert not actual[..., n:].any(), "padding lanes of a gradient must be zero"
        self.assert_close(self.samples(actual, n), expected, factor=factor)


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=available())
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return load(request.param)


@pytest.fixture(scope="session", params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def make_lab() -> Callable[..., Lab]:
    """``make_lab(kernels, dtype, seed)``, for tests that choose these themselves."""
    return Lab


@pytest.fixture
def lab(kernels: Kernels, dtype: str) -> Lab:
    return Lab(kernels, dtype)


@pytest.fixture
def lab64(kernels: Kernels) -> Lab:
    """In float64, for numerical derivatives."""
    return Lab(kernels, "float64")


@pytest.fixture(params=[1, 2, 3, 7, 16, 17, 64], ids=lambda n: f"n{n}")
def n(request: pytest.FixtureRequest) -> int:
    return int(request.param)
