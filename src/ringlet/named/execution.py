"""Carries out collectives that all ranks have agreed on, in the same order on every rank.

Everything was checked before; what is decided here (which arrays travel together) follows from signatures alone, so
ranks stay in step. A rank that has joined gives zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, final

import numpy as np

from ringlet.comm.contract import Array, Communicator, Op
from ringlet.errors import CommunicationError, RingletError
from ringlet.named.buffers import Buffer, add_in_place, can_add_in_place
from ringlet.named.kinds import kind_of
from ringlet.named.reductions import Recipe, Reduction, adasum, finish, recipe, scaled
from ringlet.named.signatures import Signature, number_dtype
from ringlet.named.submissions import Submission

FUSED_BYTES = 16 << 10
FUSED_BYTES_BETWEEN_MACHINES = 1 << 20
"""Arrays up to this size travel together: copying them costs less than another meeting of the ranks."""
MAX_BATCH_BYTES = 32 << 20
"""Of all that travel together."""


@dataclass(slots=True)
class Work:
    """An agreed collective on this rank; ``submission`` is None where the rank has joined instead of submitting it."""

    signature: Signature
    participants: Sequence[int]
    """Ranks of the process set that submitted it."""
    submission: Submission | None
    buffer: Buffer | None = None
    action: Callable[[], Any] | None = None
    """What to do, if it is none of the collectives; every rank does it at the same time."""
    results: list[Any] = field(default_factory=list)
    error: RingletError | None = None
    started: float = 0.0
    ended: float = 0.0


@dataclass(slots=True)
class _Item:
    """One array of an allreduce."""

    work: Work
    place: int
    array: Array
    out: Array | None

    def deliver(self, result: Array) -> None:
        self.work.results[self.place] = result
        self.work.ended = monotonic()


def _zeros(signature: Signature) -> tuple[Array, ...]:
    """What a rank gives that has joined."""
    return tuple(np.zeros(shape, number_dtype(dtype)) for dtype, shape in signature.arrays)


def _batches(items: list[_Item]) -> Iterator[list[_Item]]:
    """Cut where a batch would become too large."""
    batch: list[_Item] = []
    num_bytes = 0
    for item in items:
        if batch and num_bytes + item.array.nbytes > MAX_BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
        batch.append(item)
        num_bytes += item.array.nbytes
    yield batch


@final
class Execution:
    """Over a communicator of the global ``ranks``."""

    def __init__(self, communicator: Communicator, ranks: Sequence[int]) -> None:
        self._communicator = communicator
        self._ranks = list(ranks)
        one_machine = len(communicator.local_sizes) == 1
        self._fused_bytes = FUSED_BYTES if one_machine else FUSED_BYTES_BETWEEN_MACHINES

    def carry_out(self, works: Sequence[Work]) -> None:
        """Fill in all ``results``."""
        small: dict[tuple[Any, ...], list[_Item]] = {}
        for work in works:
            work.started = monotonic()
            if work.action is not None:
                self._act(work, work.action)
            elif work.signature.kind == "allreduce":
                self._allreduce(work, small)
            elif work.submission is not None:
                root = self._ranks.index(work.signature.root) if kind_of(work.signature.kind).has_root else 0
                work.results = kind_of(work.signature.kind).run(self._communicator, work.submission, root)
            work.ended = monotonic()
        for (_, how), items in small.items():
            for batch in _batches(items):
                self._fused(batch, how)

    def _act(self, work: Work, action: Callable[[], Any]) -> None:
        """What communicators refuse, they refuse on all ranks: they are still in step."""
        try:
            work.results = [action()]
        except CommunicationError as error:
            work.error = error

    # -- allreduce ----------------------------------------------------------------------------------------------------
    def _allreduce(self, work: Work, small: dict[tuple[Any, ...], list[_Item]]) -> None:
        signature, submission = work.signature, work.submission
        if signature.detail and self._in_place(work):
            return
        inputs = submission.inputs if submission else _zeros(signature)
        outputs: Sequence[Array | None] = (submission.outputs if submission else None) or [None] * len(inputs)
        work.results = [*inputs]
        if signature.op is Reduction.ADASUM:
            work.results = self._adasum(signature, inputs, outputs)
            return
        for place, (array, out) in enumerate(zip(inputs, outputs, strict=True)):
            how = self._recipe(signature, array.dtype)
            item = _Item(work, place, array, out)
            if array.nbytes <= self._fused_bytes:
                small.setdefault((array.dtype, how), []).append(item)
            else:
                self._direct(item, how)

    def _recipe(self, signature: Signature, dtype: np.dtype[Any]) -> Recipe:
        return recipe(dtype, signature.op, signature.prescale, signature.postscale, self._communicator.size)

    def _in_place(self, work: Work) -> bool:
        """Add up a range of shared buffers, if that is possible."""
        [(dtype_text, _)], (_, start, stop) = work.signature.arrays, work.signature.detail
        dtype = number_dtype(dtype_text)
        how = self._recipe(work.signature, dtype)
        if how.op not in (Op.SUM, Op.AVERAGE) or work.signature.op is Reduction.ADASUM:
            return False
        if not can_add_in_place(self._communicator, dtype, len(work.participants)):
            return False
        after = how.after / (self._communicator.size if how.op is Op.AVERAGE else 1)
        add_in_place(self._communicator, work.buffer, start, stop, sorted(work.participants), how.before, after)
        if work.buffer is not None:
            work.results = [work.buffer.own[start:stop]]
        return True

    def _direct(self, item: _Item, how: Recipe) -> None:
        source = scaled(item.array, how.before)
        result = self._communicator.allreduce(source, how.op, out=item.out)
        finish(result, how)
        item.deliver(result)

    def _fused(self, items: Sequence[_Item], how: Recipe) -> None:
        """All of one dtype and recipe, in one flat array."""
        if len(items) == 1:
            self._direct(items[0], how)
            return
        flat = np.concatenate([item.array.reshape(-1) for item in items])
        source = scaled(flat, how.before)
        self._communicator.allreduce(source, how.op, out=flat)
        finish(flat, how)
        start = 0
        for item in items:
            part = flat[start : start + item.array.size].reshape(item.array.shape)
            start += item.array.size
            if item.out is None:
                item.deliver(part.copy())
            else:
                np.copyto(item.out, part)
                item.deliver(item.out)

    def _adasum(self, signature: Signature, inputs: Sequence[Array], outputs: Sequence[Array | None]) -> list[Array]:
        results: list[Array] = [np.empty(0)] * len(inputs)
        for dtype in dict.fromkeys(array.dtype for array in inputs):
            places = [place for place, array in enumerate(inputs) if array.dtype == dtype]
            sources = [scaled(inputs[place], signature.prescale) for place in places]
            for place, combined in zip(places, adasum(self._communicator, sources), strict=True):
                result, out = scaled(combined, signature.postscale), outputs[place]
                if out is not None:
                    np.copyto(out, result)
                results[place] = result if out is None else out
        return results
