"""The passes of one rank for one step, and an optimizer's update of all parameters with what they gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import numpy as np

from ringlet.engines.contract import Floats, Replica
from ringlet.kernels.contract import Kernels
from ringlet.optim import Optimizer, clip_by_global_norm, clip_by_value
from ringlet.strategies.contract import Layout


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

    def update(self, parameters: Floats, state: Mapping[str, Floats], *, step: int, learning_rate: float) -> None:
        """Clip the sum and apply the optimizer to ``parameters`` and ``state``."""
        if self._clip_value is not None:
            clip_by_value(self.sum, self._clip_value)
        if self._clip_norm is not None:
            clip_by_global_norm(self.sum, self._clip_norm, kernels=self._kernels)
        self._optimizer.update(
            parameters,
            self.sum,
            state,
            step=step,
            learning_rate=learning_rate,
            segments=self._layout.segments,
            kernels=self._kernels,
        )
