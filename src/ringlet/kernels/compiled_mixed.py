"""The compiled kernels for activations in bfloat16, which the C++ module takes as bits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, final

import numpy as np

from ringlet.kernels import compiled
from ringlet.kernels.bfloat16 import BFLOAT16
from ringlet.kernels.contract import KERNELS, Elementwise, Kernels, Loss, PreparedCall

_reference = Kernels()


@final
class CompiledMixed(Kernels):
    """All kernels under the names of the contract; what is not bfloat16 passes as it is."""

    name = "compiled"

    def __init__(self) -> None:
        for kernel in KERNELS:
            setattr(self, kernel, _on_bits(getattr(compiled, kernel)))
        self.loss = self._loss
        for kernel in ("activation_forward", "activation_backward"):
            setattr(self, kernel, partial(self._activate, kernel))
        for fact in ("instruction_set", "num_threads", "set_num_threads", "scratch_bytes"):
            setattr(self, fact, getattr(compiled, fact))

    def _loss(self, kind: Loss, *arrays: Any, **options: Any) -> float:
        """One without a compiled kernel takes bfloat16 itself, not its bits."""
        if kind in compiled.REFERENCE_LOSSES:
            return _reference.loss(kind, *arrays, **options)
        return compiled.loss(kind, *map(_bits, arrays), **options)

    def _activate(self, kernel: str, /, *arrays: Any, **options: Any) -> None:
        self.prepare(kernel, arrays, options)()

    def prepare(self, kernel: str, arrays: Sequence[Any], options: Mapping[str, Any]) -> PreparedCall:
        """See the contract; an activation without a compiled kernel runs as the reference says."""
        if arrays and isinstance(arrays[0], Elementwise) and not compiled.knows(arrays[0]):
            return _reference.prepare(kernel, arrays, options)
        return compiled.prepare(kernel, [_bits(array) for array in arrays], options)

    def in_turn(self, calls: Sequence[PreparedCall]) -> PreparedCall:
        """See the contract."""
        return compiled.in_turn(calls)


def _on_bits(kernel: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(kernel)
    def run(*arguments: Any, **options: Any) -> Any:
        return kernel(*map(_bits, arguments), **options)

    return run


def _bits(value: Any) -> Any:
    return value.view(np.uint16) if isinstance(value, np.ndarray) and value.dtype == BFLOAT16 else value
