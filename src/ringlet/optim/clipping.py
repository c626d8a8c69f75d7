"""Bounds on gradients, in place, before the optimizer sees them."""

from __future__ import annotations

import math

import numpy as np

from ringlet.errors import ConfigError
from ringlet.kernels.contract import Floats, Kernels
from ringlet.optim.base import default_kernels


def clip_by_value(gradients: Floats, limit: float) -> None:
    """Bring every element into ``[-limit, limit]``. NaN stays NaN."""
    _check_limit("clip_by_value", limit)
    np.clip(gradients, -limit, limit, out=gradients)


def global_norm(gradients: Floats, *, kernels: Kernels | None = None) -> float:
    """The Euclidean norm of a flat buffer, added up in float64."""
    return math.sqrt((default_kernels() if kernels is None else kernels).sum_squares(gradients))


def clip_by_global_norm(
    gradients: Floats, limit: float, *, norm: float | None = None, kernels: Kernels | None = None
) -> float:
    """Scale ``gradients`` so that their norm is at most ``limit``; return the norm from before.

    ``norm`` is the norm of the whole buffer when ``gradients`` is only a slice of it. A norm that is not finite is
    returned and the gradients are left alone: scaling would turn one bad element into many, and hide it.
    Pascanu, Mikolov and Bengio, *On the difficulty of training recurrent neural networks*, 2013.
    """
    _check_limit("clip_by_global_norm", limit)
    chosen = default_kernels() if kernels is None else kernels
    total = global_norm(gradients, kernels=chosen) if norm is None else norm
    if math.isfinite(total) and total > limit:
        chosen.scale(gradients, limit / total)
    return total


def _check_limit(owner: str, limit: float) -> None:
    if not (math.isfinite(limit) and limit > 0):
        raise ConfigError(f"{owner}: limit={limit!r} is not allowed; expected a finite number > 0")
