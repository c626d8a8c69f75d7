"""Local steps with parameter averaging: every rank trains alone for K steps, then all take the average.

Su and Chen, *Experiments on parallel training of deep neural network using model averaging*, 2015 (arXiv 1507.01239).
Each rank has parameters, running statistics and an optimizer's state of its own, and follows the mean gradient of its
own samples. A *round* after every K-th step, at the end of an epoch and before a checkpoint replaces all of them by
their mean over ranks, weighed by the samples that each has trained on since the last round. Because the optimizer's
state is averaged too (Yu, Jin and Yang, *On the linear speedup analysis of communication efficient momentum SGD*, 2019)
all ranks are equal after a round: what is evaluated and saved is the average. With K = 1 and SGD, with momentum or
without, a step is one of synchronous training.

The rows of all ranks of a machine lie in shared memory. In a round each rank averages its ranges of all rows, between
machines with its peers, and writes the result into all rows: two meetings, and every element is read and written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

from ringlet.component import required
from ringlet.engines.contract import Floats, Replica
from ringlet.strategies.contract import Job, Layout, StrategyConfig
from ringlet.strategies.held import held
from ringlet.strategies.local_steps import LocalSteps
from ringlet.strategies.ownership import OwnedRange, owned_ranges
from ringlet.strategies.saved_state import check_state

_ALIGNED = 16
"""Elements: rows begin at multiples of it, so that no two ranks write into one cache line."""


class BlockFilter(Protocol):
    """What a round does with the mean of the parameters, range by range, before ranks take it over."""

    @property
    def state(self) -> Mapping[str, Floats]:
        """What it remembers, by name; one element for each that this rank owns."""

    def begin(self, owned: OwnedRange, parameters: Floats) -> None:
        """``parameters`` are what the next round starts from: after the start, a load and every round."""

    def apply(self, owned: OwnedRange, mean: Floats) -> None:
        """Replace ``mean`` in place by what ranks go on with."""


@final
class AverageConfig(StrategyConfig):
    """Workers train by themselves and replace their models by the mean every so many steps."""

    name: ClassVar[str] = "average"
    argument: ClassVar[str] = "every"
    every: int = required("steps between two averages", unit="steps", ge=1, le=1_000_000)

    @property
    def steps_between_rounds(self) -> int:
        """K."""
        return self.every

    def build(self, job: Job) -> Averaging:
        """The strategy; every rank must call."""
        return Averaging(job, every=self.every)


@final
class Averaging(LocalSteps):
    """See the module; ``every`` is K. ``block_filter`` changes what a round makes of the mean: see ``bmuf``."""

    def __init__(self, job: Job, *, every: int, block_filter: BlockFilter | None = None) -> None:
        super().__init__(job)
        comm, layout = job.comm, job.layout
        self._every, self._filter = every, block_filter
        shape = comm.local_size, -(-self._num_saved // _ALIGNED) * _ALIGNED
        self._rows = comm.shared_array(shape, layout.dtype)[:, : self._num_saved]
        self._row: Floats = self._rows[comm.local_rank]
        self._state = self._state_views(self._row)
        owners = min(comm.local_sizes)
        owner = comm.local_rank if comm.local_rank < owners else None
        self._owned, self._owned_rest = my_ranges(layout, self._num_saved, owner, owners)
        self._local_ranks = comm.local.allgather(np.array([comm.rank], np.int64)).tolist()
        self._num_samples = 0
        """Trained on since the last round, by this rank."""
        self._step = 0
        """The last one that was taken."""

    @property
    def parameters(self) -> Floats:
        """This rank's own."""
        return self._row[: self._num_parameters]

    def attach(self, replica: Replica) -> None:
        """Begin with the parameters and running statistics of rank 0, on all ranks."""
        self._follow(replica)
        values = self._row[: self._num_values]
        if self.comm.rank == 0:
            values[self._num_parameters :] = replica.state.flat
        self.comm.broadcast(values, out=values)
        self._begin_block()

    def update(
        self,
        *,
        step: int,
        learning_rate: float,
        num_samples: int,  # noqa: ARG002  the contract's
    ) -> str | None:
        """Update this rank's parameters with its own gradients; a rank without samples does nothing."""
        self._timeline.mark("update")
        own, doubtful = self._pass.finish(step), self._is_doubtful(learning_rate)
        self._step = step
        if own == 0:
            return None
        problem = (self._pass.find_overflow() if doubtful else "") or self._pass.update(
            self.parameters, self._state, step=step, learning_rate=learning_rate, doubtful=doubtful
        )
        if problem:
            self.skip()
            return problem
        self._statistics[:] = self._replica.state.flat
        self._num_samples += own
        return None

    def end_step(self, step: int, *, wants_to_stop: bool) -> bool:
        """Meet the others after every K-th step; gives whether one of them wants to stop."""
        self._num_pending += 1
        return self._round(wants_to_stop) if step % self._every == 0 else False

    def settle(self) -> None:
        """Make all ranks equal, if they are not."""
        if self._num_pending:
            self._round(False)

    def staleness(self) -> None:
        """Gradients are applied to the parameters that they were computed with."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Of the optimizer's state arrays and of what a filter remembers."""
        return (*self._optimizer.state_names, *(self._filter.state if self._filter else ()))

    def save(self) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """The average: parameters and running statistics (one array) and the optimizer's state; ends a block early.

        They stay as they are until the next call.
        """
        self.settle()
        copy = self._memory()
        for owned in (*self._owned, *self._owned_rest):
            part = owned.elements.slice()
            copy[part] = self._row[part]
        for name, start in self._filter_places():
            for owned in self._owned:
                part = owned.elements.shifted(start).slice()
                copy[part] = self._filter_state(name)[owned.in_state.slice()]
        self.comm.local.barrier()
        return copy[: self._num_values], self._saved_views(copy)

    def load(self, values: Floats | None, state: Mapping[str, NDArray[Any]] | None) -> None:
        """Go on from what rank 0 passes (the others: None), as :meth:`save` gave it on any number of ranks."""
        copy = self._memory()
        if self.comm.rank == 0:
            assert values is not None
            assert state is not None
            check_state(self.state_names, state, self._num_parameters)
            copy[: self._num_values] = values
            for name, view in self._saved_views(copy).items():
                view[:] = state[name]
        self.comm.barrier()
        if self.comm.local_rank == 0:
            self.comm.cross.broadcast(copy, out=copy)
        self.comm.barrier()
        self._row[:] = copy[: self._num_saved]
        for name, start in self._filter_places():
            for owned in self._owned:
                self._filter_state(name)[owned.in_state.slice()] = copy[owned.elements.shifted(start).slice()]
        self._begin_block()
        self.comm.barrier()

    @property
    def _statistics(self) -> Floats:
        """The running statistics after this rank's last good step."""
        return self._row[self._num_parameters : self._num_values]

    def _round(self, wants_to_stop: bool) -> bool:
        """Average over all ranks; gives whether one of them wants to stop. Every rank must call."""
        self._timeline.mark("wait")
        with self._resting():  # until they meet no one writes into the rows of others
            told = self.comm.allgather(np.array([[self._num_samples, wants_to_stop]], np.int64))
            counts = told[:, 0]
            if counts.sum() > 0:
                self._timeline.mark("reduce")
                self._average((counts[self._local_ranks] / counts.sum()).tolist())
                self._timeline.mark("wait")
            self.comm.local.barrier()
        self._begin_block()
        return bool(told[:, 1].any())

    @contextmanager
    def _resting(self) -> Iterator[None]:
        """Within, this rank's row may change, but for what does not learn."""
        layout, step = self._layout, self._step
        with held(self.parameters, layout.segments, step), held(self._statistics, layout.state_segments, step):
            yield

    def _average(self, weights: list[float]) -> None:
        size = max((owned.elements.size for owned in (*self._owned, *self._owned_rest)), default=0)
        mean, scaled = np.empty(size, self._row.dtype), np.empty(size, self._row.dtype)
        for owned, block_filter in (
            *((owned, self._filter) for owned in self._owned),
            *((owned, None) for owned in self._owned_rest),
        ):
            part, size = owned.elements.slice(), owned.elements.size
            _weighted_sum([row[part] for row in self._rows], weights, mean[:size], scaled[:size])
            if self.comm.cross.size > 1:
                self._timeline.mark("exchange")
                self.comm.cross.allreduce(mean[:size], out=mean[:size])
                self._timeline.mark("reduce")
            if block_filter is not None:
                block_filter.apply(owned, mean[:size])
            self._rows[:, part] = mean[:size]

    def _begin_block(self) -> None:
        self._replica.state.flat[:] = self._statistics
        self._num_samples = self._num_pending = 0
        if self._filter is not None:
            for owned in self._owned:
                self._filter.begin(owned, self._row[owned.elements.slice()])

    def _memory(self) -> Floats:
        """Where a checkpoint's copy lies: a row, then what the filter remembers; made when first needed."""
        if self._copy is None:
            extra = self._num_parameters * len(self._filter_places())
            self._copy = self.comm.shared_array(self._num_saved + extra, self._row.dtype)
        return self._copy

    def _saved_views(self, copy: Floats) -> dict[str, Floats]:
        places = self._filter_places()
        return self._state_views(copy) | {name: copy[start : start + self._num_parameters] for name, start in places}

    def _filter_places(self) -> list[tuple[str, int]]:
        names = self._filter.state if self._filter is not None else ()
        return [(name, self._num_saved + number * self._num_parameters) for number, name in enumerate(names)]

    def _filter_state(self, name: str) -> Floats:
        assert self._filter is not None
        return self._filter.state[name]


def my_ranges(
    layout: Layout, width: int, owner: int | None, num_owners: int
) -> tuple[tuple[OwnedRange, ...], tuple[OwnedRange, ...]]:
    """What ``owner`` (None: nobody) averages of the parameters, and of all that lies behind them in a row."""
    if owner is None:
        return (), ()
    rest = owned_ranges(width - layout.num_parameters, owner, num_owners)
    shifted = tuple(
        OwnedRange(owned.elements.shifted(layout.num_parameters), owned.in_state, (), owned.bucket) for owned in rest
    )
    return owned_ranges(layout.num_parameters, owner, num_owners), shifted


def _weighted_sum(inputs: list[Floats], weights: list[float], out: Floats, scaled: Floats) -> None:
    """``out`` = the sum of ``weights[i] * inputs[i]``, added from the first to the last."""
    np.multiply(inputs[0], weights[0], out=out)
    for values, weight in zip(inputs[1:], weights[1:], strict=True):
        np.multiply(values, weight, out=scaled)
        np.add(out, scaled, out=out)
