"""Words that all kernels share: types, names, limits, and what an activation is to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Pair = tuple[int, int]
Loss = Literal[
    "softmax_cross_entropy",
    "categorical_cross_entropy",
    "softmax_soft_cross_entropy",
    "soft_cross_entropy",
    "sigmoid_binary_cross_entropy",
    "binary_cross_entropy",
    "dice",
    "bce_dice",
    "sigmoid_bce_dice",
    "mse",
    "mae",
]

PreparedCall = Callable[[], None]
"""What :meth:`Kernels.prepare` gives."""

CONV_ALGORITHMS = ("direct", "gemm", "winograd_rows", "winograd2", "winograd4")
"""Ways to compute a convolution. Winograd needs 3x3 kernels, stride 1, dilation 1 and one group."""

NO_ELEMENT = 65535
"""In ``argmax``: nothing flows back through this window. So a window has at most 65,535 elements."""

ARCTANH_LIMIT = 7.25
"""Arctanh saturates at ± this, with derivative zero there: padding lanes stay finite whatever they hold."""

DICE_SMOOTH = 1.0
"""Added to numerator and denominator of the dice coefficient, so that two empty masks agree."""


@dataclass(frozen=True)
class Elementwise:
    """An activation: kernels that do not know its name compute it by its functions of NumPy."""

    name: str
    function: Callable[[Floats], NDArray[Any]]
    """``f``: finite arguments, as padding lanes may hold, give finite results."""
    derivative: Callable[[Floats], NDArray[Any]]
    """``f'(x)``, computed from ``y = f(x)``."""
    slope: float = 0.0
    """What compiled kernels take beside x: leaky ReLU's."""
    reads_input: bool = False
    """Whether the derivative is computed from x instead."""


RELU = Elementwise("relu", lambda x: np.maximum(x, 0), lambda y: y > 0)
"""The one that other kernels have built in."""
