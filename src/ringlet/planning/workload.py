"""What one worker's step computes and sends, from the network's specification alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ringlet.kernels.bfloat16 import parameter_dtype
from ringlet.models.spec import ModelSpec
from ringlet.operations import OPERATIONS


class Gradients(NamedTuple):
    """Gradients of one tensor or message: how many, and when the last is final, as a share of the pass (1: its end)."""

    size: int
    ready: float


@dataclass(frozen=True)
class Workload:
    """A network, precision and optimizer, as numbers."""

    name: str
    tensors: tuple[Gradients, ...]
    """In the order of the flat buffer: those of the first layer first, whose gradients are final last."""
    num_state: int
    """Elements of running statistics."""
    dtype: str
    """Of activations."""
    num_optimizer_arrays: int
    """State arrays of the optimizer, each as long as the parameters."""
    training_flops: int
    """Per sample, forward and backward."""

    @property
    def item_size(self) -> int:
        """Bytes of a parameter."""
        return parameter_dtype(self.dtype).itemsize

    @property
    def num_parameters(self) -> int:
        """Elements of all parameter arrays."""
        return sum(tensor.size for tensor in self.tensors)

    @property
    def parameter_bytes(self) -> int:
        """Of parameters, or of gradients."""
        return self.num_parameters * self.item_size

    @property
    def state_bytes(self) -> int:
        """Of running statistics."""
        return self.num_state * self.item_size

    @property
    def optimizer_bytes(self) -> int:
        """Of the optimizer's state for all parameters."""
        return self.num_optimizer_arrays * self.parameter_bytes


def describe_workload(spec: ModelSpec, dtype: str, num_optimizer_arrays: int) -> Workload:
    """The workload of ``spec``; times follow its FLOPs, node by node."""
    ready = _ready_times(spec)
    tensors = tuple(Gradients(info.size, ready[info.node]) for info in spec.parameters)
    num_state = sum(info.size for info in spec.state)
    return Workload(spec.name, tensors, num_state, dtype, num_optimizer_arrays, spec.training_flops)


def _ready_times(spec: ModelSpec) -> dict[str, float]:
    """When each node's backward pass is over, as a share of forward and backward together.

    A convolution or dense layer costs its forward FLOPs once more for the gradient of its weights and once more for
    that of its input, if anyone needs it; everything else once more.
    """
    owners = {info.node for info in spec.parameters}
    forward = sum(spec.flops.values())
    trained: set[str] = set()
    backward: dict[str, int] = {}
    for node in spec.nodes:
        has_data_gradient = not trained.isdisjoint(node.inputs)
        passes = int(OPERATIONS[node.op].multiplies) + int(has_data_gradient)
        backward[node.name] = passes * spec.flops[node.name]
        if has_data_gradient or node.name in owners:
            trained.add(node.name)
    total = max(forward + sum(backward.values()), 1)
    done, ready = forward, {}
    for node in reversed(spec.nodes):
        done += backward[node.name]
        ready[node.name] = done / total
    return ready


def cut_buckets(workload: Workload, num_elements: int, *, whole_tensors: bool) -> list[Gradients]:
    """The messages of one exchange in the order in which they can leave: from the last layer to the first.

    Ringlet cuts the flat buffer into equal pieces. Horovod and DDP fuse ``whole_tensors`` up to the same size instead;
    a tensor that is larger travels alone.
    """
    if whole_tensors:
        return list(_fused(workload, num_elements))
    return list(_equal(workload, num_elements))


def _fused(workload: Workload, num_elements: int) -> Iterator[Gradients]:
    size, ready = 0, 0.0
    for tensor in reversed(workload.tensors):
        if size and size + tensor.size > num_elements:
            yield Gradients(size, ready)
            size, ready = 0, 0.0
        size, ready = size + tensor.size, max(ready, tensor.ready)
    if size:
        yield Gradients(size, ready)


def _equal(workload: Workload, num_elements: int) -> Iterator[Gradients]:
    """Pieces between multiples of ``num_elements``; the one at the back may be smaller."""
    stop = workload.num_parameters
    start = stop // num_elements * num_elements
    if start == stop:
        start -= num_elements
    ready, place = 0.0, stop
    for tensor in reversed(workload.tensors):
        place -= tensor.size
        while place <= start < stop:  # the piece start:stop ends within this tensor
            yield Gradients(stop - start, max(ready, tensor.ready))
            ready, stop, start = 0.0, start, start - num_elements
        if place < stop:
            ready = max(ready, tensor.ready)
