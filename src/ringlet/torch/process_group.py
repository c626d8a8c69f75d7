"""The process group "ringlet": stock DDP, and with it Accelerate and Lightning, over Ringlet's communicator.

    import ringlet.torch
    torch.distributed.init_process_group("ringlet")

A group has a communicator and a thread of its own (:class:`Lane`); collectives of PyTorch become jobs for it. Tensors
travel from and to their own memory if they are contiguous on the CPU; others as copies.

PyTorch calls these methods from Python and, for DDP's buckets, from C++. Their names and arguments are PyTorch's; some
have two names because PyTorch has renamed them.
"""

# PyTorch exports names without saying so to type checkers, and has overloads where one signature serves here.
# mypy: disable-error-code="assignment,attr-defined,call-arg,override"
from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from datetime import timedelta
from types import TracebackType
from typing import Any, final
from weakref import WeakSet

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, Store, Work

from ringlet import torch_backend
from ringlet.comm.connect import abort_on_exception
from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError
from ringlet.torch.process_group_meeting import connect_group, own_place
from ringlet.torch.process_group_messages import Mailbox
from ringlet.torch.process_group_tensors import (
    InOut,
    allreduce_sparse,
    borrow,
    borrow_all,
    combining,
    hand_out,
    joined,
)
from ringlet.torch.process_group_work import SECONDS_TO_FINISH, Job, JointWork, Lane, RingletWork

register = torch_backend.register
_OPEN: WeakSet[RingletProcessGroup] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads end while the interpreter still runs. After an exception other ranks may never come: no waiting then."""
    for group in list(_OPEN):
        group.shutdown(0.0 if hasattr(sys, "last_value") else SECONDS_TO_FINISH)


@final
class RingletProcessGroup(ProcessGroup):
    """Ranks that meet in ``store``; every rank of the group must make it."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, name: str, ranks: Sequence[int] = ()
    ) -> None:
        """``ranks`` are its members' ranks in the whole job; none for the group of all."""
        super().__init__(rank, size)
        self._name = name
        self._store = store
        place = own_place(store, name, ranks)
        self._communicator = connect_group(place, rank, size, timeout, f"process group {name or 'of all ranks'}")
        self._lane = Lane(f"group-{name}", lambda _: self._communicator, timeout)
        self._mailbox = Mailbox(place, rank, size, timeout)
        self._together: list[RingletWork] | None = None
        _show_failures()
        _OPEN.add(self)

    # -- what the group is --------------------------------------------------------------------------------------------
    def getBackendName(self) -> str:  # noqa: N802  C++ asks for this name
        """The name by which it was registered."""
        return torch_backend.NAME

    def _get_backend_name(self) -> str:
        return torch_backend.NAME

    @property
    def group_name(self) -> str:
        """The name that PyTorch has given it."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def get_group_store(self) -> Store:
        """Where its ranks have met."""
        return self._store

    def set_timeout(self, timeout: timedelta) -> None:
        """How long collectives and messages may take from now on."""
        self._lane.patience = self._mailbox.patience = timeout

    def shutdown(self, seconds: float = SECONDS_TO_FINISH) -> None:
        """Finish what is under way, if that takes no longer than ``seconds``; nothing can be called from now on."""
        self._lane.close(seconds)
        self._mailbox.close(seconds)
        self._communicator.close()

    def abort(self) -> None:
        """Let everything that is under way fail on this rank."""
        self._lane.break_off(CommunicationError(f"process group {self._name} was aborted"))
        self.shutdown()

    def __repr__(self) -> str:
        return f"<ringlet process group {self._name}: rank {self.rank()} of {self.size()}>"

    # -- collectives that combine -------------------------------------------------------------------------------------
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """In place."""
        how = combining(getattr(opts, "reduceOp", opts))
        listed = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if any(tensor.is_sparse for tensor in listed):
            return self._submit(
                "allreduce", lambda comm: [allreduce_sparse(comm, tensor, how) for tensor in listed], opts, timeout
            )
        borrowed = borrow_all(listed)

        def job(comm: Communicator) -> list[Tensor]:
            for entry in borrowed:
                how.allreduce(comm, entry.array, entry.array)
                entry.store()
            return listed

        return self._submit("allreduce", job, opts, timeout)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Several tensors in place."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Work:
        """In place on the root; the others keep what they have."""
        how = combining(getattr(opts, "reduceOp", op))
        root = _root(opts)
        borrowed = borrow_all(tensors)

        def job(comm: Communicator) -> list[Tensor]:
            for entry in borrowed:
                how.allreduce(comm, entry.array, entry.array if comm.rank == root else None)
                if comm.rank == root:
                    entry.store()
            return _tensors(borrowed)

        return self._submit("reduce", job, opts, timeout)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """One tensor of the list for each rank; their sizes may differ."""
        output, parts = _paired(outputs, inputs)
        how = combining(getattr(opts, "reduceOp", opts))
        target, sources = borrow(output), borrow_all(parts)
        self._check_number(sources, "reduce_scatter")
        sizes = [source.array.size for source in sources]
        _check_size(target.array.size, sizes[self.rank()], "the output of reduce_scatter")

        def job(comm: Communicator) -> list[Tensor]:
            values = joined(sources)
            if len(set(sizes)) == 1:
                target.array[:] = how.reduce_scatter(comm, values.reshape(comm.size, sizes[0]))
            else:
                start = sum(sizes[: comm.rank])
                target.array[:] = how.allreduce(comm, values)[start : start + target.array.size]
            target.store()
            return [output]

        return self._submit("reduce_scatter", job, opts, timeout)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        """One tensor with a part for each rank."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them."""
        how = combining(getattr(opts, "reduceOp", opts))
        pairs = [(borrow(output), borrow(source)) for output, source in zip(outputs, inputs, strict=True)]
        for target, source in pairs:
            _check_size(source.array.size, target.array.size * self.size(), "the input of reduce_scatter_tensor")

        def job(comm: Communicator) -> list[Tensor]:
            for target, source in pairs:
                target.array[:] = how.reduce_scatter(comm, source.array.reshape(comm.size, target.array.size))
                target.store()
            return list(outputs)

        return self._submit("reduce_scatter_tensor", job, opts)

    # -- collectives that move ----------------------------------------------------------------------------------------
    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """In place."""
        root = _root(opts)
        borrowed = borrow_all(tensors)

        def job(comm: Communicator) -> list[Tensor]:
            for entry in borrowed:
                comm.broadcast(entry.array, root, out=entry.array)
                if comm.rank != root:
                    entry.store()
            return _tensors(borrowed)

        return self._submit("broadcast", job, opts, timeout)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """A tensor of every rank; their sizes may differ."""
        source, parts = _paired(inputs, outputs)
        return self._allgather([(source, parts)], outputs, opts, timeout)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them; the lists of outputs are by rank."""
        gathers = [(source, [row[number] for row in outputs]) for number, source in enumerate(inputs)]
        return self._allgather(gathers, outputs, opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        """One tensor with the parts of all ranks."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them."""
        pairs = [(borrow(output), borrow(source)) for output, source in zip(outputs, inputs, strict=True)]
        for target, source in pairs:
            _check_size(target.array.size, source.array.size * self.size(), "the output of all_gather_into_tensor")

        def job(comm: Communicator) -> list[Tensor]:
            for target, source in pairs:
                hand_out(comm.allgather(source.array), [target])
            return list(outputs)

        return self._submit("all_gather_into_tensor", job, opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """The tensors of all ranks on the root."""
        root = _root(opts)
        source = borrow_all(inputs)[0]
        targets = borrow_all(_inner(outputs)) if self.rank() == root else []
        if self.rank() == root:
            self._check_number(targets, "gather")

        def job(comm: Communicator) -> list[Tensor]:
            splits = [source.array.size if rank == root else 0 for rank in range(comm.size)]
            values, received = comm.alltoall(source.array, splits)
            _check_sizes(targets, received.tolist() if comm.rank == root else [], "gather")
            hand_out(values, targets)
            return _tensors(targets)

        return self._submit("gather", job, opts, timeout)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """A tensor of the root's list for each rank."""
        root = _root(opts)
        target = borrow_all(outputs)[0]
        sources = borrow_all(_inner(inputs)) if self.rank() == root else []
        if self.rank() == root:
            self._check_number(sources, "scatter")

        def job(comm: Communicator) -> list[Tensor]:
            splits = [source.array.size for source in sources] or [0] * comm.size
            values, received = comm.alltoall(joined(sources) if sources else target.array[:0], splits)
            _check_sizes([target], [int(received[root])], "scatter")
            hand_out(values, [target])
            return [target.tensor]

        return self._submit("scatter", job, opts, timeout)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """A tensor for each rank, and one from each; their sizes may differ."""
        targets, sources = borrow_all(outputs), borrow_all(inputs)
        self._check_number(targets, "all_to_all")
        self._check_number(sources, "all_to_all")

        def job(comm: Communicator) -> list[Tensor]:
            values, received = comm.alltoall(joined(sources), [source.array.size for source in sources])
            _check_sizes(targets, received.tolist(), "all_to_all")
            hand_out(values, targets)
            return _tensors(targets)

        return self._submit("all_to_all", job, opts)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Rows of one tensor for each rank, and rows from each in another; equal numbers where none are given."""
        target, source = borrow(output), borrow(input)
        sent = self._elements(input, input_split_sizes, "input")
        expected = self._elements(output, output_split_sizes, "output")

        def job(comm: Communicator) -> list[Tensor]:
            values, received = comm.alltoall(source.array, sent)
            if received.tolist() != expected:
                raise CommunicationError(
                    f"all_to_all_single on rank {comm.rank} expected {expected} elements of the ranks, but they have "
                    f"sent {received.tolist()}: output_split_sizes must be what the others have in input_split_sizes"
                )
            hand_out(values, [target])
            return [output]

        return self._submit("all_to_all_single", job, opts)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Done when all ranks have come here."""

        def job(comm: Communicator) -> list[Tensor]:
            comm.barrier()
            return []

        return self._submit("barrier", job, opts, timeout)

    # -- messages -----------------------------------------------------------------------------------------------------
    def send(self, tensors: Sequence[Tensor], target: int, tag: int = 0) -> Work:
        """To one rank."""
        return self._noted(self._mailbox.send(_only(tensors), target, tag))

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        """From one rank."""
        return self._noted(self._mailbox.receive(_only(tensors), source, tag))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """From whichever rank sends first."""
        return self._noted(self._mailbox.receive(_only(tensors), None, tag))

    # -- several as one -----------------------------------------------------------------------------------------------
    def _start_coalescing(self, _: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, _: torch.device) -> Work:
        works, self._together = self._together or [], None
        return JointWork(works)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # -- helpers ------------------------------------------------------------------------------------------------------
    def _submit(self, what: str, job: Job, opts: Any = None, timeout: timedelta | None = None) -> Work:
        limit = timeout if timeout is not None else getattr(opts, "timeout", None)
        return self._noted(self._lane.submit(what, job, limit if limit and limit > timedelta(0) else None))

    def _noted(self, work: RingletWork) -> Work:
        if self._together is not None:
            self._together.append(work)
        return work

    def _allgather(
        self, gathers: list[tuple[Tensor, Any]], outputs: Any, opts: Any, timeout: timedelta | None = None
    ) -> Work:
        borrowed = [(borrow(source), borrow_all(targets)) for source, targets in gathers]
        for source, targets in borrowed:
            self._check_number(targets, "all_gather")
            _check_size(targets[self.rank()].array.size, source.array.size, "this rank's output of all_gather")

        def job(comm: Communicator) -> Any:
            for source, targets in borrowed:
                values = comm.allgather(source.array)
                _check_size(sum(target.array.size for target in targets), values.size, "all outputs of all_gather")
                hand_out(values, targets)
            return outputs

        return self._submit("all_gather", job, opts, timeout)

    def _check_number(self, parts: Sequence[InOut], what: str) -> None:
        if len(parts) != self.size():
            raise CommunicationError(
                f"{what} was given {len(parts)} tensors for {self.size()} ranks: expected one each"
            )

    def _elements(self, tensor: Tensor, splits: Sequence[int], which: str) -> list[int]:
        """How many elements go to or come from each rank."""
        rows = tensor.shape[0] if tensor.dim() else 0
        numbers = list(splits) or [rows // self.size()] * self.size()
        if len(numbers) != self.size() or sum(numbers) != rows:
            raise CommunicationError(
                f"the {which} of all_to_all_single has {rows} rows and split sizes {list(splits)}: expected "
                f"{self.size()} numbers that add up to its rows, or none and rows for equal parts"
            )
        return [number * (tensor.numel() // max(rows, 1)) for number in numbers]


def create(options: Any, _: Any = None) -> RingletProcessGroup:
    """What PyTorch calls to make a group; ``options`` are its own."""
    return RingletProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id),
        options.global_ranks_in_group,
    )


def _show_failures() -> None:
    """PyTorch collects what hooks print about an exception, to print it later; but Ringlet's hook ends the process."""
    hook = sys.excepthook
    if hook.__module__ != abort_on_exception.__module__:
        return

    def shown(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        with redirect_stderr(sys.__stderr__):
            hook(kind, error, trace)

    sys.excepthook = shown


def _root(opts: Any) -> int:
    """Of options, or the number itself."""
    return int(getattr(opts, "rootRank", opts if opts is not None else 0))


def _inner(tensors: Any) -> Any:
    """The list of the only device: PyTorch has a list for each."""
    return tensors[0] if tensors and not isinstance(tensors[0], Tensor) else tensors


def _only(tensors: Any) -> Tensor:
    return tensors if isinstance(tensors, Tensor) else tensors[0]


def _paired(ones: Any, lists: Any) -> tuple[Tensor, Any]:
    """One tensor and the list that belongs to it."""
    return _only(ones), _inner(lists)


def _tensors(borrowed: Sequence[InOut]) -> list[Tensor]:
    return [entry.tensor for entry in borrowed]


def _check_size(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise CommunicationError(f"{what} has {found} elements: expected {expected}")


def _check_sizes(targets: Sequence[InOut], received: Sequence[int], what: str) -> None:
    sizes = [target.array.size for target in targets]
    if sizes != list(received):
        raise CommunicationError(
            f"the outputs of {what} have {sizes} elements, but {list(received)} have come: tensors must fit"
        )
