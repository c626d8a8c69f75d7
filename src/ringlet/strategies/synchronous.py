"""Synchronous data parallelism: every step uses the gradients of all shards, as if one worker had done it all.

The gradients of all ranks of a machine lie in shared memory; each rank adds up its ranges of them, exchanges the sums
with its peers on other machines, and applies the optimizer to its ranges of the parameters, which all ranks then have:
large networks lie once per machine, of small ones each rank has a copy (:mod:`~ringlet.strategies.copies`). So no
update is computed twice, and each rank holds only its part of the optimizer's state (Rajbhandari et al., *ZeRO: memory
optimizations toward training trillion parameter models*, 2020, stage 1; the sum is the reduce-scatter, spreading the
new parameters the all-gather).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.comm.compression import CompressionConfig, Exact
from ringlet.component import option
from ringlet.data.partition import bounds
from ringlet.engines.contract import Floats, Replica
from ringlet.errors import ConfigError
from ringlet.optim import Segment, clip_by_global_norm, clip_by_value, cut_segments
from ringlet.strategies.contract import Job, OnReady, StrategyConfig
from ringlet.strategies.copies import Copies, OwnCopies, SharedCopy, has_own_copies, staggered_zeros, whole_pages
from ringlet.strategies.finite import Magnitude, Undo, is_finite, safe_norm, segment_at
from ringlet.strategies.held import held
from ringlet.strategies.overlap import Overlap
from ringlet.strategies.ownership import Norms, OwnedRange, buckets, num_owned, owned_ranges
from ringlet.strategies.reduction import Reduction, ShardTree, Subtree
from ringlet.strategies.saved_state import Residuals, SavedState


@final
class SyncConfig(StrategyConfig):
    """Every step uses the gradients of all workers, as if one worker had done it all."""

    name: ClassVar[str] = "sync"
    lockstep: ClassVar[bool] = True
    overlap: Literal["auto", "on", "off"] = option(
        "auto", "exchange gradients during the backward pass; auto: measure both ways", affects_result=False
    )
    compression: CompressionConfig = option(
        Exact(), "of gradients between machines: none, fp16, bf16 or topk:SHARE, such as topk:0.01"
    )

    @property
    def steps_between_rounds(self) -> int:
        """One."""
        return 1

    def build(self, job: Job) -> Synchronous:
        """The strategy; every rank must call."""
        return Synchronous(job, self)


@final
class Synchronous:
    """See the module. ``num_shards`` defaults to one for each rank."""

    lockstep = True
    agreed = True

    def __init__(self, job: Job, config: SyncConfig | None = None) -> None:
        comm, layout, optimizer, kernels = job.comm, job.layout, job.optimizer, job.kernels
        self.comm, self._kernels, self._optimizer, self._timeline = comm, kernels, optimizer, job.timeline
        self._job, self._config = job, config or SyncConfig()
        self._compression = self._config.compression.build()
        num_shards = job.num_shards
        self.num_shards = comm.size if num_shards is None else num_shards
        if self.num_shards < comm.size:
            raise ConfigError(f"{self.num_shards} shards for {comm.size} workers: expected at least one for each")
        self.shards = range(*bounds(self.num_shards, comm.rank, comm.size))
        self._tree = ShardTree(self.num_shards)
        self._stack: list[Subtree] = []
        self._num_parameters, self._num_state, self._segments = layout.num_parameters, layout.num_state, layout.segments
        self._rest = layout.state_segments
        self._magnitude, self._safe_norm = Magnitude(), safe_norm(layout.dtype)
        self._largest = self._compression.largest if len(comm.local_sizes) > 1 else math.inf
        self._doubt: str | None = None
        """In a doubtful step: what was found that is not finite so far; None in others, where nothing is looked at."""
        num_values = layout.num_parameters + layout.num_state
        self._allocate_rows(num_values, layout.dtype)
        num_owners = min(comm.local_sizes)
        owner = comm.local_rank if comm.local_rank < num_owners else None
        self._owned = _owned(layout.num_parameters, owner, num_owners, layout.segments)
        self._owned_state = _owned(layout.num_state, owner, num_owners, ())
        self._copies = self._make_copies(num_values, layout.dtype)
        self._values = self._copies.values
        self.has_own_parameters = isinstance(self._copies, OwnCopies)
        self._state = _staggered(optimizer.init_state(num_owned(self._owned), layout.dtype))
        residuals = Residuals(self._compression, comm, self._owned)
        self._saved = SavedState(comm, self._copies, self._state, self._owned, residuals, layout.num_parameters)
        self._norms = Norms(comm.local, layout.segments, self._owned, kernels)
        self._reduction = self._make_reduction(num_owners)
        self._overlap = self._make_overlap(num_owners)

    @property
    def parameters(self) -> Floats:
        """The parameters: of this rank, or shared by its machine."""
        return self._values[: self._num_parameters]

    @property
    def gradients(self) -> Floats:
        """Where the replica writes; with one shard per rank straight into shared memory."""
        return self._pass[: self._num_parameters]

    @property
    def on_ready(self) -> OnReady | None:
        """Starts the exchange of what is final, if that is done during the backward pass."""
        return self._overlap.on_ready

    def scale(self, num_own: int, num_global: int) -> float:  # noqa: ARG002  the contract's
        """Gradients of all ranks are added up to the mean over the global batch."""
        return 1.0 / num_global

    @property
    def remarks(self) -> list[str]:
        """What was decided by measurement."""
        return self._overlap.remarks

    def attach(self, replica: Replica) -> None:
        """Begin with the parameters and running statistics of rank 0, on all ranks."""
        self._replica = replica
        if self.comm.rank == 0:
            self._agreed_state[:] = replica.state.flat
        self._copies.begin()
        replica.state.flat[:] = self._agreed_state

    def begin(self) -> None:
        """A new step begins: nothing is added up yet."""
        self._stack.clear()
        self._overlap.begin()

    def add(self, shard: int, num_samples: int) -> None:
        """Add the replica's gradients and statistics to the subtree of ``shard``."""
        if self.num_shards > 1 and self._num_state:
            np.multiply(self._replica.state.flat, num_samples, out=self._pass[self._num_parameters :])
            if len(self.shards) > 1:
                self._replica.state.flat[:] = self._agreed_state
        num_additions = self._tree.push(self._stack, shard)
        if len(self.shards) == 1:
            return
        top = len(self._stack) - 1
        if num_additions == 0:
            self._rows[top][:] = self._pass
        else:
            for place in range(top + num_additions, top, -1):
                newest = self._pass if place == top + num_additions else self._rows[place]
                np.add(self._rows[place - 1], newest, out=self._rows[place - 1])

    def agree(self, metrics: NDArray[np.float64]) -> NDArray[np.float64]:
        """Metrics of all shards; when this returns, all ranks have finished their passes."""
        self._timeline.mark("wait")
        self.comm.allreduce(metrics, out=metrics)
        self._magnitude = Magnitude.of(metrics)
        return metrics

    def update(self, *, step: int, learning_rate: float, num_samples: int) -> str | None:
        """Add up, exchange and update this rank's ranges; when this returns, all ranks have done so."""
        self._overlap.finish(self._timeline)
        problem = None
        if self._magnitude.is_doubtful(self._largest, self._safe_norm, learning_rate):
            problem = self._update_or_undo(step, learning_rate, num_samples)
        else:
            self._update(step, learning_rate, num_samples)
        self._compression.accept()
        self._copies.spread(self._timeline)
        self._replica.state.flat[:] = self._agreed_state
        self._overlap.end()
        return problem

    def skip(self) -> None:
        """Leave parameters, running statistics and the optimizer as they were before this step."""
        self._overlap.finish(self._timeline)
        self._compression.undo()
        self._replica.state.flat[:] = self._agreed_state
        self._overlap.end()

    def end_step(self, step: int, *, wants_to_stop: bool) -> bool:  # noqa: ARG002  the contract's
        """Nothing is left to do."""
        return False

    def settle(self) -> None:
        """All ranks are equal after every step."""

    def staleness(self) -> None:
        """Gradients are applied to the parameters that they were computed with."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the optimizer's state arrays."""
        return self._optimizer.state_names

    def save(self) -> tuple[Floats, dict[str, NDArray[Any]]]:
        """Copies of parameters and running statistics (one array) and of the optimizer's state of all parameters.

        They stay as they are until the next call.
        """
        return self._saved.gather()

    def load(self, values: Floats | None, state: Mapping[str, NDArray[Any]] | None) -> None:
        """Go on from what rank 0 passes (the others: None), as :meth:`save` gave it on any number of ranks."""
        self._saved.give_out(values, state)
        self._replica.state.flat[:] = self._agreed_state

    @property
    def _agreed_state(self) -> Floats:
        return self._values[self._num_parameters :]

    def _allocate_rows(self, num_values: int, dtype: DTypeLike) -> None:
        """Shared memory for this rank's subtrees; a single shard is computed in its row, several in private memory."""
        depth = self._tree.depth(self.shards)
        depths = self.comm.local.allgather(np.array([depth], np.int64)).tolist()
        rows = self.comm.shared_array((sum(depths), whole_pages(num_values, dtype)), dtype)[:, :num_values]
        first = sum(depths[: self.comm.local_rank])
        self._all_rows, self._depths = rows, depths
        self._first_rows = np.cumsum([0, *depths[:-1]]).tolist()
        self._rows = rows[first : first + depth]
        self._sum = self._rows[0]
        """Where this rank's ranges of the sum over all shards end up."""
        self._pass: Floats = self._sum if len(self.shards) == 1 else staggered_zeros(num_values, dtype, 0)

    def _make_copies(self, num_values: int, dtype: DTypeLike) -> Copies:
        comm = self.comm
        if not has_own_copies(num_values * np.dtype(dtype).itemsize, comm.local_sizes):
            return SharedCopy(comm, num_values, dtype)
        rows = [self._all_rows[first] for first in self._first_rows]
        state = (owned.elements.shifted(self._num_parameters) for owned in self._owned_state)
        return OwnCopies(comm, rows, [*(owned.elements for owned in self._owned), *state], self._kernels)

    def _make_reduction(self, num_owners: int) -> Reduction:
        comm = self.comm
        shards = [range(*bounds(self.num_shards, rank, comm.size)) for rank in range(comm.size)]
        local_ranks = comm.local.allgather(np.array([comm.rank], np.int64)).tolist()
        roots = [self._tree.roots(shards[rank]) for rank in local_ranks]
        used = zip(self._first_rows, map(len, roots), strict=True)
        inputs = [row for first, count in used for row in self._all_rows[first : first + count]]
        return Reduction(
            inputs=inputs,
            subtrees=[node for own in roots for node in own],
            tree=self._tree,
            out=self._sum,
            cross=comm.cross if comm.local_rank < num_owners else None,
            compression=self._compression,
            same_bits=self._job.same_bits,
            kernels=self._kernels,
        )

    def _make_overlap(self, num_owners: int) -> Overlap:
        """A pass can be exchanged while it runs only where it is the rank's only one."""
        possible = self.comm.size > 1 and self.num_shards == self.comm.size
        mode = self._config.overlap if possible else "off"
        whole = buckets(self._num_parameters, num_owners)
        return Overlap(self._reduction, self._owned, whole, self.comm, mode)

    def _update(self, step: int, learning_rate: float, num_samples: int) -> None:
        if self._job.clip_norm is None and not self._optimizer.needs_segments:
            self._update_range_by_range(step, learning_rate)
        else:
            self._update_with_norms(step, learning_rate)
        self._update_state(step, num_samples)

    def _update_or_undo(self, step: int, learning_rate: float, num_samples: int) -> str | None:
        """Update on trial: if anything is not finite afterwards on any rank, nothing has changed on all of them."""
        undo = Undo(values for values, _ in self._own_values())
        self._doubt = ""
        with np.errstate(over="ignore", invalid="ignore"):
            self._update(step, learning_rate, num_samples)
            own = self._doubt or self._find_overflow()
        self._doubt = None
        problem = next(filter(None, self.comm.allgather_bytes(own.encode())), b"").decode()
        if problem:
            undo.restore()
            self._compression.undo()
        return problem or None

    def _own_values(self) -> Iterator[tuple[Floats, str]]:
        """All that an update changes of this rank's ranges, with what it is."""
        for owned in self._owned:
            yield self._values[owned.elements.slice()], "the new values"
            for name, values in self._state.items():
                yield values[owned.in_state.slice()], f"the optimizer's state '{name}'"
        for owned in self._owned_state:
            yield self._values[owned.elements.shifted(self._num_parameters).slice()], "the mean of running statistics"

    def _find_overflow(self) -> str:
        """What an update has left that is not finite, in words."""
        for values, what in self._own_values():
            if not is_finite(values):
                return f"{what} would not be finite after the update"
        if not all(map(is_finite, self._compression.residuals.values())):
            return f"what compression {self._compression.name} keeps back is not finite"
        return ""

    def _update_range_by_range(self, step: int, learning_rate: float) -> None:
        """Each range is added up, exchanged and updated while it is in cache."""
        for owned in self._owned:
            self._reduce(owned)
            self._apply(owned, step, learning_rate)

    def _update_with_norms(self, step: int, learning_rate: float) -> None:
        """Norms of the whole are needed before any range is updated."""
        for owned in self._owned:
            self._reduce(owned)
        self._timeline.mark("exchange")
        gradients, clip_norm = self._sum, self._job.clip_norm
        if clip_norm is not None:
            norm = self._norms.global_norm(gradients)
            if self._doubt == "" and not math.isfinite(norm):
                self._doubt = "the norm of all gradients is not finite, they cannot be clipped by it"
            for owned in self._owned:
                clip_by_global_norm(gradients[owned.elements.slice()], clip_norm, norm=norm, kernels=self._kernels)
        norms = self._norms.segment_norms(self._values, gradients) if self._optimizer.needs_segments else None
        for owned in self._owned:
            self._apply(owned, step, learning_rate, norms)

    def _reduce(self, owned: OwnedRange) -> None:
        """Add up a range of all gradients and bring its elements into their bounds, if there are any."""
        if not self._overlap.has_reduced:
            self._reduction.run(owned.elements, self._timeline)
        gradients = self._sum[owned.elements.slice()]
        if self._doubt == "" and not is_finite(gradients):
            self._doubt = self._explain_sum(segment_at(self._segments, gradients, owned.elements.start))
        if self._job.clip_value is not None:
            clip_by_value(gradients, self._job.clip_value)

    def _explain_sum(self, where: str) -> str:
        largest = self._largest
        if math.isinf(largest):
            return f"the sum of all shards' gradients{where} is not finite"
        name = self._compression.name
        limit = f" (largest value {largest:g})" if largest else ""
        return f"the sum of all shards' gradients{where}, with compression {name}{limit}, is not finite"

    def _apply(self, owned: OwnedRange, step: int, learning_rate: float, norms: Any = None) -> None:
        self._timeline.mark("update")
        part, in_state = owned.elements.slice(), owned.in_state.slice()
        self._optimizer.update(
            self._values[part],
            self._sum[part],
            {name: values[in_state] for name, values in self._state.items()},
            step=step,
            learning_rate=learning_rate,
            segments=owned.segments,
            segment_norms=norms,
            kernels=self._kernels,
        )

    def _update_state(self, step: int, num_samples: int) -> None:
        """Running statistics become the mean of those of all shards, weighed by samples; what rests stays."""
        if self.num_shards == 1:
            self._agreed_state[:] = self._replica.state.flat
            return
        for owned in self._owned_state:
            elements = owned.elements.shifted(self._num_parameters)
            self._reduction.run(elements, self._timeline, compressed=False)
            with held(self._values[elements.slice()], cut_segments(self._rest, *owned.elements), step):
                np.divide(self._sum[elements.slice()], num_samples, out=self._values[elements.slice()])


def _staggered(state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Copies of the optimizer's arrays at places of their own."""
    copies = {}
    for place, (name, array) in enumerate(state.items(), 2):
        copies[name] = staggered_zeros(array.size, array.dtype, place)
        copies[name][:] = array
    return copies


def _owned(
    num_elements: int, owner: int | None, num_owners: int, segments: Sequence[Segment]
) -> tuple[OwnedRange, ...]:
    return () if owner is None else owned_ranges(num_elements, owner, num_owners, segments)
