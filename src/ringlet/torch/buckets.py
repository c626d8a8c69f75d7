"""Gradients on their way: parameters in *buckets*, each of which is exchanged as one operation when it is complete.

Dense gradients are copied into slots of one buffer per dtype, which lies in shared memory, as soon as they are there:
then they are still in the caches, and their own memory serves for the next ones. They are summed up in place; the slot
*is* the gradient from then on. Gradients of compressors that we do not know are compressed one by one, sparse gradients
are gathered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import Parameter

from ringlet.named import Buffer, Handle, NamedCollectives, Submission
from ringlet.named.horovod import Compressor, Scaling
from ringlet.torch.tensors import from_array, numpy_dtype, slot, to_array

ALIGNMENT = 16
"""Slots begin at multiples of so many elements: at cache lines."""


class Bucket(ABC):
    """Some parameters. ``missing`` counts those whose gradients are not there yet."""

    def __init__(
        self,
        collectives: NamedCollectives,
        name: str,
        places: Sequence[int],
        parameters: Sequence[Parameter],
        how: Scaling,
    ) -> None:
        self.collectives = collectives
        self.name = name
        self.how = how
        self.places = list(places)
        """Of the parameters, in the order of the optimizer."""
        self.parameters = list(parameters)
        self.missing = len(self.parameters)
        self.launched = False
        self._handle: Handle | None = None

    def take(self, index: int) -> bool:
        """The gradient of the parameter with this number in the bucket is there; tells whether it was the last one."""
        self._copy(index)
        self.missing -= 1
        return self.missing == 0

    def launch(self, *, background: bool) -> None:
        """Start the exchange; parameters without a gradient give zeros."""
        self.launched = True
        with torch.no_grad():
            self._start(background)

    def finish(self) -> bool:
        """Wait, and set the gradients; tells whether some rank has a sparse gradient that could not travel."""
        with torch.no_grad():
            return self._finish()

    def reset(self) -> None:
        """Be ready for the next pass."""
        self.missing = len(self.parameters)
        self.launched = False

    def _wait(self) -> Any:
        assert self._handle is not None
        return self._handle.wait()

    @abstractmethod
    def _copy(self, index: int) -> None: ...

    @abstractmethod
    def _start(self, background: bool) -> None: ...

    @abstractmethod
    def _finish(self) -> bool: ...


@final
class DenseBucket(Bucket):
    """Slots in a buffer. After them lies one element that ranks with an unexpected sparse gradient set."""

    def __init__(
        self,
        collectives: NamedCollectives,
        name: str,
        places: Sequence[int],
        parameters: Sequence[Parameter],
        how: Scaling,
        *,
        densify: bool,
    ) -> None:
        super().__init__(collectives, name, places, parameters, how)
        self._densify = densify
        self._slots: list[Tensor] = []
        self._is_taken = [False] * len(self.parameters)

    def place(self, buffer: Buffer, start: int, *, keep_layout: bool) -> None:
        """Take the elements from ``start``."""
        self._buffer, self._start_element = buffer, start
        self._in_place = [
            numpy_dtype(parameter.dtype) == buffer.dtype and parameter.device.type == "cpu"
            for parameter in self.parameters
        ]
        self._slots = []
        for parameter in self.parameters:
            like = parameter.detach()
            memory = buffer.own[start : start + parameter.numel()]
            self._slots.append(slot(memory, like if keep_layout else like.contiguous()))
            start += aligned(parameter.numel())
        self._flag = start
        self._stop = start + 1

    @property
    def num_elements(self) -> int:
        """What it needs of the buffer."""
        return sum(aligned(parameter.numel()) for parameter in self.parameters) + ALIGNMENT

    def _copy(self, index: int) -> None:
        """Into its slot, which becomes the gradient."""
        parameter = self.parameters[index]
        gradient, target = parameter.grad, self._slots[index]
        if gradient is not target and gradient is not None and gradient.layout is torch.strided:
            target.copy_(gradient.detach() if gradient.requires_grad else gradient)
            if self._in_place[index]:
                parameter.grad = target
            self._is_taken[index] = True

    def reset(self) -> None:
        """Nothing is taken."""
        super().reset()
        self._is_taken[:] = [False] * len(self.parameters)

    def _start(self, background: bool) -> None:
        flagged = False
        for parameter, target, is_taken in zip(self.parameters, self._slots, self._is_taken, strict=True):
            gradient = parameter.grad
            if is_taken or gradient is target:
                continue
            if gradient is None:
                target.zero_()
            elif gradient.layout is torch.strided:
                target.copy_(gradient)
            else:
                flagged |= not self._densify
                target.copy_(gradient.to_dense()) if self._densify else target.zero_()
        self._buffer.own[self._flag] = flagged
        self._handle = self.collectives.allreduce_buffer(
            self._buffer,
            self.name,
            self.how.op,
            prescale=self.how.prescale,
            postscale=self.how.postscale,
            start=self._start_element,
            stop=self._stop,
            background=background,
        )

    def _finish(self) -> bool:
        self._wait()
        flagged = bool(self._buffer.own[self._flag])
        for parameter, result, in_place in zip(self.parameters, self._slots, self._in_place, strict=True):
            gradient = parameter.grad
            if gradient is result or (gradient is not None and gradient.layout is not torch.strided and flagged):
                continue
            if gradient is None and not parameter.requires_grad:
                continue  # frozen meanwhile: optimizers leave it alone
            if gradient is not None and gradient.layout is torch.sparse_coo:  # as its optimizer expects it
                parameter.grad = result.to_sparse(gradient.sparse_dim()).to(parameter.dtype)
            elif in_place:
                parameter.grad = result
            elif gradient is None:
                parameter.grad = torch.empty_like(parameter).copy_(result)
            else:
                gradient.copy_(result)
        return flagged


@final
class CompressedBucket(Bucket):
    """For compressors of the user: one group of whatever they make of the gradients."""

    def __init__(
        self,
        collectives: NamedCollectives,
        name: str,
        places: Sequence[int],
        parameters: Sequence[Parameter],
        how: Scaling,
        compression: type[Compressor],
    ) -> None:
        super().__init__(collectives, name, places, parameters, how)
        self._compression = compression
        self._contexts: list[Any] = []

    def _copy(self, index: int) -> None:
        """Compressors get the gradients when all are there."""

    def _start(self, background: bool) -> None:
        pairs = [self._compression.compress(_dense(parameter)) for parameter in self.parameters]
        self._contexts = [context for _, context in pairs]
        arrays = tuple(to_array(compressed) for compressed, _ in pairs)
        how = self.how
        submission = Submission("allreduce", self.name, arrays, None, how.op, how.prescale, how.postscale)
        self._handle = self.collectives.submit(submission, background=background)

    def _finish(self) -> bool:
        for parameter, array, context in zip(self.parameters, self._wait(), self._contexts, strict=True):
            result = self._compression.decompress(from_array(array, parameter.device), context)
            parameter.grad = torch.empty_like(parameter).copy_(result.view(parameter.shape))
        return False


@final
class SparseBucket(Bucket):
    """One parameter whose gradients are sparse: indices and values of all ranks, one after the other."""

    def __init__(
        self,
        collectives: NamedCollectives,
        name: str,
        place: int,
        parameter: Parameter,
        how: Scaling,
        factor: float,
        sparse_dim: int,
    ) -> None:
        """Values are multiplied by ``factor``, which makes an average of the sum."""
        super().__init__(collectives, name, [place], [parameter], how)
        self._factor = factor
        self._sparse_dim = sparse_dim

    def _copy(self, index: int) -> None:
        """There is no memory that it could be copied to."""

    def _start(self, background: bool) -> None:
        (parameter,) = self.parameters
        gradient = parameter.grad
        if gradient is None:
            gradient = torch.zeros_like(parameter)
        if gradient.layout is torch.strided:  # missing here, or dense although it was sparse before
            gradient = gradient.to_sparse(self._sparse_dim)
        gradient = gradient.coalesce()
        arrays = (to_array(gradient.indices().t().contiguous()), to_array(gradient.values()))
        self._handle = self.collectives.submit(Submission("allgather", self.name, arrays), background=background)

    def _finish(self) -> bool:
        (parameter,) = self.parameters
        indices, values = (from_array(array, parameter.device) for array in self._wait())
        values *= self._factor
        gradient = torch.sparse_coo_tensor(indices.t(), values, parameter.shape, check_invariants=False)
        parameter.grad = gradient.coalesce()
        return False


def _dense(parameter: Parameter) -> Tensor:
    gradient = parameter.grad
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient if gradient.layout is torch.strided else gradient.to_dense()


def aligned(count: int) -> int:
    """The next multiple of :data:`ALIGNMENT`."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def place_in_buffers(
    collectives: NamedCollectives, buckets: Sequence[DenseBucket], wire_dtype: torch.dtype, keep_layout: bool
) -> None:
    """One buffer for all buckets of a dtype, one after the other; every rank must call."""
    buffer = collectives.buffer(sum(bucket.num_elements for bucket in buckets), numpy_dtype(wire_dtype))
    start = 0
    for bucket in buckets:
        bucket.place(buffer, start, keep_layout=keep_layout)
        start += bucket.num_elements


def cut_by_bytes(places: Sequence[int], parameters: Sequence[Parameter], bucket_bytes: int) -> list[list[int]]:
    """Consecutive parameters of about ``bucket_bytes`` together; a parameter is never cut."""
    cut: list[list[int]] = []
    size = bucket_bytes
    for place in places:
        if size >= bucket_bytes:
            cut.append([])
            size = 0
        cut[-1].append(place)
        size += parameters[place].numel() * parameters[place].element_size()
    return cut


def cut_by_count(places: Sequence[int], num_buckets: int) -> list[list[int]]:
    """``num_buckets`` groups of consecutive parameters, of about equal numbers."""
    quotient, remainder = divmod(len(places), num_buckets)
    lengths = [quotient + (index < remainder) for index in range(num_buckets)]
    ends = [sum(lengths[: index + 1]) for index in range(num_buckets)]
    return [list(places[end - length : end]) for end, length in zip(ends, lengths, strict=True) if length]
