"""The compiled kernels: the C++ module's functions under the names of :class:`ringlet.kernels.contract.Kernels`.

Activations that have no compiled kernel are computed by their functions of NumPy.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np

from ringlet.kernels import spinning

with spinning.bounded():
    from ringlet.kernels import _native
from ringlet.kernels.bfloat16 import BFLOAT16
from ringlet.kernels.contract import KERNELS, Elementwise, Floats, Kernels, Loss, PreparedCall

name = "compiled"
_reference = Kernels()
REFERENCE_LOSSES = ("softmax_soft_cross_entropy", "soft_cross_entropy")
"""Losses without a compiled kernel: NumPy computes them."""

globals().update({kernel: getattr(_native, kernel) for kernel in KERNELS})


def loss(kind: Loss, *arrays: Any, **options: Any) -> float:
    """See the contract."""
    chosen = _reference.loss if kind in REFERENCE_LOSSES else _native.loss
    return float(chosen(kind, *arrays, **options))


def activation_forward(kind: Elementwise, x: Floats, y: Floats) -> None:
    """See the contract."""
    prepare("activation_forward", (kind, x, y), {})()


def activation_backward(kind: Elementwise, value: Floats, dy: Floats, dx: Floats, *, accumulate: bool) -> None:
    """See the contract."""
    prepare("activation_backward", (kind, value, dy, dx), {"accumulate": accumulate})()


def prepare(kernel: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> PreparedCall:
    """See the contract; arguments are converted once."""
    if arrays and isinstance(arrays[0], Elementwise):
        kind = arrays[0]
        if not knows(kind):
            return _reference.prepare(kernel, arrays, options)
        arrays, options = (kind.name, *arrays[1:]), {**options, "slope": kind.slope}
    call: PreparedCall = getattr(_native.prepare, kernel)(*arrays, **options)
    return call


def in_turn(calls: Sequence[PreparedCall]) -> PreparedCall:
    """See the contract; neighbours that are compiled become one call of the module."""
    parts: list[PreparedCall] = []
    for is_compiled, group in groupby(calls, lambda call: isinstance(call, _native.PreparedCall)):
        neighbours = list(group)
        parts += [_native.in_turn(neighbours)] if is_compiled else neighbours
    return parts[0] if len(parts) == 1 else _reference.in_turn(parts)


def for_activations(dtype: np.dtype[Any]) -> Kernels:
    """See the contract."""
    if dtype != BFLOAT16:
        return cast(Kernels, sys.modules[__name__])
    from ringlet.kernels.compiled_mixed import CompiledMixed

    return CompiledMixed()


def knows(kind: Elementwise) -> bool:
    """Whether there is a compiled kernel for an activation."""
    return kind.name in _native.activations


instruction_set = _native.instruction_set
instruction_sets = _native.instruction_sets
use_instruction_set = _native.use_instruction_set
num_threads = _native.num_threads
set_num_threads = _native.set_num_threads
scratch_bytes = _native.scratch_bytes
