"""The arithmetic of the native engine as a contract: every kernel, its shapes and its rules.

``reference`` (NumPy) and ``compiled`` (C++) both implement :class:`Kernels`; one test suite runs over both.

Rules that hold for every kernel
--------------------------------
- Activations are ``(C, H, W, L)`` or ``(F, L)``, C-contiguous: the batch is innermost. ``L`` (*lanes*) is the number of
  samples rounded up to a multiple of ``LANE_MULTIPLE``; the samples are lanes ``0 … n-1``, the rest is padding.
- Padding lanes of *activations* hold finite values without meaning. Padding lanes of *gradients* hold zeros. So sums
  over lanes of a product with a gradient are right without looking at ``n``; the kernels that create values in padding
  lanes of a gradient (losses, batch normalisation) take ``n`` and write zeros there.
- All floating arrays of one call have the same dtype, float32 or float64.
- Outputs are written into arrays that the caller owns; nothing is allocated in a step. Gradients of parameters are
  overwritten. Gradients of activations are overwritten, or added to when ``accumulate`` is true (a tensor with several
  consumers).
- A parameter's gradient is a sum over lanes: any scale (one over the batch) enters once, at the loss.
- Results do not depend on the number of threads.
- Updates may take numbers that are too small to be normal (below 1.2e-38 in float32) for zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Pair = tuple[int, int]
Loss = Literal[
    "softmax_cross_entropy",
    "categorical_cross_entropy",
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

LANE_MULTIPLE = 8
"""Lanes are padded to a multiple of this: one AVX vector of float32, half an AVX-512 one."""

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
    """An activation: compiled kernels may know its name; whoever does not, computes it by its functions of NumPy."""

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


def padded_lanes(num_samples: int) -> int:
    """The number of lanes that hold ``num_samples``."""
    return -(-num_samples // LANE_MULTIPLE) * LANE_MULTIPLE


class Kernels(Protocol):
    """All kernels; see the module docstring for the common rules."""

    name: str

    # -- data movement ------------------------------------------------------------------------------------------------
    def pack(self, samples: NDArray[Any], out: Floats) -> None:
        """``samples (n, *shape)`` (``out``'s dtype, or uint8) to ``out (*shape, L)``; padding lanes become zero."""

    def unpack(self, activations: Floats, out: Floats) -> None:
        """``activations (*shape, L)`` to ``out (n, *shape)``, dropping padding lanes."""

    def add(self, a: Floats, b: Floats, out: Floats) -> None:
        """``out = a + b``, any equal shapes; ``out`` may be ``a`` or ``b``."""

    # -- convolution --------------------------------------------------------------------------------------------------
    def conv2d_forward(
        self,
        x: Floats,
        weight: Floats,
        bias: Floats | None,
        y: Floats,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
        relu: bool,
        algorithm: str,
    ) -> None:
        """``y[k,p,q,n] = bias[k] + sum_{c,r,s} weight[k,c,r,s] * x[c, p*sh - ph + r*dh, q*sw - pw + s*dw, n]``.

        ``x (C, H, W, L)``, ``weight (K, C/groups, R, S)``, ``y (K, P, Q, L)``; zeros outside ``x``; ReLU on top if
        ``relu``. ``algorithm`` is one of ``CONV_ALGORITHMS``; implementations may ignore it but must accept every
        applicable one.
        """

    def conv2d_backward_data(
        self,
        dy: Floats,
        weight: Floats,
        dx: Floats,
        mask: Floats | None = None,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
        algorithm: str,
        accumulate: bool,
    ) -> None:
        """The transpose of ``conv2d_forward`` in ``x``; with a bias added by the caller, the transposed convolution.

        With ``mask`` (shape of ``dx``) the result is zero where ``mask <= 0``: if ``x`` came out of a ReLU,
        ``mask = x`` takes the gradient back through it in the same pass.
        """

    def conv2d_backward_weight(
        self,
        x: Floats,
        dy: Floats,
        dweight: Floats,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
        algorithm: str,
    ) -> None:
        """``dweight[k,c,r,s] = sum_{p,q,n} dy[k,p,q,n] * x[c, p*sh - ph + r*dh, q*sw - pw + s*dw, n]``."""

    def bias_forward(self, y: Floats, bias: Floats, *, relu: bool) -> None:
        """``y[k, …] += bias[k]`` in place, ReLU on top if ``relu``."""

    def bias_backward(self, dy: Floats, dbias: Floats) -> None:
        """``dbias[k] = sum(dy[k, …])``."""

    # -- dense --------------------------------------------------------------------------------------------------------
    def dense_forward(self, x: Floats, weight: Floats, bias: Floats | None, y: Floats, *, relu: bool) -> None:
        """``y = weight @ x + bias[:, None]``; ``x (I, L)``, ``weight (O, I)``, ``y (O, L)``."""

    def dense_backward_data(self, dy: Floats, weight: Floats, dx: Floats, *, accumulate: bool) -> None:
        """``dx = weight.T @ dy``."""

    def dense_backward_weight(self, x: Floats, dy: Floats, dweight: Floats) -> None:
        """``dweight = dy @ x.T``."""

    # -- pooling ------------------------------------------------------------------------------------------------------
    def max_pool2d_forward(
        self,
        x: Floats,
        y: Floats,
        argmax: NDArray[np.uint16],
        *,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        relu: bool = False,
    ) -> None:
        """Maximum of each window (cut at the border); ``argmax`` (shape of ``y``) gets ``r * S + s`` of the first one.

        With ``relu``, where the maximum is not positive, ``y`` is zero and ``argmax`` is ``NO_ELEMENT``.
        """

    def max_pool2d_backward(
        self,
        dy: Floats,
        argmax: NDArray[np.uint16],
        dx: Floats,
        sums: Floats | None = None,
        *,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        accumulate: bool,
    ) -> None:
        """Each ``dy`` goes to the element that ``argmax`` names, if any; overlapping windows add up.

        ``sums`` (one per channel) gets what flows back in all, without what ``dx`` held before.
        """

    def avg_pool2d_forward(self, x: Floats, y: Floats, *, kernel: Pair, stride: Pair, padding: Pair) -> None:
        """Mean of each window over the elements inside ``x`` (padding is not counted)."""

    def avg_pool2d_backward(
        self,
        dy: Floats,
        dx: Floats,
        *,
        kernel: Pair,
        stride: Pair,
        padding: Pair,
        accumulate: bool,
    ) -> None:
        """Each ``dy / count`` goes to the elements of its window."""

    # -- batch normalisation ------------------------------------------------------------------------------------------
    def batch_norm_forward_train(
        self,
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

    def batch_norm_forward_infer(
        self,
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

    def batch_norm_backward(
        self,
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

    # -- element by element -------------------------------------------------------------------------------------------
    def activation_forward(self, kind: Elementwise, x: Floats, y: Floats) -> None:
        """``y = f(x)``. ``y`` may be ``x``.

        ReLU passes on what is not a number: a diverged network must not look healthy.
        """

    def activation_backward(
        self, kind: Elementwise, value: Floats, dy: Floats, dx: Floats, *, accumulate: bool
    ) -> None:
        """``dx = dy * f'(x)``; ``f'`` is computed from ``value``: y, or x if the kind says so. ``dx`` may be ``dy``."""

    def dropout(self, x: Floats, y: Floats, *, rate: float, key: int, accumulate: bool) -> None:
        """``y = x * keep / (1 - rate)``, the same function forward and backward.

        Element ``i`` (flat index without the lane axis, modulo 2^32) of lane ``j`` is kept when
        ``hash(i, j, key) >= floor(rate * 2^32)`` with, in 32-bit arithmetic and ``mix`` as in :func:`reference.mix32`,
        ``hash = mix(mix(i ^ low(key)) + j * 0x9E3779B9 ^ high(key))`` (``^`` binds weaker than ``+``). So a mask is
        a pure function of its key: nothing is stored, nothing depends on the number of lanes.
        """

    def softmax_forward(self, x: Floats, y: Floats) -> None:
        """Softmax over the first axis, shifted by the maximum. ``y`` may be ``x``."""

    def softmax_backward(self, y: Floats, dy: Floats, dx: Floats, *, accumulate: bool) -> None:
        """``dx = y * (dy - sum_c y dy)``."""

    # -- losses -------------------------------------------------------------------------------------------------------
    def loss(
        self,
        kind: Loss,
        prediction: Floats,
        target: NDArray[Any],
        dprediction: Floats | None,
        *,
        n: int,
        scale: float,
    ) -> float:
        """The sum over the ``n`` samples of each sample's loss; ``dprediction`` gets ``scale`` times its gradient.

        ``prediction (C, …, L)``. For the two categorical kinds ``target`` is int32 ``(…, L)``, a class per pixel;
        otherwise it has prediction's shape and dtype. A sample's loss is a mean over its pixels (categorical) or
        elements (others):
        ``softmax_cross_entropy`` takes logits: ``-log softmax(x)[t]``; ``categorical_cross_entropy`` probabilities;
        ``sigmoid_binary_cross_entropy`` logits: ``max(x, 0) - x t + log(1 + exp(-|x|))``; ``binary_cross_entropy``
        probabilities, clipped to ``[1e-7, 1 - 1e-7]`` (categorical also; gradient zero where clipped); ``dice`` is
        ``1 - (2 sum(p t) + s) / (sum p + sum t + s)`` over the sample, ``s = DICE_SMOOTH``; ``bce_dice`` and, of
        logits, ``sigmoid_bce_dice`` are the sum of a binary cross-entropy and dice; ``mse``; ``mae`` (gradient 0 at 0).
        """

    # -- optimizers: flat one-dimensional arrays, updated in place ----------------------------------------------------
    def sgd_update(
        self,
        parameters: Floats,
        gradients: Floats,
        velocity: Floats | None,
        *,
        learning_rate: float,
        momentum: float,
        nesterov: bool,
        weight_decay: float,
        decoupled: bool,
    ) -> None:
        """``g' = g + weight_decay * w`` (or, decoupled, ``w -= lr * weight_decay * w`` first);
        ``v = momentum * v + g'``; ``w -= lr * v``, with Nesterov ``w -= lr * (g' + momentum * v)``.
        ``velocity`` is None when momentum is 0."""

    def rmsprop_update(
        self,
        parameters: Floats,
        gradients: Floats,
        square: Floats,
        *,
        learning_rate: float,
        rho: float,
        epsilon: float,
        weight_decay: float,
        decoupled: bool,
    ) -> None:
        """``s = rho s + (1 - rho) g²``; ``w -= lr g / (sqrt(s) + epsilon)``."""

    def adam_update(
        self,
        parameters: Floats,
        gradients: Floats,
        first: Floats,
        second: Floats,
        *,
        learning_rate: float,
        beta1: float,
        beta2: float,
        epsilon: float,
        step: int,
        weight_decay: float,
        decoupled: bool,
        nesterov: bool,
    ) -> None:
        """``m = b1 m + (1 - b1) g``; ``v = b2 v + (1 - b2) g²``; ``w -= lr m^ / (sqrt(v^) + epsilon)`` where
        ``m^ = m / (1 - b1^step)``, ``v^ = v / (1 - b2^step)`` and ``step`` counts from 1. With ``nesterov`` (Nadam)
        ``m^ = b1 m / (1 - b1^(step+1)) + (1 - b1) g / (1 - b1^step)``."""

    def adadelta_update(
        self,
        parameters: Floats,
        gradients: Floats,
        square: Floats,
        delta: Floats,
        *,
        learning_rate: float,
        rho: float,
        epsilon: float,
        weight_decay: float,
        decoupled: bool,
    ) -> None:
        """``s = rho s + (1 - rho) g²``; ``u = g sqrt(d + epsilon) / sqrt(s + epsilon)``;
        ``d = rho d + (1 - rho) u²``; ``w -= lr u``."""

    def sum_squares(self, values: Floats) -> float:
        """``sum(values²)`` in float64, added in a fixed order."""

    def scale(self, values: Floats, factor: float) -> None:
        """``values *= factor`` in place."""

    # -- sums of several arrays ---------------------------------------------------------------------------------------
    def add_tree(self, inputs: Sequence[Floats], tree: Sequence[int], out: Floats) -> None:
        """``out`` = the sum of ``inputs`` along a binary tree, all flat and of one length; ``out`` may be an input.

        ``tree`` is in postfix: a number >= 0 pushes that input, -1 adds the two on top, the lower one first. The bits
        depend on the tree alone: ``[0, 1, -1, 2, 3, -1, -1]`` is ``(i0 + i1) + (i2 + i3)``, whoever computes it.
        """

    # -- calls that are made again and again --------------------------------------------------------------------------
    def prepare(self, kernel: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> PreparedCall:
        """A call of the layer kernel named ``kernel``, to be made as often as wanted; it looks at its arrays each time.

        Not for kernels that take run-time values (``n``, ``key``, ``scale``), whose arguments differ from step to step.
        """

    def in_turn(self, calls: Sequence[PreparedCall]) -> PreparedCall:
        """Prepared calls as one."""


KERNELS = tuple(
    name for name in vars(Kernels) if not name.startswith("_") and name not in ("name", "prepare", "in_turn")
)
"""The names of all kernels: those of the protocol."""
