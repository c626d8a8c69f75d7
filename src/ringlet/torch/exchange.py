"""The exchange of an optimizer's gradients: follows the backward pass by hooks, and combines what all ranks have.

All ranks agree on everything when the exchange is made: names, shapes, dtypes, options. After that nothing must come in
the same order: what a rank has not started by itself is started when it needs the result.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ringlet.comm import world
from ringlet.named import (
    ArgumentsError,
    CollectiveError,
    NamedCollectives,
    ProcessSet,
    Reduction,
    Submission,
    session,
)
from ringlet.named.horovod import CastCompressor, Compressor, Scaling
from ringlet.torch.buckets import (
    Bucket,
    CompressedBucket,
    DenseBucket,
    SparseBucket,
    cut_by_bytes,
    cut_by_count,
    place_in_buffers,
)
from ringlet.torch.optimizer_class import GradientStateError
from ringlet.torch.tensors import dtype_name, layout

BUCKET_BYTES = 8 << 20
"""About what travels at once while the backward pass runs."""


@final
@dataclass(frozen=True)
class ExchangeOptions:
    """How gradients are exchanged."""

    compression: type[Compressor]
    op: Reduction
    predivide: float = 1.0
    groups: int | list[list[Parameter]] | None = None
    sparse_as_dense: bool = False
    overlap: str = "auto"

    def scaling(self, size: int) -> Scaling:
        """With a predivide factor f: 1/f before the sum, f/size after it."""
        if self.predivide == 1.0:
            return Scaling(self.op)
        return Scaling(Reduction.SUM, 1.0 / self.predivide, self.predivide / size)


@final
class GradientExchange:
    """Of some parameters, among the ranks of a process set, all of which must make it with the same parameters."""

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[Parameter],
        options: ExchangeOptions,
        num_passes: int,
        process_set: ProcessSet,
    ) -> None:
        self.parameters = list(parameters)
        self.names = list(names)
        self.in_progress = False
        """Whether there was a backward pass since the last exchange."""
        self.num_passes = num_passes
        self._options = options
        self._process_set = process_set
        self._collectives: NamedCollectives = session.collectives(process_set)
        self._keep_layout, self._overlap = _agree(self._collectives, process_set, self)
        self._sparse_dims: dict[int, int] = {}
        self._passes_left = [num_passes] * len(self.parameters)
        self._seen: list[tuple[Tensor, int] | None] = [None] * len(self.parameters)
        self._plan()
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._make_hook(place))  # type: ignore[no-untyped-call]
            for place, parameter in enumerate(self.parameters)
        ]

    @property
    def options(self) -> ExchangeOptions:
        """As given."""
        return self._options

    @property
    def is_complete(self) -> bool:
        """Whether every gradient has had all its passes."""
        return not any(self._passes_left)

    def close(self) -> None:
        """Follow backward passes no longer."""
        for hook in self._hooks:
            hook.remove()

    def set_num_passes(self, num_passes: int) -> None:
        """Exchange after so many backward passes from now on."""
        self.num_passes = num_passes
        self._passes_left[:] = [num_passes] * len(self.parameters)

    def synchronize(self) -> None:
        """Exchange all gradients: start what was not started, wait, and set the parameters' gradients."""
        try:
            for bucket in self._buckets:
                if not bucket.launched:
                    bucket.launch(background=False)
            self._check_untouched()
            flagged = self._finish_all()
            if flagged:
                self._learn_sparse(flagged)
        finally:
            self._reset()

    def _finish_all(self) -> list[Bucket]:
        """Wait for every bucket, also after an error; gives those with unexpected sparse gradients."""
        flagged, errors = [], []
        for bucket in self._buckets:
            try:
                if bucket.finish():
                    flagged.append(bucket)
            except CollectiveError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return flagged

    def _reset(self) -> None:
        self.in_progress = False
        self._passes_left[:] = [self.num_passes] * len(self.parameters)
        self._seen[:] = [None] * len(self.parameters)
        for bucket in self._buckets:
            bucket.reset()

    # -- the backward pass --------------------------------------------------------------------------------------------
    def _make_hook(self, place: int) -> Callable[[Tensor], None]:
        passes_left, seen = self._passes_left, self._seen

        def hook(parameter: Tensor) -> None:
            left = passes_left[place] - 1
            if left < 0:
                raise GradientStateError(
                    f"gradients of '{self.names[place]}' were computed more than backward_passes_per_step="
                    f"{self.num_passes} times before step(): increase backward_passes_per_step, or call step() or "
                    "synchronize() in between"
                )
            passes_left[place] = left
            self.in_progress = True
            if left == 0:
                bucket, index = self._bucket_of[place]
                if bucket.take(index):
                    bucket.launch(background=self._overlap)
            gradient = parameter.grad
            assert gradient is not None
            seen[place] = (gradient, gradient._version)

        return hook

    def _check_untouched(self) -> None:
        """Refuse gradients that were changed since the backward pass: the change would be lost or differ by rank."""
        for place, (parameter, seen) in enumerate(zip(self.parameters, self._seen, strict=True)):
            if seen is None:
                continue
            gradient, version = seen
            if parameter.grad is not gradient or gradient._version != version:
                raise GradientStateError(
                    f"the gradient of '{self.names[place]}' was changed between backward() and the exchange with the "
                    "other ranks: call optimizer.synchronize() first, then change gradients (clipping, unscaling, "
                    "zeroing), then call optimizer.step() within optimizer.skip_synchronize()"
                )

    # -- buckets ------------------------------------------------------------------------------------------------------
    def _plan(self) -> None:
        """Make the buckets; every rank must call."""
        name = _unused_name(self._collectives)
        dense = [place for place in range(len(self.parameters)) if place not in self._sparse_dims]
        scaling = self._options.scaling(self._collectives.size)
        self._buckets: list[Bucket] = []
        for places in self._cut(dense[::-1]):
            self._buckets += self._dense_buckets(f"{name} bucket", places, scaling)
        self._place()
        factor = scaling.prescale * scaling.postscale
        if scaling.op is Reduction.AVERAGE:
            factor /= self._collectives.size
        for place, sparse_dim in self._sparse_dims.items():
            sparse_name = f"{name} sparse {place}"
            parameter = self.parameters[place]
            self._buckets.append(
                SparseBucket(self._collectives, sparse_name, place, parameter, scaling, factor, sparse_dim)
            )
        self._bucket_of = {
            place: (bucket, index) for bucket in self._buckets for index, place in enumerate(bucket.places)
        }

    def _cut(self, places: list[int]) -> list[list[int]]:
        """Which parameters are exchanged together, in the order in which backward passes reach them."""
        groups = self._options.groups
        if not places:
            return []
        if not self._overlap:
            return [places]
        if isinstance(groups, int) and groups:
            return cut_by_count(places, min(groups, len(places)))
        chosen: list[list[int]] = []
        if isinstance(groups, list):
            numbers = {id(parameter): place for place, parameter in enumerate(self.parameters)}
            members = [[numbers[id(parameter)] for parameter in group if id(parameter) in numbers] for group in groups]
            chosen = [[place for place in group if place in places] for group in members]
            chosen = [group for group in chosen if group]
        grouped = {place for group in chosen for place in group}
        rest = [place for place in places if place not in grouped]
        return chosen + cut_by_bytes(rest, self.parameters, BUCKET_BYTES)

    def _dense_buckets(self, name: str, places: Sequence[int], scaling: Scaling) -> list[Bucket]:
        """One for each dtype that travels."""
        made: list[Bucket] = []
        by_dtype: dict[torch.dtype, list[int]] = {}
        for place in places:
            by_dtype.setdefault(self._wire_dtype(self.parameters[place]), []).append(place)
        for members in by_dtype.values():
            own_name = f"{name} {len(self._buckets) + len(made)}"
            parameters = [self.parameters[place] for place in members]
            compression = self._options.compression
            if issubclass(compression, CastCompressor):
                densify = self._options.sparse_as_dense
                made.append(DenseBucket(self._collectives, own_name, members, parameters, scaling, densify=densify))
            else:
                made.append(CompressedBucket(self._collectives, own_name, members, parameters, scaling, compression))
        return made

    def _place(self) -> None:
        by_dtype: dict[torch.dtype, list[DenseBucket]] = {}
        for bucket in self._buckets:
            if isinstance(bucket, DenseBucket):
                by_dtype.setdefault(self._wire_dtype(bucket.parameters[0]), []).append(bucket)
        for dtype, buckets in by_dtype.items():
            place_in_buffers(self._collectives, buckets, dtype, self._keep_layout)

    def _wire_dtype(self, parameter: Parameter) -> torch.dtype:
        compression = self._options.compression
        if not issubclass(compression, CastCompressor):
            return parameter.dtype
        found: torch.dtype = getattr(torch, compression.wire_dtype(dtype_name(parameter.dtype)))
        return found

    # -- sparse gradients ---------------------------------------------------------------------------------------------
    def _learn_sparse(self, flagged: Sequence[Bucket]) -> None:
        """Some rank has sparse gradients that no rank knew of: agree on them, exchange them, and cut buckets again."""
        own = {
            place: self.parameters[place].grad.sparse_dim()  # type: ignore[union-attr]
            for bucket in flagged
            for place in bucket.places
            if _is_sparse(self.parameters[place].grad)
        }
        for told in session.allgather_object(sorted(own.items()), None, self._process_set):
            self._sparse_dims.update({int(place): int(dim) for place, dim in told})
        self._plan()
        for bucket in self._buckets:
            if isinstance(bucket, SparseBucket):
                bucket.launch(background=False)
                bucket.finish()


_num_names: WeakKeyDictionary[NamedCollectives, int] = WeakKeyDictionary()


def _unused_name(collectives: NamedCollectives) -> str:
    """The same on all ranks, which make their exchanges in the same order, and another one for each of them."""
    _num_names[collectives] = _num_names.get(collectives, 0) + 1
    return f"gradients {_num_names[collectives]}"


def _is_sparse(gradient: Tensor | None) -> bool:
    return gradient is not None and gradient.layout is not torch.strided


# -- agreement --------------------------------------------------------------------------------------------------------
def _agree(collectives: NamedCollectives, process_set: ProcessSet, exchange: GradientExchange) -> tuple[bool, bool]:
    """Compare what all ranks are about to exchange; tells whether layouts agree, and whether to overlap."""
    options = exchange.options
    facts = {
        "parameters": [
            [name, str(parameter.dtype), list(parameter.shape)]
            for name, parameter in zip(exchange.names, exchange.parameters, strict=True)
        ],
        "options": [options.compression.__name__, options.op.value, options.predivide, options.sparse_as_dense],
        "groups": _group_facts(exchange),
    }
    layouts = [layout(parameter) for parameter in exchange.parameters]
    digests = b"".join(hashlib.sha256(json.dumps(fact).encode()).digest() for fact in (facts, layouts))
    own = np.frombuffer(digests + bytes([_wants_overlap(options.overlap)]), np.uint8)[None]
    (rows,) = collectives.run(Submission("allgather", collectives.default_name("optimizer"), (own,)))
    if (rows[:, :32] != rows[0, :32]).any():
        _explain(session.allgather_object(facts, None, process_set), collectives.ranks)
    return not (rows[:, 32:64] != rows[0, 32:64]).any(), bool(rows[:, 64].all())


def _group_facts(exchange: GradientExchange) -> Any:
    groups = exchange.options.groups
    if not isinstance(groups, list):
        return groups
    names = {id(parameter): name for name, parameter in zip(exchange.names, exchange.parameters, strict=True)}
    return [[names.get(id(parameter)) for parameter in group] for group in groups]


def _explain(facts: Sequence[dict[str, Any]], ranks: Sequence[int]) -> None:
    first = facts[0]
    for rank, other in zip(ranks, facts, strict=True):
        if other == first:
            continue
        if other["parameters"] == first["parameters"]:
            raise ArgumentsError(
                f"the options of the distributed optimizer differ: rank {ranks[0]} has {first['options']} and groups "
                f"{first['groups']}, rank {rank} has {other['options']} and groups {other['groups']}"
            )
        pairs = zip([*first["parameters"], None], [*other["parameters"], None], strict=False)
        ours, theirs = next(pair for pair in pairs if pair[0] != pair[1])
        raise ArgumentsError(
            f"the parameters of the distributed optimizer differ: rank {ranks[0]} has {ours or 'no more'} where rank "
            f"{rank} has {theirs or 'no more'}. All ranks must optimize the same model"
        )


def _wants_overlap(overlap: str) -> bool:
    """Whether to exchange while the backward pass runs: by default if a core is free for it, or between machines."""
    if overlap != "auto":
        return overlap == "on"
    if world.cross_size() > 1:
        return True
    num_cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else num_cores
    if usable < num_cores:  # this rank has cores of its own
        return usable > torch.get_num_threads()
    return num_cores > world.local_size() * torch.get_num_threads()
