"""What every synchronization strategy offers to the training step, and how one is chosen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm.contract import Communicator
from ringlet.component import Component, Registry
from ringlet.engines.contract import Floats, Replica
from ringlet.kernels.contract import Kernels
from ringlet.optim import Optimizer, Segment
from ringlet.timeline import NO_TIMELINE, Timeline

OnReady = Callable[[int, int], None]


@dataclass(frozen=True)
class Layout:
    """The flat buffers of a network."""

    segments: tuple[Segment, ...]
    num_parameters: int
    num_state: int
    dtype: DTypeLike
    state_segments: tuple[Segment, ...] = ()
    """Running statistics that learn later than usual, or not at all."""


@dataclass(frozen=True)
class Staleness:
    """Of the gradients of all ranks."""

    mean: float
    max: int
    histogram: tuple[int, ...]
    """How many gradients were 0, 1, 2 … updates old."""


@dataclass(frozen=True)
class Job:
    """What a strategy works on: the ranks, the network's buffers and what turns gradients into parameters."""

    comm: Communicator
    layout: Layout
    optimizer: Optimizer
    kernels: Kernels
    num_shards: int | None = None
    """Into how many shards a global batch is cut; None: one for each rank."""
    clip_value: float | None = None
    clip_norm: float | None = None
    same_bits: bool = False
    """Whether the bits must not depend on the number of ranks and machines."""
    timeline: Timeline = NO_TIMELINE


STRATEGIES: Registry[type[StrategyConfig]] = Registry("strategy", package="ringlet.strategies", group="strategies")


class StrategyConfig(Component, ABC):
    """A strategy by its name and options; :meth:`build` makes it."""

    registry: ClassVar[Registry[Any] | None] = STRATEGIES
    lockstep: ClassVar[bool] = False
    """Whether ranks meet in every step."""

    @property
    def steps_between_rounds(self) -> int | None:
        """After how many steps all ranks meet; None: they never do before the end of an epoch."""
        return None

    @abstractmethod
    def build(self, job: Job) -> Strategy:
        """The strategy; every rank must call."""


class Strategy(Protocol):
    """How replicas agree. Every rank must call every method, in the same order.

    A step: :meth:`begin`; for each of this rank's shards a pass of the replica and :meth:`add`; :meth:`agree` on the
    metrics; :meth:`update` or :meth:`skip`; :meth:`end_step`. In :attr:`lockstep` all ranks hold the same parameters
    and the same running statistics after every step. Otherwise they do so after :meth:`settle`, which comes before
    anybody else looks at them: before validation, and when training ends.
    """

    lockstep: bool
    """Whether ranks meet in every step, so that its metrics are those of all ranks; otherwise they are one rank's."""
    has_own_parameters: bool
    """Whether every rank has a copy of the parameters, rather than every machine."""
    comm: Communicator
    num_shards: int
    """Into how many shards a global batch is cut."""
    shards: range
    """The shards that this rank computes."""

    @property
    def parameters(self) -> Floats:
        """The flat buffer in which the replica's parameters must live."""

    @property
    def gradients(self) -> Floats:
        """The flat buffer into which the replica must write its gradients."""

    def attach(self, replica: Replica) -> None:
        """Begin with the parameters and running statistics of rank 0, on all ranks."""

    @property
    def remarks(self) -> Sequence[str]:
        """What was decided by measurement, in words."""

    @property
    def agreed(self) -> bool:
        """Whether all ranks hold the same; asked between :meth:`end_step` and the next :meth:`begin`."""

    def scale(self, num_own: int, num_global: int) -> float:
        """The factor of the summed loss: one over the samples of the batch that a gradient is to be the mean of."""

    def begin(self) -> None:
        """A new step begins."""

    @property
    def on_ready(self) -> OnReady | None:
        """What the replica must call during its backward pass, if anything."""

    def add(self, shard: int, num_samples: int) -> None:
        """Take gradients and running statistics of the replica as the contribution of ``shard``."""

    def agree(self, metrics: NDArray[np.float64]) -> NDArray[np.float64]:
        """Metrics, one row for each shard; a rank fills the rows of its shards and leaves the others zero.

        In lockstep the rows of all ranks come back, otherwise those of this rank. The first columns are those of
        :mod:`~ringlet.strategies.finite`: all are finite if :meth:`update` is called.
        """

    def update(self, *, step: int, learning_rate: float, num_samples: int) -> str | None:
        """Turn the contributions of all shards, of ``num_samples`` samples in all, into new parameters.

        Gives None, or what was not finite, in words: then everything is as it was before this step, as after
        :meth:`skip`. In lockstep it is the same on all ranks.
        """

    def skip(self) -> None:
        """Instead of :meth:`update`: leave everything as it was before this step."""

    def end_step(self, step: int, *, wants_to_stop: bool) -> bool:
        """The step is over on this rank; gives whether all ranks are to stop after this very step.

        Not in lockstep, where the metrics tell who wants to stop: there it gives False.
        """

    def settle(self) -> None:
        """Make all ranks hold the same parameters and running statistics. To be called after the same step on all."""

    def staleness(self) -> Staleness | None:
        """Of all ranks' gradients since the last call; None where gradients cannot be stale. Every rank must call."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the optimizer's state arrays."""

    def save(self) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """Copies of parameters and running statistics (one array) and of the optimizer's state of all parameters."""

    def load(self, values: Floats | None, state: Mapping[str, NDArray[Any]] | None) -> None:
        """Go on from what rank 0 passes (the others: None), as :meth:`save` gave it on any number of ranks."""
