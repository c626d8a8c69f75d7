"""The process group "ringlet": stock DDP, and with it Accelerate and Lightning, over Ringlet's communicator.

    import ringlet.torch
    torch.distributed.init_process_group("ringlet")

A group has a communicator (``meeting``) and a thread (``work``); PyTorch's ``collectives`` become jobs for it.
Tensors travel from and to their own memory if they are contiguous on the CPU; others as copies (``tensors``).
``messages`` has what two ranks send each other, ``roll_call`` a barrier that names who is missing. ``devices``,
``profiling`` and ``compiling`` are what PyTorch asks for besides.
"""

# PyTorch exports names without saying so to type checkers.
# mypy: disable-error-code="attr-defined,call-arg,override"
from __future__ import annotations

import atexit
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from datetime import timedelta
from functools import wraps
from types import TracebackType
from typing import Any, final
from weakref import WeakSet

import torch
from torch import Tensor
from torch.distributed import PrefixStore, Store, Work, distributed_c10d

from ringlet import torch_backend
from ringlet.allocator import keep_freed_memory
from ringlet.comm.world import abort_on_exception
from ringlet.errors import CommunicationError
from ringlet.forks import Owner, never_destroy_in_copies
from ringlet.torch.process_group import profiling
from ringlet.torch.process_group.collectives import CollectiveGroup
from ringlet.torch.process_group.compiling import never_compiled
from ringlet.torch.process_group.devices import Devices, by_device
from ringlet.torch.process_group.meeting import connect_group, meet, own_place
from ringlet.torch.process_group.messages import Mailbox
from ringlet.torch.process_group.roll_call import RollCall
from ringlet.torch.process_group.work import SECONDS_TO_FINISH, Job, JointWork, Lane, RingletWork, lasting

_OPEN: WeakSet[RingletProcessGroup] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Threads end while the interpreter still runs. After an exception other ranks may never come: no waiting then."""
    for group in list(_OPEN):
        group.shutdown(0.0 if hasattr(sys, "last_value") else SECONDS_TO_FINISH)


@final
@never_compiled
class RingletProcessGroup(CollectiveGroup):
    """Ranks that meet in ``store``; every rank of the group must make it."""

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str,
        ranks: Sequence[int] = (),
        pg_options: Any = None,
    ) -> None:
        """``ranks`` are its members' ranks in the whole job; none for the group of all.

        ``pg_options`` are for the group of another backend (``devices``).
        """
        super().__init__(rank, size)
        self._name = name
        self._ranks = list(ranks) or list(range(size))
        self._store = store
        what = f"process group {name or 'of all ranks'}"
        place = meet(own_place(store, name, ranks), rank, size, timeout, what)
        self._communicator = connect_group(place, rank, size, timeout, what)
        self._lane = Lane(f"group-{name}", lambda _: self._communicator, timeout)
        self._mailbox = Mailbox(place, rank, size, timeout)
        self._roll_call = RollCall(place, rank, size)
        self._devices: Devices | None = None
        self._pg_options = pg_options
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

    @property
    def timeout(self) -> timedelta:
        """How long collectives and messages may take."""
        return self._lane.patience

    def set_timeout(self, timeout: timedelta) -> None:
        """How long collectives and messages may take from now on."""
        self._lane.patience = self._mailbox.patience = timeout

    @property
    def devices(self) -> Devices:
        """Which devices it serves; PyTorch knows that once the group is made."""
        if self._devices is not None:
            return self._devices
        named = distributed_c10d._world.pg_backend_config.get(self)
        if named is None:
            return Devices(self)
        self._devices = Devices(self, named, self._pg_options)
        return self._devices

    @property
    def _device_types(self) -> list[torch.device]:
        return self.devices.types

    def _get_backend(self, device: torch.device) -> Any:
        return self.devices.backend(torch.device(device))

    def split_group(
        self,
        new_ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Sequence[torch.device] | None = None,
    ) -> RingletProcessGroup | None:
        """A group of some of its ranks, which must all call; None on others. ``torch.distributed`` does not know it."""
        if opts is not None and opts.backend != torch_backend.NAME:
            raise CommunicationError(f"cannot split a group of '{torch_backend.NAME}' with options of '{opts.backend}'")
        if others := {device.type for device in device_types or []} & self.devices.others:
            raise CommunicationError(f"cannot split off {', '.join(others)}: another backend serves it. Use new_group")
        ranks = sorted(new_ranks)
        if self.rank() not in ranks:
            return None
        name = group_name or f"{self._name}:split:{'-'.join(map(str, ranks))}"
        members = [self._ranks[rank] for rank in ranks]
        place, place_rank = PrefixStore(f"{name}/", self._store), ranks.index(self.rank())
        group = RingletProcessGroup(place, place_rank, len(ranks), timeout or self.timeout, name, members)
        group._devices = Devices(group)
        group._set_group_desc(group_desc or f"{self.group_desc}:split")
        return group

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Done when all ranks have come here; the error names the first rank that does not come, or all of them."""
        self._owner.check("monitored_barrier", self.rank())
        self._roll_call.pass_together(self.timeout if timeout is None else timeout, wait_all_ranks=wait_all_ranks)

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
    @by_device
    def send(self, tensors: Sequence[Tensor], target: int, tag: int = 0) -> Work:
        """To one rank."""
        self._owner.check("send", self.rank())
        return self._noted(self._mailbox.send(tensors[0], target, tag, profiling.begin("send", tensors)))

    @by_device
    def recv(self, tensors: Sequence[Tensor], source: int, tag: int = 0) -> Work:
        """From one rank."""
        self._owner.check("recv", self.rank())
        return self._noted(self._mailbox.receive(tensors[0], source, tag, profiling.begin("recv", tensors)))

    @by_device
    def recv_anysource(self, tensors: Sequence[Tensor], tag: int = 0) -> Work:
        """From whichever rank sends first."""
        self._owner.check("recv", self.rank())
        return self._noted(self._mailbox.receive(tensors[0], None, tag, profiling.begin("recvAnySource", tensors)))

    # -- several as one -----------------------------------------------------------------------------------------------
    def _start_coalescing(self, _: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, _: torch.device) -> Work:
        works, self._together = self._together or [], None
        return JointWork(works)

    # -- helpers ------------------------------------------------------------------------------------------------------
    def _submit(
        self, what: str, job: Job, tensors: Sequence[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        self._owner.check(what, self.rank())
        asked = timeout if timeout is not None else getattr(opts, "timeout", None)
        limit = asked if asked and asked > timedelta(0) else None
        return self._noted(self._lane.submit(what, job, limit, profiling.begin(what, tensors)))

    def _noted(self, work: RingletWork) -> Work:
        if self._together is not None:
            self._together.append(work)
        return work


def create(options: Any, pg_options: Any = None) -> RingletProcessGroup:
    """What PyTorch calls to make a group; ``options`` are its own, ``pg_options`` its user's."""
    if pg_options is not None and not hasattr(pg_options, "backend"):
        raise CommunicationError(
            f"pg_options are {type(pg_options).__qualname__}, which are no options of a backend: leave them out"
        )
    keep_freed_memory()
    _let_reducers_keep_works()
    return RingletProcessGroup(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        str(options.group_id),
        options.global_ranks_in_group,
        pg_options,
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


def _let_reducers_keep_works() -> None:
    """``DDP.join`` gives the reducer a work, which C++ keeps beyond the end of its Python half."""
    reducer: Any = torch._C._distributed_c10d.Reducer
    take = reducer._set_forward_pass_work_handle
    if hasattr(take, "__wrapped__"):
        return

    @wraps(take)
    def keep(self: Any, work: Work, use_static_world_size: bool) -> None:
        take(self, lasting(work), use_static_world_size)

    reducer._set_forward_pass_work_handle = keep
