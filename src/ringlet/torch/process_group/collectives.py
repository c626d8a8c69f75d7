"""PyTorch's collectives in terms of Ringlet's: what the thread of a process group does for each of them.

PyTorch calls these methods from Python and, for DDP's buckets, from C++. Their names and arguments are PyTorch's; some
have two names because PyTorch has renamed them. Each checks what one rank can check alone, and submits a :data:`Job`,
which gives what PyTorch's futures hold: the tensors that were written, in lists.
"""

# PyTorch exports names without saying so to type checkers, and has overloads where one signature serves here.
# mypy: disable-error-code="assignment,attr-defined,call-arg,override"
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup, Work

from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError
from ringlet.torch.process_group.compiling import never_compiled
from ringlet.torch.process_group.devices import by_device
from ringlet.torch.process_group.tensors import (
    InOut,
    allreduce_sparse,
    borrow,
    borrow_all,
    combining,
    hand_out,
    joined,
)
from ringlet.torch.process_group.work import Job


@never_compiled
class CollectiveGroup(ProcessGroup):
    """The collectives of a group; what happens to jobs is left to a subclass."""

    @abstractmethod
    def _submit(
        self, what: str, job: Job, tensors: Sequence[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        """``tensors`` are this rank's inputs."""

    # -- combine ------------------------------------------------------------------------------------------------------
    @by_device
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """In place; of sparse tensors indices and values travel."""
        given, how = _listed(tensors), combining(getattr(opts, "reduceOp", opts))
        if any(tensor.is_sparse for tensor in given):
            job: Job = lambda comm: [allreduce_sparse(comm, tensor, how) for tensor in given]  # noqa: E731
            return self._submit("allreduce", job, given, opts, timeout)
        borrowed = borrow_all(given)

        def dense(comm: Communicator) -> list[Tensor]:
            for entry in borrowed:
                how.allreduce(comm, entry.array, entry.array)
                entry.store()
            return given

        return self._submit("allreduce", dense, given, opts, timeout)

    @by_device
    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Several tensors in place."""
        return self.allreduce(tensors, opts)

    @by_device
    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Work:
        """In place on the root; the others keep what they have."""
        given, how, root = _listed(tensors), combining(getattr(opts, "reduceOp", op)), _root(opts)
        borrowed = borrow_all(given)

        def job(comm: Communicator) -> list[Tensor]:
            for entry in borrowed:
                how.allreduce(comm, entry.array, entry.array if comm.rank == root else None)
                if comm.rank == root:
                    entry.store()
            return given

        return self._submit("reduce", job, given, opts, timeout)

    @by_device
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """One tensor of the list for each rank; their sizes may differ."""
        how, rank, size = combining(getattr(opts, "reduceOp", opts)), self.rank(), self.size()
        target, sources = borrow(_only(outputs)), borrow_all(_inner(inputs))
        _check_number(sources, size, "reduce_scatter")
        sizes = [source.array.size for source in sources]
        _check_size(target.array.size, sizes[rank], "the output of reduce_scatter")

        def job(comm: Communicator) -> list[Tensor]:
            values = joined(sources)
            if len(set(sizes)) == 1:
                target.array[:] = how.reduce_scatter(comm, values.reshape(size, sizes[0]))
            else:
                start = sum(sizes[:rank])
                target.array[:] = how.allreduce(comm, values)[start : start + target.array.size]
            target.store()
            return [target.tensor]

        return self._submit("reduce_scatter", job, _inner(inputs), opts, timeout)

    @by_device
    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        """One tensor with a part for each rank."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    @by_device
    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them."""
        how, size = combining(getattr(opts, "reduceOp", opts)), self.size()
        pairs = _pairs(outputs, inputs)
        for target, source in pairs:
            _check_size(source.array.size, target.array.size * size, "the input of reduce_scatter_single")

        def job(comm: Communicator) -> list[Tensor]:
            for target, source in pairs:
                target.array[:] = how.reduce_scatter(comm, source.array.reshape(size, target.array.size))
                target.store()
            return list(outputs)

        return self._submit("reduce_scatter_single", job, inputs, opts)

    # -- move ---------------------------------------------------------------------------------------------------------
    @by_device
    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """In place."""
        given, root = _listed(tensors), _root(opts)
        borrowed = borrow_all(given)

        def job(comm: Communicator) -> list[Tensor]:
            for entry in borrowed:
                comm.broadcast(entry.array, root, out=entry.array)
                if comm.rank != root:
                    entry.store()
            return given

        return self._submit("broadcast", job, given, opts, timeout)

    @by_device
    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """A tensor of every rank; their sizes may differ."""
        return self._allgather([_only(inputs)], [_inner(outputs)], opts, timeout)

    @by_device
    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them; the lists of outputs are by rank."""
        return self._allgather(inputs, [[row[number] for row in outputs] for number in range(len(inputs))], opts)

    def _allgather(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Sequence[Tensor]],
        opts: Any,
        timeout: timedelta | None = None,
    ) -> Work:
        borrowed = [(borrow(source), borrow_all(targets)) for source, targets in zip(inputs, outputs, strict=True)]
        for source, targets in borrowed:
            _check_number(targets, self.size(), "all_gather")
            _check_size(targets[self.rank()].array.size, source.array.size, "this rank's output of all_gather")

        def job(comm: Communicator) -> Any:
            for source, targets in borrowed:
                values = comm.allgather(source.array)
                _check_size(sum(target.array.size for target in targets), values.size, "all outputs of all_gather")
                hand_out(values, targets)
            return list(outputs)

        return self._submit("all_gather", job, inputs, opts, timeout)

    @by_device
    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        """One tensor with the parts of all ranks."""
        return self.all_gather_single_coalesced([output], [input], opts)

    @by_device
    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them."""
        pairs = _pairs(outputs, inputs)
        for target, source in pairs:
            _check_size(target.array.size, source.array.size * self.size(), "the output of all_gather_single")

        def job(comm: Communicator) -> list[Tensor]:
            for target, source in pairs:
                row = source.array.reshape(1, source.array.size)  # as one row: sizes that differ are an error on all
                hand_out(comm.allgather(row).reshape(-1), [target])
            return list(outputs)

        return self._submit("all_gather_single", job, inputs, opts)

    @by_device
    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """The tensors of all ranks on the root."""
        source, root = borrow(_only(inputs)).array, _root(opts)
        targets = borrow_all(_inner(outputs)) if self.rank() == root else []
        if self.rank() == root:
            _check_number(targets, self.size(), "gather")
        splits = [source.size if other == root else 0 for other in range(self.size())]

        def job(comm: Communicator) -> list[Tensor]:
            values, received = comm.alltoall(source, splits)
            _check_sizes(targets, received.tolist() if comm.rank == root else [], "gather")
            hand_out(values, targets)
            return [target.tensor for target in targets]

        return self._submit("gather", job, _listed(inputs), opts, timeout)

    @by_device
    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """A tensor of the root's list for each rank."""
        target, root, size = borrow(_only(outputs)), _root(opts), self.size()
        sources = borrow_all(_inner(inputs)) if self.rank() == root else []
        if self.rank() == root:
            _check_number(sources, size, "scatter")

        def job(comm: Communicator) -> list[Tensor]:
            splits = [source.array.size for source in sources] or [0] * size
            values, received = comm.alltoall(joined(sources) if sources else target.array[:0], splits)
            _check_sizes([target], [int(received[root])], "scatter")
            hand_out(values, [target])
            return [target.tensor]

        return self._submit("scatter", job, [source.tensor for source in sources], opts, timeout)

    @by_device
    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """A tensor for each rank, and one from each; their sizes may differ."""
        targets, sources = borrow_all(outputs), borrow_all(inputs)
        _check_number(targets, self.size(), "all_to_all")
        _check_number(sources, self.size(), "all_to_all")

        def job(comm: Communicator) -> list[Tensor]:
            values, received = comm.alltoall(joined(sources), [source.array.size for source in sources])
            _check_sizes(targets, received.tolist(), "all_to_all")
            hand_out(values, targets)
            return list(outputs)

        return self._submit("all_to_all", job, inputs, opts)

    @by_device
    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Rows of one tensor for each rank, and rows from each in another; equal numbers where none are given."""
        target, values = borrow(output), borrow(input).array
        sent = _elements(input, input_split_sizes, "input", self.size())
        expected = _elements(output, output_split_sizes, "output", self.size())

        def job(comm: Communicator) -> list[Tensor]:
            exchanged, received = comm.alltoall(values, sent)
            if received.tolist() != expected:
                raise CommunicationError(
                    f"all_to_all_single on rank {comm.rank} expected {expected} elements of the ranks, but they have "
                    f"sent {received.tolist()}: output_split_sizes must be what the others have in input_split_sizes"
                )
            hand_out(exchanged, [target])
            return [output]

        return self._submit("all_to_all_single", job, [input], opts)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Done when all ranks have come here."""

        def job(comm: Communicator) -> list[Tensor]:
            comm.barrier()
            return []

        return self._submit("barrier", job, [], opts, timeout)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


# -- arguments --------------------------------------------------------------------------------------------------------
def _root(opts: Any) -> int:
    """Of options, or the number itself."""
    return int(getattr(opts, "rootRank", opts if opts is not None else 0))


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _only(tensors: Any) -> Tensor:
    """The tensor of the only device: PyTorch has one for each."""
    return _listed(tensors)[0]


def _inner(tensors: Any) -> Any:
    """The list of the only device; it may have been left out."""
    return tensors[0] if tensors and not isinstance(tensors[0], Tensor) else tensors


def _pairs(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[tuple[InOut, InOut]]:
    return [(borrow(output), borrow(source)) for output, source in zip(outputs, inputs, strict=True)]


def _elements(tensor: Tensor, splits: Sequence[int], which: str, size: int) -> list[int]:
    """How many elements go to or come from each rank."""
    rows = tensor.shape[0] if tensor.dim() else 0
    numbers = list(splits) or [rows // size] * size
    if len(numbers) != size or sum(numbers) != rows:
        raise CommunicationError(
            f"the {which} of all_to_all_single has {rows} rows and split sizes {list(splits)}: expected {size} numbers "
            "that add up to its rows, or none and as many rows for each rank"
        )
    return [number * (tensor.numel() // max(rows, 1)) for number in numbers]


def _check_number(parts: Sequence[InOut], size: int, what: str) -> None:
    if len(parts) != size:
        raise CommunicationError(f"{what} was given {len(parts)} tensors: expected one for each of {size} ranks")


def _check_size(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise CommunicationError(f"{what} has {found} elements: expected {expected}")


def _check_sizes(targets: Sequence[InOut], received: Sequence[int], what: str) -> None:
    sizes = [target.array.size for target in targets]
    if sizes != list(received):
        raise CommunicationError(
            f"the outputs of {what} have {sizes} elements, but {list(received)} have come: tensors must fit"
        )
