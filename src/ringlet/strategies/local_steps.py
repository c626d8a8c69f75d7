"""What strategies share whose ranks take steps by themselves, each with parameters of its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import final

import numpy as np
from numpy.typing import NDArray

from ringlet.data.partition import bounds
from ringlet.engines.contract import Floats, Replica
from ringlet.optim import clip_by_global_norm, clip_by_value
from ringlet.strategies.contract import Job, OnReady
from ringlet.strategies.finite import Magnitude, Undo, first_not_finite, is_finite, safe_norm, segment_at
from ringlet.strategies.held import held


class LocalSteps(ABC):
    """Part of a :class:`~ringlet.strategies.contract.Strategy` out of lockstep.

    What is saved of a network is one flat array: parameters, running statistics, then the optimizer's state arrays.
    """

    lockstep = False
    has_own_parameters = True
    remarks: tuple[str, ...] = ()

    def __init__(self, job: Job) -> None:
        comm, layout, optimizer = job.comm, job.layout, job.optimizer
        self.comm, self._optimizer, self._timeline, self._layout = comm, optimizer, job.timeline, layout
        self.num_shards = comm.size if job.num_shards is None else job.num_shards
        self.shards = range(*bounds(self.num_shards, comm.rank, comm.size))
        self._num_parameters = layout.num_parameters
        self._num_values = layout.num_parameters + layout.num_state
        self._num_saved = self._num_values + layout.num_parameters * len(optimizer.state_names)
        self._pass = LocalPass(job, len(self.shards))
        self._magnitude, self._safe_norm = Magnitude(), safe_norm(layout.dtype)
        self._num_pending = 0
        """Steps since all ranks were equal."""
        self._copy: Floats | None = None

    @property
    @abstractmethod
    def _statistics(self) -> Floats:
        """The running statistics that this rank's next step begins with."""

    @property
    def gradients(self) -> Floats:
        """This rank's own memory."""
        return self._pass.gradients

    @property
    def on_ready(self) -> OnReady | None:
        """Nothing is exchanged during a pass."""
        return None

    @property
    def agreed(self) -> bool:
        """Whether no rank has taken a step since all were equal."""
        return self._num_pending == 0

    def scale(self, num_own: int, num_global: int) -> float:  # noqa: ARG002  the contract's
        """A gradient is the mean over the samples of its rank."""
        return 1.0 / max(num_own, 1)

    def begin(self) -> None:
        """A new step begins."""
        self._pass.begin()

    def add(self, shard: int, num_samples: int) -> None:  # noqa: ARG002  the contract's
        """Add the replica's gradients and statistics to those of this rank's step."""
        self._pass.add(num_samples)

    def agree(self, metrics: NDArray[np.float64]) -> NDArray[np.float64]:
        """Every rank knows its own metrics only."""
        self._magnitude = Magnitude.of(metrics)
        return metrics

    def _is_doubtful(self, learning_rate: float) -> bool:
        """Whether this rank's gradients are so large that an update with them may overflow."""
        return self._magnitude.is_doubtful(math.inf, self._safe_norm, learning_rate)

    def skip(self) -> None:
        """Leave this rank as it was before this step."""
        self._replica.state.flat[:] = self._statistics

    def _follow(self, replica: Replica) -> None:
        """Use this replica's passes."""
        self._replica = replica
        self._pass.attach(replica)

    def _state_views(self, saved: Floats) -> dict[str, Floats]:
        """The optimizer's state arrays in what is saved."""
        starts = range(self._num_values, self._num_saved, max(self._num_parameters, 1))
        names = self._optimizer.state_names
        return {name: saved[start : start + self._num_parameters] for name, start in zip(names, starts, strict=True)}


@final
class LocalPass:
    """Adds up the gradients of ``num_passes`` passes; every pass begins with the same running statistics.

    Afterwards the replica holds the mean of the statistics of its passes, weighed by samples.
    """

    def __init__(self, job: Job, num_passes: int) -> None:
        layout = job.layout
        self._layout, self._optimizer, self._kernels = layout, job.optimizer, job.kernels
        self._clip_value, self._clip_norm = job.clip_value, job.clip_norm
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

    def finish(self, step: int) -> int:
        """All passes of a step are over; gives the number of their samples."""
        if self._several and self._num_samples:
            statistics = self._replica.state.flat  # as before the passes
            with held(statistics, self._layout.state_segments, step):
                np.divide(self._state_sum, self._num_samples, out=statistics)
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
