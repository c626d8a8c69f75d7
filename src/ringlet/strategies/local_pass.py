"""The passes of one rank for one step, and an optimizer's update of all parameters with what they gave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import final

import numpy as np

from ringlet.engines.contract import Floats, Replica
from ringlet.kernels.contract import Kernels
from ringlet.optim import Optimizer, clip_by_global_norm, clip_by_value
from ringlet.strategies.contract import Layout
from ringlet.strategies.finite import Undo, first_not_finite, is_finite, segment_at


@final
class LocalPass:
    """Adds up the gradients of ``num_passes`` passes; every pass begins with the same running statistics.

    Afterwards the replica holds the mean of the statistics of its passes, weighed by samples.
    """

    def __init__(
        self,
        layout: Layout,
        optimizer: Optimizer,
        kernels: Kernels,
        num_passes: int,
        clip_value: float | None,
        clip_norm: float | None,
    ) -> None:
        self._layout, self._optimizer, self._kernels = layout, optimizer, kernels
        self._clip_value, self._clip_norm = clip_value, clip_norm
        self.gradients: Floats = np.zeros(layout.num_parameters, layout.dtype)
        """Where the replica writes."""
        self._several = num_passes > 1
        self.sum: Floats = np.zeros_like(self.gradients) if self._several else self.gradients
        """Of all passes, once :meth:`finish` was called."""
        self._first_state: Floats = np.zeros(layout.num_state, layout.dtype)
        self._state_sum: Floats = np.zeros(layout.num_state, layout.dtype)
        self._num_samples = 0

    def attach(self, replica: Replica) -> None:
        """The replica whose passes these are."""
        self._replica = replica

    def begin(self) -> None:
        """A step begins."""
        self._num_samples = 0
        if self._several:
            self.sum.fill(0)
            self._state_sum.fill(0)
            self._first_state[:] = self._replica.state.flat

    def add(self, num_samples: int) -> None:
        """A pass is over."""
        self._num_samples += num_samples
        if self._several:
            np.add(self.sum, self.gradients, out=self.sum)
            self._state_sum += num_samples * self._replica.state.flat
            self._replica.state.flat[:] = self._first_state

    def finish(self) -> int:
        """All passes are over; gives the number of their samples."""
        if self._several and self._num_samples:
            np.divide(self._state_sum, self._num_samples, out=self._replica.state.flat)
        return self._num_samples

    def find_overflow(self) -> str:
        """What the passes have added up to that is not finite, in words; to be called after :meth:`finish`."""
        if not is_finite(self.sum):
            return f"the sum of all passes' gradients{segment_at(self._layout.segments, self.sum)} is not finite"
        return "" if is_finite(self._replica.state.flat) else "the mean of running statistics is not finite"

    def update(
        self, parameters: Floats, state: Mapping[str, Floats], *, step: int, learning_rate: float, doubtful: bool
    ) -> str:
        """Clip the sum and apply the optimizer to ``parameters`` and ``state``.

        If it is ``doubtful`` that they stay finite, they are looked at: gives what did not, in words, and leaves them
        as they were then.
        """
        if not doubtful:
            self._update(parameters, state, step, learning_rate)
            return ""
        undo = Undo((parameters, *state.values()))
        with np.errstate(over="ignore", invalid="ignore"):
            norm = self._update(parameters, state, step, learning_rate)
            problem = "" if math.isfinite(norm) else "the norm of the gradients is not finite"
            if not is_finite(parameters):
                problem = problem or "the new values would not be finite after the update"
            if bad := first_not_finite(state):
                problem = problem or f"the optimizer's state '{bad}' would not be finite after the update"
        if problem:
            undo.restore()
        return problem

    def _update(self, parameters: Floats, state: Mapping[str, Floats], step: int, learning_rate: float) -> float:
        """Gives the norm by which gradients are clipped, 0 if they are not."""
        norm = 0.0
        if self._clip_value is not None:
            clip_by_value(self.sum, self._clip_value)
        if self._clip_norm is not None:
            norm = clip_by_global_norm(self.sum, self._clip_norm, kernels=self._kernels)
        self._optimizer.update(
            parameters,
            self.sum,
            state,
            step=step,
            learning_rate=learning_rate,
            segments=self._layout.segments,
            kernels=self._kernels,
        )
        return norm
