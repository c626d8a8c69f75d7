"""What strategies share whose ranks take steps by themselves, each with parameters of its own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.data.partition import bounds
from ringlet.engines.contract import Floats, Replica
from ringlet.kernels.contract import Kernels
from ringlet.optim import Optimizer
from ringlet.strategies.contract import Layout, OnReady
from ringlet.strategies.finite import Magnitude, safe_norm
from ringlet.strategies.local_pass import LocalPass
from ringlet.timeline import NO_TIMELINE, Timeline


class OwnSteps(ABC):
    """Part of a :class:`~ringlet.strategies.contract.Strategy` out of lockstep.

    What is saved of a network is one flat array: parameters, running statistics, then the optimizer's state arrays.
    """

    lockstep = False
    remarks: tuple[str, ...] = ()

    def __init__(
        self,
        comm: Communicator,
        layout: Layout,
        optimizer: Optimizer,
        kernels: Kernels,
        *,
        num_shards: int | None = None,
        clip_value: float | None = None,
        clip_norm: float | None = None,
        timeline: Timeline = NO_TIMELINE,
    ) -> None:
        self.comm, self._optimizer, self._timeline, self._layout = comm, optimizer, timeline, layout
        self.num_shards = comm.size if num_shards is None else num_shards
        self.shards = range(*bounds(self.num_shards, comm.rank, comm.size))
        self._num_parameters = layout.num_parameters
        self._num_values = layout.num_parameters + layout.num_state
        self._num_saved = self._num_values + layout.num_parameters * len(optimizer.state_names)
        self._pass = LocalPass(layout, optimizer, kernels, len(self.shards), clip_value, clip_norm)
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

    def agree(self, figures: NDArray[np.float64]) -> NDArray[np.float64]:
        """Every rank knows its own figures only."""
        self._magnitude = Magnitude.of(figures)
        return figures

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
