"""PyTorch's collectives in terms of Ringlet's: what the thread of a process group does for each of them.

Every function takes tensors, checks what one rank can check alone, and gives a :data:`Job`. A job gives what PyTorch's
futures hold: the tensors that were written, in lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError
from ringlet.torch.process_group_tensors import (
    Combining,
    InOut,
    allreduce_sparse,
    borrow,
    borrow_all,
    hand_out,
    joined,
)
from ringlet.torch.process_group_work import Job


# -- combine ----------------------------------------------------------------------------------------------------------
def allreduce(tensors: Sequence[Tensor], how: Combining) -> Job:
    """In place; of sparse tensors indices and values travel."""
    if any(tensor.is_sparse for tensor in tensors):
        return lambda comm: [allreduce_sparse(comm, tensor, how) for tensor in tensors]
    borrowed = borrow_all(tensors)

    def job(comm: Communicator) -> list[Tensor]:
        for entry in borrowed:
            how.allreduce(comm, entry.array, entry.array)
            entry.store()
        return _tensors(borrowed)

    return job


def reduce(tensors: Sequence[Tensor], how: Combining, root: int) -> Job:
    """In place on the root; the others keep what they have."""
    borrowed = borrow_all(tensors)

    def job(comm: Communicator) -> list[Tensor]:
        for entry in borrowed:
            how.allreduce(comm, entry.array, entry.array if comm.rank == root else None)
            if comm.rank == root:
                entry.store()
        return _tensors(borrowed)

    return job


def reduce_scatter(output: Tensor, parts: Sequence[Tensor], how: Combining, rank: int, size: int) -> Job:
    """One tensor of the list for each rank; their sizes may differ."""
    target, sources = borrow(output), borrow_all(parts)
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
        return [output]

    return job


def reduce_scatter_single(outputs: Sequence[Tensor], inputs: Sequence[Tensor], how: Combining, size: int) -> Job:
    """For each pair one tensor with a part for each rank."""
    pairs = [(borrow(output), borrow(source)) for output, source in zip(outputs, inputs, strict=True)]
    for target, source in pairs:
        _check_size(source.array.size, target.array.size * size, "the input of reduce_scatter_single")

    def job(comm: Communicator) -> list[Tensor]:
        for target, source in pairs:
            target.array[:] = how.reduce_scatter(comm, source.array.reshape(size, target.array.size))
            target.store()
        return list(outputs)

    return job


# -- move -------------------------------------------------------------------------------------------------------------
def broadcast(tensors: Sequence[Tensor], root: int) -> Job:
    """In place."""
    borrowed = borrow_all(tensors)

    def job(comm: Communicator) -> list[Tensor]:
        for entry in borrowed:
            comm.broadcast(entry.array, root, out=entry.array)
            if comm.rank != root:
                entry.store()
        return _tensors(borrowed)

    return job


def allgather(inputs: Sequence[Tensor], outputs: Sequence[Sequence[Tensor]], rank: int, size: int) -> Job:
    """For each input a list with a tensor of every rank; their sizes may differ."""
    borrowed = [(borrow(source), borrow_all(targets)) for source, targets in zip(inputs, outputs, strict=True)]
    for source, targets in borrowed:
        _check_number(targets, size, "all_gather")
        _check_size(targets[rank].array.size, source.array.size, "this rank's output of all_gather")

    def job(comm: Communicator) -> Any:
        for source, targets in borrowed:
            values = comm.allgather(source.array)
            _check_size(sum(target.array.size for target in targets), values.size, "all outputs of all_gather")
            hand_out(values, targets)
        return list(outputs)

    return job


def allgather_single(outputs: Sequence[Tensor], inputs: Sequence[Tensor], size: int) -> Job:
    """For each pair one tensor with the parts of all ranks."""
    pairs = [(borrow(output), borrow(source)) for output, source in zip(outputs, inputs, strict=True)]
    for target, source in pairs:
        _check_size(target.array.size, source.array.size * size, "the output of all_gather_single")

    def job(comm: Communicator) -> list[Tensor]:
        for target, source in pairs:
            hand_out(comm.allgather(source.array), [target])
        return list(outputs)

    return job


def gather(outputs: Sequence[Tensor], own: Tensor, root: int, rank: int, size: int) -> Job:
    """The tensors of all ranks on the root."""
    source = borrow(own)
    targets = borrow_all(outputs) if rank == root else []
    if rank == root:
        _check_number(targets, size, "gather")

    def job(comm: Communicator) -> list[Tensor]:
        values, received = comm.alltoall(
            source.array, [source.array.size if other == root else 0 for other in range(size)]
        )
        _check_sizes(targets, received.tolist() if rank == root else [], "gather")
        hand_out(values, targets)
        return _tensors(targets)

    return job


def scatter(output: Tensor, inputs: Sequence[Tensor], root: int, rank: int, size: int) -> Job:
    """A tensor of the root's list for each rank."""
    target = borrow(output)
    sources = borrow_all(inputs) if rank == root else []
    if rank == root:
        _check_number(sources, size, "scatter")

    def job(comm: Communicator) -> list[Tensor]:
        splits = [source.array.size for source in sources] or [0] * size
        values, received = comm.alltoall(joined(sources) if sources else target.array[:0], splits)
        _check_sizes([target], [int(received[root])], "scatter")
        hand_out(values, [target])
        return [output]

    return job


def alltoall(outputs: Sequence[Tensor], inputs: Sequence[Tensor], size: int) -> Job:
    """A tensor for each rank, and one from each; their sizes may differ."""
    targets, sources = borrow_all(outputs), borrow_all(inputs)
    _check_number(targets, size, "all_to_all")
    _check_number(sources, size, "all_to_all")

    def job(comm: Communicator) -> list[Tensor]:
        values, received = comm.alltoall(joined(sources), [source.array.size for source in sources])
        _check_sizes(targets, received.tolist(), "all_to_all")
        hand_out(values, targets)
        return list(outputs)

    return job


def alltoall_single(
    output: Tensor, source: Tensor, output_splits: Sequence[int], source_splits: Sequence[int], size: int
) -> Job:
    """Rows of one tensor for each rank, and rows from each in another; equal numbers where none are given."""
    target, values = borrow(output), borrow(source).array
    sent = _elements(source, source_splits, "input", size)
    expected = _elements(output, output_splits, "output", size)

    def job(comm: Communicator) -> list[Tensor]:
        exchanged, received = comm.alltoall(values, sent)
        if received.tolist() != expected:
            raise CommunicationError(
                f"all_to_all_single on rank {comm.rank} expected {expected} elements of the ranks, but they have sent "
                f"{received.tolist()}: output_split_sizes must be what the others have in input_split_sizes"
            )
        hand_out(exchanged, [target])
        return [output]

    return job


def barrier(comm: Communicator) -> list[Tensor]:
    """The job itself: nothing is exchanged."""
    comm.barrier()
    return []


# -- checks -----------------------------------------------------------------------------------------------------------
def _tensors(borrowed: Sequence[InOut]) -> list[Tensor]:
    return [entry.tensor for entry in borrowed]


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
