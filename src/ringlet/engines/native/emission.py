"""Writes a program: the tensors of a plan under construction, the calls emitted so far, gradients that are pending.

Gradients are handed out copy-on-write. A gradient that several values share (both inputs of an addition have the
output's gradient) is overwritten or added to only when no other value still waits to read it; otherwise the writer
gets a buffer of its own. So sharing is always safe, and free where the order of the calls allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ringlet.engines.contract import Floats
from ringlet.engines.native.buffers import Call, Shape, Tensor, new_tensor


@dataclass
class Emitter:
    """What operations see while they emit their calls."""

    dtype: np.dtype[Any]
    values: Mapping[str, Tensor]
    parameters: Mapping[str, Floats]
    gradients: Mapping[str, Floats]
    state: Mapping[str, Floats]
    trainable: frozenset[str]
    """Values that depend on a parameter: only their gradients are computed."""
    consumed_once: frozenset[str] = frozenset()
    """Results of a ReLU with a single consumer, which may take its gradient back through that ReLU at once."""
    rectified: set[str] = field(default_factory=set)
    """Those of them whose consumer has done so."""
    bias_gradients: Mapping[str, Floats] = field(default_factory=dict)
    """By values with a single consumer, which may sum up what it gives back: where the sums of channels belong."""
    summed: set[str] = field(default_factory=set)
    """Those of them whose consumer has done so."""
    calls: list[Call] = field(default_factory=list)
    _pending: dict[str, Tensor] = field(default_factory=dict)
    _saved: dict[tuple[str, str], Tensor] = field(default_factory=dict)

    def call(self, kernel: str, /, *arguments: object, **options: Any) -> None:
        """Append a kernel call."""
        self.calls.append(Call(kernel, arguments, options))

    def saved(self, output: str, role: str, shape: Shape, dtype: np.dtype[Any]) -> Tensor:
        """A tensor that an operation keeps from its forward to its backward pass."""
        key = (output, role)
        if key not in self._saved:
            self._saved[key] = new_tensor(f"{output}.{role}", shape, dtype)
        return self._saved[key]

    # -- gradients of values ------------------------------------------------------------------------------------------
    def has_gradient(self, value: str) -> bool:
        """Whether some consumer has already contributed to the gradient of ``value``."""
        return value in self._pending

    def gradient(self, value: str) -> Tensor:
        """The complete gradient of an operation's output, to be read."""
        return self._pending[value]

    def writable_gradient(self, value: str) -> Tensor:
        """Memory for a changed gradient of ``value``: its own if nobody else waits for it, else new."""
        gradient = self._pending[value]
        return gradient if self._is_exclusive(value) else self._fresh(value)

    def target(self, value: str, *, reuse: str | None = None) -> tuple[Tensor, bool] | None:
        """Where to write a contribution to the gradient of ``value``, and whether to add to what is there.

        None if nobody needs it. With ``reuse`` the first contribution may overwrite the gradient of that value, which
        the same kernel reads element by element.
        """
        if value not in self.trainable:
            return None
        if value not in self._pending:
            self._pending[value] = self._first_target(value, reuse)
            return self._pending[value], False
        if not self._is_exclusive(value):
            copy = self._fresh(value)
            self.call("copy", copy, self._pending[value])
            self._pending[value] = copy
        return self._pending[value], True

    def contribute(self, value: str, contribution: Tensor) -> None:
        """Add a finished tensor to the gradient of ``value``; the first one is taken as it is, without a copy."""
        if value not in self.trainable:
            return
        if value not in self._pending:
            self._pending[value] = contribution
            return
        total = self.writable_gradient(value)
        self.call("add", self._pending[value], contribution, total)
        self._pending[value] = total

    def discard(self, value: str) -> None:
        """Forget a gradient that has been read for the last time."""
        self._pending.pop(value, None)

    def like(self, value: str) -> Tensor:
        """A tensor as large as ``value`` that nobody else uses."""
        return self._fresh(value)

    def _first_target(self, value: str, reuse: str | None) -> Tensor:
        if reuse is not None and self._is_exclusive(reuse):
            return self._pending[reuse].reshape(self.values[value].shape)
        return self._fresh(value)

    def _is_exclusive(self, value: str) -> bool:
        own = self._pending[value]
        return not any(own.overlaps(other) for name, other in self._pending.items() if name != value)

    def _fresh(self, value: str) -> Tensor:
        return new_tensor(f"d {value}", self.values[value].shape, self.dtype)
