"""Between the layout of samples ``(n, *shape)`` and the layout of the kernels ``(*shape, L)``; sums of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.contract import Floats


def pack(samples: NDArray[Any], out: Floats) -> None:
    """Move the sample axis innermost; padding lanes become zero."""
    num_samples = len(samples)
    out[..., :num_samples] = np.moveaxis(samples, 0, -1)
    out[..., num_samples:] = 0


def unpack(activations: Floats, out: Floats) -> None:
    """Move the sample axis outermost and drop the padding lanes."""
    out[...] = np.moveaxis(activations[..., : len(out)], -1, 0)


def add(a: Floats, b: Floats, out: Floats) -> None:
    """``out = a + b``; ``out`` may be ``a`` or ``b``."""
    np.add(a, b, out=out)


def store(value: Floats, out: Floats, accumulate: bool) -> None:
    """Overwrite ``out``, or add to it: what every gradient of an activation does at its end."""
    if accumulate:
        out += value
    else:
        out[...] = value
