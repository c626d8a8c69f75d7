"""The arithmetic of the native engine as a contract: every kernel, its shapes and its rules.

The functions of ``reference`` (NumPy) are the specification: each has its formula and its shapes. :class:`Kernels`
lists them; ``compiled`` (C++) has the same names and signatures, and one test suite runs over both.

Rules that hold for every kernel
--------------------------------
- Activations are ``(C, H, W, L)`` or ``(F, L)``, C-contiguous: the batch is innermost. ``L`` (*lanes*) is the batch
  size, any number. A smaller batch of ``n`` samples fills lanes ``0 … n-1``; the rest is padding.
- Padding lanes of *activations* hold finite values without meaning. Padding lanes of *gradients* hold zeros. So sums
  over lanes of a product with a gradient are right without looking at ``n``; the kernels that create values in padding
  lanes of a gradient (losses, batch normalisation) take ``n`` and write zeros there.
- All floating arrays of one call have the same dtype, float32 or float64. Or activations and their gradients are
  bfloat16, and all else is float32: :mod:`ringlet.kernels.reference.mixed` says what is rounded.
- Outputs are written into arrays that the caller owns; nothing is allocated in a step. Gradients of parameters are
  overwritten. Gradients of activations are overwritten, or added to when ``accumulate`` is true (a tensor with several
  consumers).
- A parameter's gradient is a sum over lanes: any scale (one over the batch) enters once, at the loss.
- Results do not depend on the number of threads.
- Updates may take numbers that are too small to be normal (below 1.2e-38 in float32) for zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ringlet.kernels.definitions import (
    ARCTANH_LIMIT,
    CONV_ALGORITHMS,
    DICE_SMOOTH,
    NO_ELEMENT,
    RELU,
    Elementwise,
    Floats,
    Loss,
    Pair,
    PreparedCall,
)
from ringlet.kernels.reference import elements, losses, updates, windows
from ringlet.kernels.reference.mixed import mixed

__all__ = [
    "ARCTANH_LIMIT",
    "CONV_ALGORITHMS",
    "DICE_SMOOTH",
    "KERNELS",
    "NO_ELEMENT",
    "RELU",
    "Elementwise",
    "Floats",
    "Kernels",
    "Loss",
    "Pair",
    "PreparedCall",
]


class Kernels:
    """All kernels, computed by NumPy; see the module docstring for the common rules."""

    name: str = "reference"

    # -- data movement ------------------------------------------------------------------------------------------------
    pack = staticmethod(mixed(elements.pack))
    unpack = staticmethod(mixed(elements.unpack))
    add = staticmethod(mixed(elements.add))

    # -- convolution --------------------------------------------------------------------------------------------------
    conv2d_forward = staticmethod(mixed(windows.conv2d_forward))
    conv2d_backward_data = staticmethod(mixed(windows.conv2d_backward_data))
    conv2d_backward_weight = staticmethod(mixed(windows.conv2d_backward_weight))
    bias_forward = staticmethod(mixed(elements.bias_forward))
    bias_backward = staticmethod(mixed(elements.bias_backward))

    # -- dense --------------------------------------------------------------------------------------------------------
    dense_forward = staticmethod(mixed(elements.dense_forward))
    dense_backward_data = staticmethod(mixed(elements.dense_backward_data))
    dense_backward_weight = staticmethod(mixed(elements.dense_backward_weight))

    # -- pooling ------------------------------------------------------------------------------------------------------
    max_pool2d_forward = staticmethod(mixed(windows.max_pool2d_forward))
    max_pool2d_backward = staticmethod(mixed(windows.max_pool2d_backward))
    avg_pool2d_forward = staticmethod(mixed(windows.avg_pool2d_forward))
    avg_pool2d_backward = staticmethod(mixed(windows.avg_pool2d_backward))

    # -- batch normalisation ------------------------------------------------------------------------------------------
    batch_norm_forward_train = staticmethod(mixed(elements.batch_norm_forward_train))
    batch_norm_forward_infer = staticmethod(mixed(elements.batch_norm_forward_infer))
    batch_norm_backward = staticmethod(mixed(elements.batch_norm_backward))

    # -- element by element -------------------------------------------------------------------------------------------
    activation_forward = staticmethod(mixed(elements.activation_forward))
    activation_backward = staticmethod(mixed(elements.activation_backward))
    dropout = staticmethod(mixed(elements.dropout))
    softmax_forward = staticmethod(mixed(elements.softmax_forward))
    softmax_backward = staticmethod(mixed(elements.softmax_backward))

    # -- losses -------------------------------------------------------------------------------------------------------
    loss = staticmethod(mixed(losses.loss))

    # -- optimizers: flat one-dimensional arrays, updated in place ----------------------------------------------------
    sgd_update = staticmethod(updates.sgd_update)
    rmsprop_update = staticmethod(updates.rmsprop_update)
    adam_update = staticmethod(updates.adam_update)
    adadelta_update = staticmethod(updates.adadelta_update)
    sum_squares = staticmethod(updates.sum_squares)
    scale = staticmethod(updates.scale)

    # -- sums of several arrays ---------------------------------------------------------------------------------------
    add_tree = staticmethod(updates.add_tree)

    def for_activations(self, dtype: np.dtype[Any]) -> Kernels:  # noqa: ARG002
        """The kernels that compute layers with activations of ``dtype``: these, or others that know it better."""
        return self

    # -- calls that are made again and again --------------------------------------------------------------------------
    def prepare(self, kernel: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> PreparedCall:
        """A call of the layer kernel named ``kernel``, to be made as often as wanted; it looks at its arrays each time.

        Not for kernels that take run-time values (``n``, ``key``, ``scale``), whose arguments differ from step to step.
        """
        return partial(getattr(self, kernel), *arrays, **options)

    def in_turn(self, calls: Sequence[PreparedCall]) -> PreparedCall:
        """Prepared calls as one."""

        def run() -> None:
            for call in calls:
                call()

        return run


KERNELS = tuple(name for name, value in vars(Kernels).items() if isinstance(value, staticmethod))
"""The names of all kernels."""
