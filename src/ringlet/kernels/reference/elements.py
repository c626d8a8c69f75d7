"""Kernels without windows: moving data, dense layers, activations, softmax, dropout, batch normalisation.

Batch normalisation is per channel over all pixels of the real samples, for ``(C, H, W, L)`` and ``(F, L)``; its
statistics are summed in float64: the reference must not carry the rounding of a long float32 sum. Dropout's mask is a
pure function of a key: nothing is stored, and no two samples share a mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.kernels.definitions import Elementwise, Floats


# -- data movement -----------------------------------------------------------------------------------------------------
def pack(samples: NDArray[Any], out: Floats) -> None:
    """``samples (n, *shape)`` (``out``'s dtype, or uint8) to ``out (*shape, L)``; padding lanes become zero."""
    num_samples = len(samples)
    out[..., :num_samples] = np.moveaxis(samples, 0, -1)
    out[..., num_samples:] = 0


def unpack(activations: Floats, out: Floats) -> None:
    """``activations (*shape, L)`` to ``out (n, *shape)``, dropping padding lanes."""
    out[...] = np.moveaxis(activations[..., : len(out)], -1, 0)


def add(a: Floats, b: Floats, out: Floats) -> None:
    """``out = a + b``, any equal shapes; ``out`` may be ``a`` or ``b``."""
    np.add(a, b, out=out)


def store(value: Floats, out: Floats, accumulate: bool) -> None:
    """Overwrite ``out``, or add to it: what every gradient of an activation does at its end."""
    if accumulate:
        out += value
    else:
        out[...] = value


# -- dense layers ------------------------------------------------------------------------------------------------------
def dense_forward(x: Floats, weight: Floats, bias: Floats | None, y: Floats, *, relu: bool) -> None:
    """``y = weight @ x + bias[:, None]``; ``x (I, L)``, ``weight (O, I)``, ``y (O, L)``."""
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


def bias_forward(y: Floats, bias: Floats, *, relu: bool) -> None:
    """``y[k, …] += bias[k]`` in place, ReLU on top if ``relu``."""
    y += bias.reshape(-1, *[1] * (y.ndim - 1))
    if relu:
        np.maximum(y, 0, out=y)


def bias_backward(dy: Floats, dbias: Floats) -> None:
    """``dbias[k] = sum(dy[k, …])``."""
    dbias[...] = dy.reshape(len(dy), -1).sum(axis=1)


# -- element by element ------------------------------------------------------------------------------------------------
def activation_forward(kind: Elementwise, x: Floats, y: Floats) -> None:
    """``y = f(x)``. ``y`` may be ``x``.

    ReLU passes on what is not a number: a diverged network must not look healthy.
    """
    y[...] = kind.function(x)


def activation_backward(kind: Elementwise, value: Floats, dy: Floats, dx: Floats, *, accumulate: bool) -> None:
    """``dx = dy * f'(x)``; ``f'`` is computed from ``value``: y, or x if the kind says so. ``dx`` may be ``dy``."""
    store(dy * kind.derivative(value), dx, accumulate)


def softmax_forward(x: Floats, y: Floats) -> None:
    """Softmax over the first axis, shifted by the maximum. ``y`` may be ``x``."""
    exponentials = np.exp(x - x.max(axis=0))
    np.divide(exponentials, exponentials.sum(axis=0), out=y)


def softmax_backward(y: Floats, dy: Floats, dx: Floats, *, accumulate: bool) -> None:
    """``dx = y * (dy - sum_c y dy)``."""
    store(y * (dy - (y * dy).sum(axis=0)), dx, accumulate)


def dropout(x: Floats, y: Floats, *, rate: float, key: int, accumulate: bool) -> None:
    """``y = x * keep / (1 - rate)``, the same function forward and backward.

    Element ``i`` (flat index without the lane axis, modulo 2^32) of lane ``j`` is kept when
    ``hash(i, j, key) >= floor(rate * 2^32)`` with, in 32-bit arithmetic and ``mix`` as in :func:`mix32`,
    ``hash = mix(mix(i ^ low(key)) + j * 0x9E3779B9 ^ high(key))`` (``^`` binds weaker than ``+``). So a mask is
    a pure function of its key: nothing is stored, nothing depends on the number of lanes.
    """
    num_lanes = x.shape[-1]
    keep = keep_mask(x.size // num_lanes, num_lanes, rate, key).reshape(x.shape)
    factor = x.dtype.type(1 / (1 - rate))
    store(np.where(keep, x * factor, x.dtype.type(0)), y, accumulate)


def keep_mask(num_elements: int, num_lanes: int, rate: float, key: int) -> NDArray[np.bool_]:
    """``(elements, lanes)``: where ``mix(mix(i ^ low(key)) + j * 0x9E3779B9 ^ high(key)) >= floor(rate * 2^32)``."""
    low, high = np.uint32(key & 0xFFFFFFFF), np.uint32((key >> 32) & 0xFFFFFFFF)
    elements = np.arange(num_elements, dtype=np.uint64).astype(np.uint32)[:, None]
    lanes = np.arange(num_lanes, dtype=np.uint32)
    hashes = mix32((mix32(elements ^ low) + lanes * np.uint32(0x9E3779B9)) ^ high)
    return hashes >= np.uint32(int(rate * 2**32))


def mix32(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Scramble each 32-bit number: a bijection in which every input bit flips every output bit about half the time."""
    mixed: NDArray[Any] = values ^ (values >> np.uint32(16))
    mixed *= np.uint32(0x7FEB352D)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x846CA68B)
    mixed ^= mixed >> np.uint32(16)
    return mixed


# -- batch normalisation -----------------------------------------------------------------------------------------------
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
    """``y = gamma * (x - mean) * inv_std + beta`` per channel, ReLU on top if ``relu``.

    Statistics are over the ``n`` real lanes and all pixels. Writes the batch's ``mean`` and
    ``inv_std = 1 / sqrt(var + epsilon)`` (biased variance, as exact as two passes) for the backward pass.
    ``running = momentum * running + (1 - momentum) * batch``, with the unbiased variance (count / (count - 1);
    biased if count is 1). Padding lanes of ``y`` become 0: far from the batch's mean they would grow from layer to
    layer, where the variance is small. ``y`` may be ``x``'s buffer only if the backward pass is never called.
    """
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
    """With ``g = dy * (y > 0)`` if ``relu`` else ``dy``, ``h = (x - mean) * inv_std`` and M = n * pixels:
    ``dbeta = sum g``, ``dgamma = sum g h``, ``dx = gamma * inv_std * (g - dbeta / M - h * dgamma / M)``;
    padding lanes of ``dx`` get zeros. ``dx`` may be ``dy``'s buffer (then without ``accumulate``)."""
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
