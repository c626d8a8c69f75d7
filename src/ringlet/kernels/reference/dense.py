"""Dense layers: plain matrix products on ``(features, lanes)``."""

from __future__ import annotations

import numpy as np

from ringlet.kernels.contract import Floats
from ringlet.kernels.reference.convolution import bias_forward
from ringlet.kernels.reference.movement import store


def dense_forward(x: Floats, weight: Floats, bias: Floats | None, y: Floats, *, relu: bool) -> None:
    """``y = weight @ x + bias[:, None]``, ReLU on top if ``relu``."""
    np.matmul(weight, x, out=y)
    if bias is not None:
        bias_forward(y, bias, relu=relu)
    elif relu:
        np.maximum(y, 0, out=y)


def dense_backward_data(dy: Floats, weight: Floats, dx: Floats, *, accumulate: bool) -> None:
    """``dx = weight.T @ dy``."""
    store(weight.T @ dy, dx, accumulate)


def dense_backward_weight(x: Floats, dy: Floats, dweight: Floats) -> None:
    """``dweight = dy @ x.T``."""
    np.matmul(dy, x.T, out=dweight)
