"""The process group "ringlet": stock DDP, and with it Accelerate and Lightning, over Ringlet's communicator.

    import ringlet.torch
    torch.distributed.init_process_group("ringlet")

A group has a communicator (``meeting``) and a thread (``work``); PyTorch's ``collectives`` become jobs for it.
Tensors travel from and to their own memory if they are contiguous on the CPU; others as copies (``tensors``).
``messages`` has what two ranks send each other.
"""

# PyTorch exports names without saying so to type checkers.
# mypy: disable-error-code="attr-defined,call-arg,override"
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
from torch.distributed import Store, Work

from ringlet import torch_backend
from ringlet.allocator import keep_freed_memory
from ringlet.comm.world import abort_on_exception
from ringlet.errors import CommunicationError
from ringlet.forks import Owner, never_destroy_in_copies
from ringlet.torch.process_group.collectives import CollectiveGroup
from ringlet.torch.process_group.meeting import connect_group, own_place
from ringlet.torch.process_group.messages import Mailbox
from ringlet.torch.process_group.work import SECONDS_TO_FINISH, Job, JointWork, Lane, RingletWork

_OPEN: WeakSet[RingletProcessGroup] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads end while the interpreter still runs. After an exception other ranks may never come: no waiting then."""
    for group in list(_OPEN):
        group.shutdown(0.0 if hasattr(sys, "last_value") else SECONDS_TO_FINISH)


@final
class RingletProcessGroup(CollectiveGroup):
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

    # -- messages -----------------------------------------------------------------------------------------------------
    def send(self, tensors: Sequence[Tensor], target: int, tag: int = 0) -> Work:
        """To one rank."""
        self._owner.check("send", self.rank())
        return self._noted(self._mailbox.send(tensors[0], target, tag))

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        """From one rank."""
        self._owner.check("recv", self.rank())
        return self._noted(self._mailbox.receive(tensors[0], source, tag))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """From whichever rank sends first."""
        self._owner.check("recv", self.rank())
        return self._noted(self._mailbox.receive(tensors[0], None, tag))

    # -- several as one -----------------------------------------------------------------------------------------------
    def _start_coalescing(self, _: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, _: torch.device) -> Work:
        works, self._together = self._together or [], None
        return JointWork(works)

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
