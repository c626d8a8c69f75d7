"""The process group "ringlet": stock DDP, and with it Accelerate and Lightning, over Ringlet's communicator.

    import ringlet.torch
    torch.distributed.init_process_group("ringlet")

A group has a communicator (``process_group_meeting``) and a thread of its own (``process_group_work``); collectives of
PyTorch become jobs for it (``process_group_jobs``). Tensors travel from and to their own memory if they are contiguous
on the CPU; others as copies (``process_group_tensors``). ``process_group_messages`` has what two ranks send each other.

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
from ringlet.allocator import keep_freed_memory
from ringlet.comm.world import abort_on_exception
from ringlet.errors import CommunicationError
from ringlet.forks import Owner, never_destroy_in_copies
from ringlet.torch import process_group_jobs as jobs
from ringlet.torch.process_group_meeting import connect_group, own_place
from ringlet.torch.process_group_messages import Mailbox
from ringlet.torch.process_group_tensors import combining
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
        self._owner = Owner()
        never_destroy_in_copies(self)
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
        if not self._owner.is_here:
            return
        self._lane.close(seconds)
        self._mailbox.close(seconds)
        self._communicator.close()

    def abort(self) -> None:
        """Let everything that is under way fail on this rank."""
        if not self._owner.is_here:
            return
        self._lane.break_off(CommunicationError(f"process group {self._name} was aborted"))
        self.shutdown()

    def __repr__(self) -> str:
        return f"<ringlet process group {self._name}: rank {self.rank()} of {self.size()}>"

    # -- collectives --------------------------------------------------------------------------------------------------
    def allreduce(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """In place."""
        how = combining(getattr(opts, "reduceOp", opts))
        return self._submit("allreduce", jobs.allreduce(_listed(tensors), how), opts, timeout)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Several tensors in place."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Work:
        """In place on the root."""
        how = combining(getattr(opts, "reduceOp", op))
        return self._submit("reduce", jobs.reduce(_listed(tensors), how, _root(opts)), opts, timeout)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """One tensor of the list for each rank."""
        how = combining(getattr(opts, "reduceOp", opts))
        job = jobs.reduce_scatter(_only(outputs), _inner(inputs), how, self.rank(), self.size())
        return self._submit("reduce_scatter", job, opts, timeout)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        """One tensor with a part for each rank."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them."""
        how = combining(getattr(opts, "reduceOp", opts))
        job = jobs.reduce_scatter_single(outputs, inputs, how, self.size())
        return self._submit("reduce_scatter_single", job, opts)

    def broadcast(self, tensors: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """In place."""
        return self._submit("broadcast", jobs.broadcast(_listed(tensors), _root(opts)), opts, timeout)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """A tensor of every rank."""
        job = jobs.allgather([_only(inputs)], [_inner(outputs)], self.rank(), self.size())
        return self._submit("all_gather", job, opts, timeout)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them; the lists of outputs are by rank."""
        by_input = [[row[number] for row in outputs] for number in range(len(inputs))]
        return self._submit("all_gather", jobs.allgather(inputs, by_input, self.rank(), self.size()), opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:  # noqa: A002
        """One tensor with the parts of all ranks."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        """Several of them."""
        return self._submit("all_gather_single", jobs.allgather_single(outputs, inputs, self.size()), opts)

    def gather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """The tensors of all ranks on the root."""
        job = jobs.gather(_inner(outputs), _only(inputs), _root(opts), self.rank(), self.size())
        return self._submit("gather", job, opts, timeout)

    def scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """A tensor of the root's list for each rank."""
        job = jobs.scatter(_only(outputs), _inner(inputs), _root(opts), self.rank(), self.size())
        return self._submit("scatter", job, opts, timeout)

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        """A tensor for each rank, and one from each."""
        return self._submit("all_to_all", jobs.alltoall(outputs, inputs, self.size()), opts)

    def all_to_all_single(
        self,
        output: Tensor,
        input: Tensor,  # noqa: A002
        output_split_sizes: Sequence[int],
        input_split_sizes: Sequence[int],
        opts: Any = None,
    ) -> Work:
        """Rows of one tensor for each rank, and rows from each in another."""
        job = jobs.alltoall_single(output, input, output_split_sizes, input_split_sizes, self.size())
        return self._submit("all_to_all_single", job, opts)

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        """Done when all ranks have come here."""
        return self._submit("barrier", jobs.barrier, opts, timeout)

    # -- messages -----------------------------------------------------------------------------------------------------
    def send(self, tensors: Sequence[Tensor], target: int, tag: int = 0) -> Work:
        """To one rank."""
        self._owner.check("send", self.rank())
        return self._noted(self._mailbox.send(_only(tensors), target, tag))

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        """From one rank."""
        self._owner.check("recv", self.rank())
        return self._noted(self._mailbox.receive(_only(tensors), source, tag))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """From whichever rank sends first."""
        self._owner.check("recv", self.rank())
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
        self._owner.check(what, self.rank())
        limit = timeout if timeout is not None else getattr(opts, "timeout", None)
        return self._noted(self._lane.submit(what, job, limit if limit and limit > timedelta(0) else None))

    def _noted(self, work: RingletWork) -> Work:
        if self._together is not None:
            self._together.append(work)
        return work


def create(options: Any, _: Any = None) -> RingletProcessGroup:
    """What PyTorch calls to make a group; ``options`` are its own."""
    keep_freed_memory()
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


def _listed(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _only(tensors: Any) -> Tensor:
    """The tensor of the only device: PyTorch has one for each."""
    return _listed(tensors)[0]


def _inner(tensors: Any) -> Any:
    """The list of the only device; it may have been left out."""
    return tensors[0] if tensors and not isinstance(tensors[0], Tensor) else tensors
