"""One model in memory that all ranks reach by themselves, and the way of a gradient into it.

There is no server: whoever brings the last gradient of a *group* makes the update, under the lock of the window
(:mod:`ringlet.comm.window`) in which parameters, running statistics and the optimizer's state lie. Every rank computes
with a copy of its own, taken when its last gradient had arrived. :class:`AsyncConfig` has groups of one gradient,
:class:`SoftSyncConfig` larger ones.

*Staleness* is the number of updates that were made between the moment in which a rank took its copy and the arrival of
the gradient that it computed with it. The learning rate of an update is divided by the mean staleness of its gradients,
if that is more than one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import sleep
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.contract import Communicator
from ringlet.component import required
from ringlet.engines.contract import Floats, Replica
from ringlet.errors import ConfigError
from ringlet.optim import NEVER, Pace, Segment
from ringlet.strategies.contract import Job, Layout, Staleness, StrategyConfig
from ringlet.strategies.finite import Undo, is_finite
from ringlet.strategies.held import held
from ringlet.strategies.local_steps import LocalSteps
from ringlet.strategies.saved_state import check_state

_VERSION, _COLLECTED, _SAMPLES, _STALENESS, _STEP, _RATE, _DOUBTFUL, _ACTIVE, _STOP_AT, _BEGUN = range(10)
"""Words of the header: updates made; of the group that is being collected the contributions, samples, staleness summed
over samples, step, learning rate (a float64) and whether one of its gradients is so large that the update may overflow;
ranks that still train; the step after which all stop, or 0; from there on the step that each rank is in."""
_ALIGNED = 64
_FIRST_WAIT, _LONGEST_WAIT = 2e-5, 1e-3
"""Seconds between two looks at whether one's group is complete."""


class Contents(NamedTuple):
    """Views of a window's memory."""

    header: NDArray[np.int64]
    values: Floats
    """Parameters, then running statistics."""
    state: dict[str, Floats]
    """The optimizer's."""
    sums: Floats
    """Gradients and running statistics of the group, each times its samples; empty where a group has one gradient."""


@final
class AsyncConfig(StrategyConfig):
    """No worker waits for another; old gradients count less.

    Zhang, Gupta, Lian and Liu, *Staleness-aware async-SGD for distributed deep learning*, 2016 (arXiv 1511.05950).
    Every gradient updates the model as soon as it has been computed, with the learning rate divided by its staleness τ
    (by one if τ is 0). A gradient is the mean over the samples of one rank, so an epoch has as many updates as there
    are passes. The order in which gradients arrive depends on the speed of ranks: no two runs are alike.

    Running statistics are those that the last pass has made of the ones it began with. The parameters of different
    ranks differ by a few updates within an epoch; at its end all take the model, which is what is evaluated and saved.
    """

    name: ClassVar[str] = "async"

    def build(self, job: Job) -> SharedModel:
        """The strategy; every rank must call."""
        return SharedModel(job, group_size=1)


@final
class SoftSyncConfig(StrategyConfig):
    """n-soft-synchronous: an update as soon as some of the workers have brought their gradients.

    Gupta, Zhang and Wang, *Model accuracy and runtime tradeoff in distributed deep learning: a systematic study*, 2016
    (arXiv 1509.04210). Of λ ranks c = ⌊λ / n⌋ gradients, the first that arrive, make an update with their mean. With
    n = λ every gradient does, as in :class:`AsyncConfig`. The mean weighs by samples, and the learning rate is divided
    by the mean staleness of the gradients, if that is more than one.

    One thing differs from the paper: a rank waits until the update with its gradient has been made, instead of
    computing another one with the same parameters. So no rank contributes twice to an update, and n = 1 is synchronous
    training, up to the order of additions. At the end of an epoch an update takes what the ranks that are left can
    bring.
    """

    name: ClassVar[str] = "softsync"
    argument: ClassVar[str] = "n"
    n: int = required("updates that all workers together make of one gradient each; 1: all in one", ge=1, le=1_000_000)

    def build(self, job: Job) -> SharedModel:
        """The strategy; every rank must call."""
        return SharedModel(job, group_size=self.group_size(job.comm.size))

    def group_size(self, num_ranks: int) -> int:
        """c = ⌊λ / n⌋: how many of ``num_ranks`` gradients make an update."""
        if self.n > num_ranks:
            raise ConfigError(
                f"strategy = softsync:{self.n} with {num_ranks} workers: expected 1 (all workers in every update) to "
                f"{num_ranks} (one in each)"
            )
        return num_ranks // self.n


@final
class SharedModel(LocalSteps):
    """A strategy: see the module. ``group_size`` gradients make an update."""

    def __init__(self, job: Job, *, group_size: int) -> None:
        comm, layout = job.comm, _by_updates(job.layout, job.comm.size, group_size)
        super().__init__(replace(job, layout=layout))
        self._group_size = group_size
        self._header_bytes = -(-8 * (_BEGUN + comm.size) // _ALIGNED) * _ALIGNED
        num_sums = self._num_values if group_size > 1 else 0
        itemsize = np.dtype(layout.dtype).itemsize
        self._window = comm.window(self._header_bytes + itemsize * (self._num_saved + num_sums))
        self._own: Floats = np.zeros(self._num_values, layout.dtype)
        self._meter = StalenessMeter()
        self._version = 0
        """Of this rank's copy."""

    @property
    def parameters(self) -> Floats:
        """This rank's copy."""
        return self._own[: self._num_parameters]

    def attach(self, replica: Replica) -> None:
        """Begin with the parameters and running statistics of rank 0, on all ranks."""
        self._follow(replica)
        if self.comm.rank == 0:
            self._statistics[:] = replica.state.flat
            with self._window.locked() as memory:
                self._contents(memory).values[:] = self._own
        self._begin_together()

    def update(
        self,
        *,
        step: int,
        learning_rate: float,
        num_samples: int,  # noqa: ARG002  the contract's
    ) -> str | None:
        """Bring this rank's gradient into the model, and take a new copy once the model has it."""
        own, doubtful = self._pass.finish(self._optimizer_step(step)), self._is_doubtful(learning_rate)
        if doubtful and (problem := self._pass.find_overflow()):
            self.skip()
            return problem
        return self._bring(own, self._optimizer_step(step), learning_rate, doubtful=doubtful) or None

    def skip(self) -> None:
        """Bring nothing; others may wait for this rank's contribution all the same."""
        super().skip()
        self._bring(0)

    def end_step(self, step: int, *, wants_to_stop: bool) -> bool:
        """Tell others if this rank wants to stop: all do so after the furthest step that one of them has begun."""
        self._num_pending += 1
        with self._window.locked(self._header_bytes) as memory:
            header = memory.view(np.int64)
            begun = header[_BEGUN : _BEGUN + self.comm.size]
            if wants_to_stop and header[_STOP_AT] == 0:
                header[_STOP_AT] = max(step, int(begun.max()))
            is_over = 0 < header[_STOP_AT] <= step
            if not is_over:
                begun[self.comm.rank] = step + 1
        return bool(is_over)

    def settle(self) -> None:
        """Wait for the gradients of all ranks; then all copy the model."""
        if self._num_pending:
            with self._window.locked() as memory:
                contents = self._contents(memory)
                contents.header[_ACTIVE] -= 1
                contents.header[_DOUBTFUL] = 0  # no one could report an undone update: it is found when saving
                self._update_if_complete(contents)
            self._begin_together()

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the optimizer's state arrays."""
        return self._optimizer.state_names

    def staleness(self) -> Staleness | None:
        """Of all gradients since the last call. Every rank must call."""
        return self._meter.take(self.comm)

    def save(self) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """Copies of the model, after the gradients of all ranks have arrived; they stay until the next call."""
        self.settle()
        if self._copy is None:
            self._copy = self.comm.shared_array(self._num_saved, self._layout.dtype)
        if self.comm.local_rank == 0:
            with self._window.locked() as memory:
                self._copy[:] = self._floats(memory)[: self._num_saved]
        self.comm.barrier()
        return self._copy[: self._num_values], self._state_views(self._copy)

    def load(self, values: Floats | None, state: Mapping[str, NDArray[Any]] | None) -> None:
        """Go on from what rank 0 passes (the others: None), as :meth:`save` gave it on any number of ranks."""
        if self.comm.rank == 0:
            assert values is not None
            assert state is not None
            check_state(self.state_names, state, self._num_parameters)
            with self._window.locked() as memory:
                contents = self._contents(memory)
                contents.values[:] = values
                for name, view in contents.state.items():
                    view[:] = state[name]
        self._begin_together()

    @property
    def _statistics(self) -> Floats:
        """Those of this rank's copy of the model."""
        return self._own[self._num_parameters :]

    def _bring(self, num_samples: int, step: int = 0, learning_rate: float = 0.0, *, doubtful: bool = False) -> str:
        """Contribute to an update, and wait for it; gives what was not finite, in words, if that was left out."""
        problem = ""
        self._timeline.mark("wait")
        with self._window.locked() as memory:
            contents = self._contents(memory)
            staleness = int(contents.header[_VERSION]) - self._version
            if num_samples:
                self._meter.add(staleness)
            if num_samples or self._group_size > 1:
                self._timeline.mark("update")
                if num_samples:
                    problem = self._collect(contents, num_samples, staleness, doubtful)
                    contents.header[_STEP] = step
                    contents.header.view(np.float64)[_RATE] = learning_rate
                contents.header[_COLLECTED] += 1
                arrived, overflow = self._update_if_complete(contents)
                problem = problem or overflow
            else:
                arrived = True
            if arrived:
                self._take_copy(contents)
            awaited = int(contents.header[_VERSION])
        if not arrived:
            self._timeline.mark("wait")
            self._wait_for_version_after(awaited)
        return problem

    def _optimizer_step(self, step: int) -> int:
        """About how many updates have been made: all ranks are near the same step."""
        return num_updates(step, self.comm.size, self._group_size)

    def _collect(self, contents: Contents, num_samples: int, staleness: int, doubtful: bool) -> str:
        """Add this rank's gradient to its group; a group of one needs no memory for that.

        Gives what is not finite then, in words, and leaves the group without it.
        """
        if self._group_size > 1:
            undo = Undo([contents.sums] if doubtful else [])
            with np.errstate(over="ignore", invalid="ignore"):
                contents.sums[: self._num_parameters] += self._pass.sum * num_samples
                contents.sums[self._num_parameters :] += self._replica.state.flat * num_samples
                if doubtful and not is_finite(contents.sums):
                    undo.restore()
                    return "the sum of the gradients of several workers is not finite"
        contents.header[_SAMPLES] += num_samples
        contents.header[_STALENESS] += num_samples * staleness
        contents.header[_DOUBTFUL] |= doubtful
        return ""

    def _update_if_complete(self, contents: Contents) -> tuple[bool, str]:
        """Update the model if all gradients of the group are there; gives whether they were, and what overflowed.

        Near the end of an epoch a group may have to do with as many gradients as there are ranks left.
        """
        header, problem = contents.header, ""
        collected, num_samples = int(header[_COLLECTED]), int(header[_SAMPLES])
        if collected == 0 or collected < min(self._group_size, int(header[_ACTIVE])):
            return False, ""
        if num_samples:
            problem = self._update_model(contents, num_samples, max(float(header[_STALENESS]) / num_samples, 1.0))
        header[_COLLECTED] = header[_SAMPLES] = header[_STALENESS] = header[_DOUBTFUL] = 0
        header[_VERSION] += 1
        return True, problem

    def _update_model(self, contents: Contents, num_samples: int, staleness: float) -> str:
        """Gives what is not finite, in words; then the model is as it was, and what was collected is forgotten."""
        statistics = contents.values[self._num_parameters :]
        doubtful = bool(contents.header[_DOUBTFUL])
        undo = Undo([statistics] if doubtful else [])
        if self._group_size > 1:
            np.divide(contents.sums[: self._num_parameters], num_samples, out=self._pass.sum)
            with held(statistics, self._layout.state_segments, int(contents.header[_STEP])):
                np.divide(contents.sums[self._num_parameters :], num_samples, out=statistics)
            contents.sums.fill(0)
        else:
            statistics[:] = self._replica.state.flat
        problem = self._pass.update(
            contents.values[: self._num_parameters],
            contents.state,
            step=int(contents.header[_STEP]),
            learning_rate=float(contents.header.view(np.float64)[_RATE]) / staleness,
            doubtful=doubtful,
        )
        if problem:
            undo.restore()
        return problem

    def _take_copy(self, contents: Contents) -> None:
        self._own[:] = contents.values
        self._replica.state.flat[:] = self._statistics
        self._version = int(contents.header[_VERSION])

    def _wait_for_version_after(self, version: int) -> None:
        pause = _FIRST_WAIT
        while True:
            with self._window.locked(self._header_bytes) as memory:
                is_there = int(memory.view(np.int64)[_VERSION]) > version
            if is_there:
                break
            sleep(pause)
            pause = min(2 * pause, _LONGEST_WAIT)
        with self._window.locked() as memory:
            self._take_copy(self._contents(memory))

    def _begin_together(self) -> None:
        """All ranks take the model as it is; every rank must call, after its last change of the window."""
        self._timeline.mark("wait")
        self.comm.barrier()
        if self.comm.rank == 0:
            with self._window.locked(self._header_bytes) as memory:
                header = memory.view(np.int64)
                header[_ACTIVE] = self.comm.size
                header[_STOP_AT:] = 0
        self.comm.barrier()
        with self._window.locked() as memory:
            self._take_copy(self._contents(memory))
        self._num_pending = 0
        self.comm.barrier()

    def _contents(self, memory: NDArray[np.uint8]) -> Contents:
        floats = self._floats(memory)
        header = memory[: self._header_bytes].view(np.int64)
        return Contents(header, floats[: self._num_values], self._state_views(floats), floats[self._num_saved :])

    def _floats(self, memory: NDArray[np.uint8]) -> Floats:
        floats: Floats = memory[self._header_bytes :].view(self._layout.dtype)
        return floats


def num_updates(step: int, num_ranks: int, group_size: int) -> int:
    """The number of the update (from 1) that the gradients of ``step`` begin with, as ranks take steps together."""
    return (step - 1) * num_ranks // group_size + 1


def _by_updates(layout: Layout, num_ranks: int, group_size: int) -> Layout:
    """The layout with first steps counted in updates of the model."""

    def counted(segment: Segment) -> Segment:
        rate, first = segment.pace
        return (
            segment
            if first in (1, NEVER)
            else replace(segment, pace=Pace(rate, num_updates(first, num_ranks, group_size)))
        )

    segments, state = (tuple(map(counted, own)) for own in (layout.segments, layout.state_segments))
    return replace(layout, segments=segments, state_segments=state)


NUM_BINS = 64
"""Of the histogram; the last one also counts all that is older."""


@final
class StalenessMeter:
    """Counts the gradients of one rank."""

    def __init__(self) -> None:
        self._counts = np.zeros(NUM_BINS, np.int64)
        self._sum = self._max = 0

    def add(self, staleness: int) -> None:
        """One more gradient."""
        self._counts[min(staleness, NUM_BINS - 1)] += 1
        self._sum += staleness
        self._max = max(self._max, staleness)

    def take(self, comm: Communicator) -> Staleness | None:
        """What all ranks have counted since the last call; None without gradients. Every rank must call."""
        rows = comm.allgather(np.array([[self._sum, self._max, *self._counts]], np.int64))
        self._counts.fill(0)
        self._sum = self._max = 0
        counts = rows[:, 2:].sum(axis=0)
        total = int(counts.sum())
        if total == 0:
            return None
        last = int(counts.nonzero()[0][-1])
        return Staleness(float(rows[:, 0].sum() / total), int(rows[:, 1].max()), tuple(counts[: last + 1].tolist()))
