"""Batch normalisation per channel over all pixels of the real samples, for ``(C, H, W, L)`` and ``(F, L)``.

Statistics are summed in float64: the reference must not carry the rounding of a long float32 sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.contract import Floats
from ringlet.kernels.reference.movement import store


def batch_norm_forward_train(
    x: Floats,
    gamma: Floats,
    beta: Floats,
    y: Floats,
    mean: Floats,
    inv_std: Floats,
    running_mean: Floats,
    running_var: Floats,
    *,
    n: int,
    momentum: float,
    epsilon: float,
    relu: bool,
) -> None:
    """``y = gamma * (x - mean) * inv_std + beta`` with the batch's statistics; running statistics follow."""
    samples = x[..., :n]
    count = samples[0].size
    batch_mean = _channel_sums(samples) / count
    batch_var = _channel_sums((samples - _column(batch_mean, x)) ** 2) / count
    mean[...] = batch_mean
    inv_std[...] = 1 / np.sqrt(batch_var + epsilon)
    _normalize(x, gamma, beta, mean, inv_std, y, relu)
    y[..., n:] = 0
    running_mean[...] = momentum * running_mean + (1 - momentum) * batch_mean
    unbiased = batch_var * (count / max(count - 1, 1))
    running_var[...] = momentum * running_var + (1 - momentum) * unbiased


def batch_norm_forward_infer(
    x: Floats,
    gamma: Floats,
    beta: Floats,
    running_mean: Floats,
    running_var: Floats,
    y: Floats,
    *,
    epsilon: float,
    relu: bool,
) -> None:
    """The same with the running statistics, which stay as they are."""
    _normalize(x, gamma, beta, running_mean, 1 / np.sqrt(running_var + epsilon), y, relu)


def batch_norm_backward(
    x: Floats,
    y: Floats,
    gamma: Floats,
    dy: Floats,
    mean: Floats,
    inv_std: Floats,
    dx: Floats,
    dgamma: Floats,
    dbeta: Floats,
    *,
    n: int,
    relu: bool,
    accumulate: bool,
) -> None:
    """``dx = gamma * inv_std * (g - dbeta / M - h * dgamma / M)``, ``h = (x - mean) * inv_std``, ``M = n * pixels``."""
    samples = x[..., :n]
    count = samples[0].size
    gradient = dy[..., :n] * (y[..., :n] > 0) if relu else dy[..., :n]
    normalized = (samples - _column(mean, x)) * _column(inv_std, x)
    dbeta[...] = _channel_sums(gradient)
    dgamma[...] = _channel_sums(gradient * normalized)
    centred = gradient - _column(dbeta / count, x) - normalized * _column(dgamma / count, x)
    store(_column(gamma * inv_std, x) * centred, dx[..., :n], accumulate)
    dx[..., n:] = 0


def _normalize(x: Floats, gamma: Floats, beta: Floats, mean: Floats, inv_std: Floats, y: Floats, relu: bool) -> None:
    y[...] = _column(gamma * inv_std, x) * (x - _column(mean, x)) + _column(beta, x)
    if relu:
        np.maximum(y, 0, out=y)


def _channel_sums(values: Floats) -> NDArray[np.float64]:
    """Sums over everything but the first axis."""
    sums: NDArray[Any] = values.sum(axis=tuple(range(1, values.ndim)), dtype=np.float64)
    return sums


def _column(per_channel: Floats, like: Floats) -> Floats:
    """``(C,)`` as ``(C, 1, …)`` in the dtype of ``like``, to combine with it."""
    return per_channel.astype(like.dtype, copy=False).reshape(-1, *[1] * (like.ndim - 1))
