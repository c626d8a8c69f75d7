"""What the tests of optimizers share: both implementations of the kernels, and random flat buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from ringlet.kernels import available, load
from ringlet.kernels.contract import Kernels


@pytest.fixture(params=["reference", "compiled"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """Each implementation that exists here."""
    if request.param not in available():
        pytest.skip(f"the {request.param} kernels are not built")
    return load(request.param)


@pytest.fixture
def gradient_at() -> Callable[[int, int], NDArray[np.float64]]:
    """A gradient buffer of some size for each step, always the same one."""

    def make(step: int, size: int) -> NDArray[np.float64]:
        return np.random.default_rng([step, size]).normal(size=size)

    return make
