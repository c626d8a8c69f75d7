"""torch.distributed: a wire over its process groups, Gloo between processors and NCCL between GPUs by the same code.

Arrays are NumPy's; a backend that wants its tensors on a GPU gets copies there. Only tensor calls are used, never those
for Python objects. Groups are made directly on a store, not by ``torch.distributed.new_group``: that one wants all
ranks of the job to take part in making any group, or gives it a name on which ranks of different groups disagree.
"""

from __future__ import annotations

import atexit
import os
import socket
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any, final
from weakref import WeakSet

import numpy as np

from ringlet.comm.collective import Array, Op
from ringlet.comm.contract import Communicator
from ringlet.comm.environments import ADDRESS, World, stay_on_this_machine
from ringlet.comm.layered import LayeredCommunicator, cut_machines, ranks_per_node_from_environment
from ringlet.comm.memory import machine_id
from ringlet.comm.window import Window
from ringlet.comm.wire import Bytes, Wire, WiredCommunicator
from ringlet.errors import CommunicationError
from ringlet.forks import Owner, never_destroy_in_copies
from ringlet.output_streams import flush_streams

PATIENCE = timedelta(minutes=30)
"""How long a collective waits for ranks that do not come: PyTorch's own default."""

_REDUCED = ("float32", "float64", "int8", "uint8", "int32", "int64")
"""The dtypes that every backend combines by itself."""


_OPEN: WeakSet[TorchWire] = WeakSet()
"""All wires of this process."""


@atexit.register
def _let_go_of_all() -> None:
    """Groups end while the interpreter still runs: left to the very end, their threads may abort the process."""
    for wire in list(_OPEN):
        wire.let_go()


def join_torch(world: World | None = None, *, gpus: bool = True) -> Communicator:
    """The communicator of all ranks that torchrun started; every rank must call.

    If the program has initialised torch.distributed, its ranks are taken from there. Without ``gpus`` they speak over
    Gloo even where NCCL could be used.
    """
    distributed = _load_torch().distributed
    if distributed.is_initialized():
        return torch_communicator(distributed.group.WORLD, ranks_per_node_from_environment())
    if world is None or world.launcher != "torchrun":
        raise CommunicationError(
            "torch.distributed was asked for, but this process was not started by torchrun (RANK, WORLD_SIZE and "
            "MASTER_ADDR are not set). Start it with: torchrun --nproc-per-node 2 script.py"
        )
    if world.local_size == world.size:
        stay_on_this_machine(os.environ)
    store, rank, size = next(iter(distributed.rendezvous("env://", world.rank, world.size, timeout=PATIENCE)))
    return _over_store(store, rank, size, _default_backend() if gpus else "gloo", ranks_per_node_from_environment())


def torch_communicator(group: Any, ranks_per_node: int | None = None) -> Communicator:
    """A communicator of the ranks of a process group; every rank of it must call.

    It gets connections of its own, so collectives that the program itself calls on its group are never mixed with
    these. ``ranks_per_node`` cuts machines into smaller ones.
    """
    distributed = _load_torch().distributed
    rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    backend = "nccl" if "nccl" in distributed.get_backend(group) else "gloo"
    return _over_store(_own_store(group, rank, backend), rank, size, backend, ranks_per_node)


def _own_store(group: Any, rank: int, backend: str) -> Any:
    """A store that rank 0 keeps; the others are told its address over ``group``."""
    torch = _load_torch()
    only_here = _is_one_machine(torch, group, backend)
    if only_here:
        stay_on_this_machine(os.environ)
    address = np.zeros(256, np.uint8)
    store = None
    if rank == 0:
        host = os.environ.get("MASTER_ADDR") or socket.getfqdn()
        store, text = open_store(host, only_here=only_here, timeout=PATIENCE)
        address[: len(text)] = np.frombuffer(text.encode(), np.uint8)
    tensor = torch.from_numpy(address).to(_device(torch, backend))
    torch.distributed.broadcast(tensor, torch.distributed.get_global_rank(group, 0), group=group)
    return store or join_store(tensor.cpu().numpy().tobytes().rstrip(b"\0").decode(), timeout=PATIENCE)


def open_store(host: str, *, only_here: bool, timeout: timedelta, size: int | None = None) -> tuple[Any, str]:
    """A store of ``torch.distributed`` that this rank keeps, and ``port host`` to find it by.

    ``only_here``: all ranks are on this machine, and no one else can connect to it. (By itself PyTorch's store listens
    on all interfaces, whatever host it is told.)
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    options: dict[str, Any] = {"is_master": True, "timeout": timeout, "wait_for_workers": False}
    port = 0
    if only_here:
        host = ADDRESS
        listener = socket.create_server((ADDRESS, 0))
        port = listener.getsockname()[1]
        options["master_listen_fd"] = listener.detach()  # which belongs to the store from now on
    store = TCPStore(host, port, size, **options)
    never_destroy_in_copies(store)
    return store, f"{store.port} {host}"


def join_store(address: str, *, timeout: timedelta, size: int | None = None) -> Any:
    """The store that another rank keeps, by its ``port host``."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port, _, host = address.partition(" ")
    store = TCPStore(host, int(port), size, is_master=False, timeout=timeout)
    never_destroy_in_copies(store)
    return store


def _is_one_machine(torch: Any, group: Any, backend: str) -> bool:
    """Whether all ranks of ``group`` are on one machine; every rank of it must call."""
    own = blake2b(_machine_key(), digest_size=32).digest()
    tensor = torch.tensor(list(own), dtype=torch.uint8, device=_device(torch, backend))
    rows = [torch.empty_like(tensor) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(rows, tensor, group=group)
    return all(bool((row == tensor).all()) for row in rows)


def _over_store(store: Any, rank: int, size: int, backend: str, ranks_per_node: int | None) -> Communicator:
    wire = TorchWire(store, "ringlet", rank, size, backend)
    return LayeredCommunicator(wire, cut_machines(wire.machines(), ranks_per_node))


@final
class TorchWire(Wire):
    """Bytes over a process group of its own; its ranks meet in ``store`` under ``name_in_store``."""

    name = "torch"

    def __init__(self, store: Any, name_in_store: str, rank: int, size: int, backend: str) -> None:
        self._torch = _load_torch()
        self._store, self._name_in_store, self._backend = store, name_in_store, backend
        self.rank = rank
        self.size = size
        self._device = _device(self._torch, backend)
        self._group = _make_group(self._torch, store, name_in_store, rank, size, backend)
        self._subsets: Counter[tuple[int, ...]] = Counter()
        self._owner = Owner()
        never_destroy_in_copies(self)
        _OPEN.add(self)

    def let_go(self) -> None:
        """End the group's threads; nothing travels from now on."""
        if self._owner.is_here:
            self._group = self._store = None

    def reduces(self, dtype: np.dtype[Any], op: Op) -> bool:
        """What every backend knows; minima and maxima of whole numbers only, because of NaN."""
        known = dtype.isnative and dtype.name in _REDUCED
        return known and (dtype.kind != "f" or op not in (Op.MIN, Op.MAX))

    def allreduce(self, array: Array, op: Op) -> None:
        """In place."""
        kinds = self._torch.distributed.ReduceOp
        operations = {Op.SUM: kinds.SUM, Op.MIN: kinds.MIN, Op.MAX: kinds.MAX, Op.PRODUCT: kinds.PRODUCT}
        if array.size:
            options = self._torch.distributed.AllreduceOptions()
            options.reduceOp = operations[op]
            tensor = self._tensor(array)
            self._group.allreduce([tensor], options).wait()
            _copy_back(tensor, array)

    def broadcast(self, data: Bytes, root: int) -> None:
        """The tensor of the root."""
        if data.size:
            options = self._torch.distributed.BroadcastOptions()
            options.rootRank = root
            tensor = self._tensor(data)
            self._group.broadcast([tensor], options).wait()
            _copy_back(tensor, data)

    def allgather(self, data: Bytes, received: Bytes, counts: Sequence[int]) -> None:
        """Of equal lengths: shorter parts are padded."""
        longest = max(counts)
        if longest == 0:
            return
        padded = np.zeros(longest, np.uint8)
        padded[: data.size] = data
        rows = [self._torch.empty(longest, dtype=self._torch.uint8, device=self._device) for _ in counts]
        self._group.allgather([rows], [self._tensor(padded)]).wait()
        ends = np.cumsum(counts)
        for row, count, end in zip(rows, counts, ends, strict=True):
            received[end - count : end] = row[:count].cpu().numpy()

    def alltoall(self, data: Bytes, counts: Sequence[int], received: Bytes, received_counts: Sequence[int]) -> None:
        """With a length for every pair."""
        tensor = self._tensor(received)
        options = self._torch.distributed.AllToAllOptions()
        self._group.alltoall_base(tensor, self._tensor(data), list(received_counts), list(counts), options).wait()
        _copy_back(tensor, received)

    def barrier(self) -> None:
        """A sum of one number: unlike PyTorch's barrier it never guesses a device."""
        self.allreduce(np.zeros(1, np.int32), Op.SUM)

    def machines(self) -> list[int]:
        """Ranks with the same host name since the same start of the system; the lowest stands for the machine."""
        keys = WiredCommunicator(self).allgather_bytes(_machine_key())
        return [keys.index(key) for key in keys]

    def subset(self, ranks: Sequence[int]) -> TorchWire:
        """A group on the same store, under a name that its members agree on: they call this equally often."""
        chosen = tuple(ranks)
        self._subsets[chosen] += 1
        name = f"{self._name_in_store}/{'-'.join(map(str, chosen))}.{self._subsets[chosen]}"
        return TorchWire(self._store, name, chosen.index(self.rank), len(chosen), self._backend)

    def window(self, num_bytes: int) -> Window:
        """There is none."""
        raise CommunicationError(
            f"a window of {num_bytes} bytes between machines needs MPI, torch.distributed has no one-sided memory: "
            "start the ranks by mpiexec or srun, or on one machine"
        )

    def can_duplicate(self) -> bool:
        """Groups are independent of each other."""
        return True

    def abort(self, exit_code: int) -> None:
        """End this process; torchrun ends the others when it sees that one has failed."""
        flush_streams()
        os._exit(exit_code)

    def _tensor(self, array: Array) -> Any:
        """The array's own memory, or a copy on the device that the backend works on."""
        return self._torch.from_numpy(array if array.flags.writeable else array.copy()).to(self._device)


def _machine_key() -> bytes:
    return f"{socket.gethostname()} {machine_id()}".encode()


def _copy_back(tensor: Any, array: Array) -> None:
    if tensor.device.type != "cpu":
        array[...] = tensor.cpu().numpy()


def _device(torch: Any, backend: str) -> Any:
    """Where the backend wants its tensors."""
    return torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")


def _make_group(torch: Any, store: Any, name: str, rank: int, size: int, backend: str) -> Any:
    distributed = torch.distributed
    place = distributed.PrefixStore(name, store)
    if backend == "nccl":
        return distributed.ProcessGroupNCCL(place, rank, size, distributed.ProcessGroupNCCL.Options())
    return distributed.ProcessGroupGloo(place, rank, size, PATIENCE)


def _default_backend() -> str:
    """NCCL if every rank of this machine can have a GPU of its own, else Gloo."""
    torch = _load_torch()
    wanted = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if torch.cuda.is_available() and torch.cuda.device_count() >= wanted and torch.distributed.is_nccl_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        return "nccl"
    return "gloo"


def _load_torch() -> Any:
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        raise CommunicationError(
            f"torch.distributed cannot be used ({error}). Install PyTorch: pip install 'ringlet[torch]', or start the "
            "ranks with `ringlet run` or mpiexec instead of torchrun"
        ) from error
    if not torch.distributed.is_available():
        raise CommunicationError(
            "this PyTorch was built without torch.distributed. Install the usual build, or start the ranks with "
            "`ringlet run` or mpiexec instead of torchrun"
        )
    return torch
