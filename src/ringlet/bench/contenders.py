"""Implementations of collectives: Ringlet's own, and those that it is compared with on the same ranks.

A contender prepares a collective on an array of a given size, ready to be called: Ringlet by the example that each
collective brings along, plain MPI, Gloo and DeepSpeed where they have the same.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ringlet.comm.collective import COLLECTIVES
from ringlet.comm.contract import Communicator
from ringlet.comm.environments import has_mpi, stay_on_this_machine
from ringlet.comm.torch_distributed import join_store, open_store
from ringlet.data.partition import bounds
from ringlet.kernels import load
from ringlet.strategies.reduction import ShardTree

PATIENCE = timedelta(minutes=5)
SEGMENTS = "/dev/shm/deepspeed_allreduce_buffer"  # noqa: S108  not ours: where DeepSpeed makes them

Call = Callable[[], object]


class Contender(ABC):
    """One implementation of collectives over all ranks."""

    name: str

    @abstractmethod
    def prepare(self, collective: str, num_bytes: int) -> Call | None:
        """A function that does ``collective`` on float32 numbers of ``num_bytes``; None if there is no such thing.

        ``num_bytes`` is what one rank has of the larger side: of the input, or of the result of an allgather.
        """

    def close(self) -> None:  # noqa: B027
        """Let go of connections."""


@final
class Ringlet(Contender):
    """The communicator's own collectives on any array."""

    name = "ringlet"

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm

    def prepare(self, collective: str, num_bytes: int) -> Call | None:
        """As a program would call it, results into given arrays where that is possible."""
        comm, described = self._comm, COLLECTIVES[collective]
        if described.example is None:
            return None
        arguments = described.example(values_of(num_bytes, comm.size), comm.size)
        return lambda: comm.run(described, *arguments)


@final
class SharedArrays(Contender):
    """What synchronous training does: gradients already lie in shared memory, each rank adds up its part of them.

    The sum of a part ends up in the row of its owner, where all ranks can read it.
    """

    name = "ringlet, shared arrays"

    def __init__(self, comm: Communicator) -> None:
        self._comm, self._kernels = comm, load()

    def prepare(self, collective: str, num_bytes: int) -> Call | None:
        """Only an allreduce, only on one machine."""
        comm = self._comm
        if collective != "allreduce" or comm.local_size != comm.size:
            return None
        num_values = max(num_bytes // 4, 1)
        rows = comm.shared_array((comm.size, num_values), np.float32)
        part = slice(*bounds(num_values, comm.rank, comm.size))
        tree = ShardTree(comm.size)
        order = tree.sum_of([tree.leaf(rank) for rank in range(comm.size)])
        inputs, out = [row[part] for row in rows], rows[comm.rank][part]

        def exchange() -> None:
            comm.barrier()
            self._kernels.add_tree(inputs, order, out)
            comm.barrier()

        return exchange


@final
class PlainMpi(Contender):
    """The MPI library's collectives through mpi4py."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.name = mpi_name(MPI.Get_library_version())

    def prepare(self, collective: str, num_bytes: int) -> Call | None:
        """In place where MPI allows it."""
        world, in_place = self._world, self._mpi.IN_PLACE
        values = values_of(num_bytes, world.size)
        parts = np.empty_like(values)
        ends = [bounds(values.size, rank, world.size) for rank in range(world.size)]
        counts = [stop - start for start, stop in ends]
        own = values[: values.size // world.size]
        return {
            "allreduce": lambda: world.Allreduce(in_place, values),
            "broadcast": lambda: world.Bcast(values),
            "allgather": lambda: world.Allgather(own, parts[: own.size * world.size]),
            "reduce_scatter": lambda: world.Reduce_scatter(values, parts[: counts[world.rank]], counts),
            "alltoall": lambda: world.Alltoall(values, parts),
            "barrier": world.Barrier,
        }.get(collective)


@final
class Gloo(Contender):
    """PyTorch's collectives for processors."""

    name = "gloo"

    def __init__(self, comm: Communicator) -> None:
        import torch

        distributed: Any = torch.distributed
        self._torch, self._distributed, self._size = torch, distributed, comm.size
        only_here, address = comm.local_size == comm.size, ""
        if only_here:
            stay_on_this_machine(os.environ)
        if comm.rank == 0:
            host = socket.gethostname()
            store, address = open_store(host, only_here=only_here, timeout=PATIENCE, size=comm.size)
        address = comm.broadcast_bytes(address.encode()).decode()
        if comm.rank != 0:
            store = join_store(address, timeout=PATIENCE, size=comm.size)
        distributed.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)

    def prepare(self, collective: str, num_bytes: int) -> Call | None:
        """As PyTorch programs call it."""
        torch, distributed, size = self._torch, self._distributed, self._size
        values = torch.from_numpy(values_of(num_bytes, size))
        parts = list(torch.empty_like(values).chunk(size))
        whole = torch.empty_like(values)
        own = values[: values.numel() // size].clone()
        return {
            "allreduce": lambda: distributed.all_reduce(values),
            "broadcast": lambda: distributed.broadcast(values, 0),
            "allgather": lambda: distributed.all_gather(parts, own),
            "alltoall": lambda: distributed.all_to_all_single(whole, values),
            "barrier": distributed.barrier,
        }.get(collective)

    def close(self) -> None:
        """End the process group."""
        self._distributed.destroy_process_group()


@final
class DeepSpeed(Contender):
    """DeepSpeed's allreduce in shared memory, made for inference on processors; compiled when it is first used."""

    name = "deepspeed, shared memory"

    def __init__(self, comm: Communicator) -> None:
        import torch
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        job = comm.broadcast_bytes(str(os.getpid()).encode()).decode()
        for rank in range(comm.size):  # one after another: the first one compiles
            if rank == comm.rank:
                module = ShareMemCommBuilder().load(verbose=False)
            comm.barrier()
        told = {"LOCAL_SIZE": str(comm.size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": job}
        before = {name: os.environ.get(name) for name in told}
        os.environ.update(told)  # names its shared memory by them
        module.initialize(comm.size, comm.rank)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
        comm.barrier()  # all have mapped all segments, whose names DeepSpeed would leave behind
        own = f"{SEGMENTS}_{os.getuid()}_{told['MASTER_ADDR']}_{job}_{comm.rank}"
        Path(own).unlink(missing_ok=True)
        self._torch, self._size = torch, comm.size

    def prepare(self, collective: str, num_bytes: int) -> Call | None:
        """Only an allreduce, in place."""
        if collective != "allreduce":
            return None
        values = self._torch.from_numpy(values_of(num_bytes, self._size))
        return lambda: self._torch.ops.deepspeed.inference_all_reduce_(values)


def mpi_name(version: str) -> str:
    """``MPICH``, ``Open MPI`` or whatever a library's version begins with."""
    words = version.replace(",", " ").replace(":", " ").split()
    return "Open MPI" if words[:2] == ["Open", "MPI"] else words[0] if words else "MPI"


def contenders(comm: Communicator) -> list[Contender]:
    """All that are present here; every rank must call."""
    found: list[Contender] = [Ringlet(comm), SharedArrays(comm)]
    if comm.name == "mpi" or has_mpi():
        found.append(PlainMpi())
    if find_spec("torch") is not None and comm.name != "torch":
        found.append(Gloo(comm))
    if find_spec("deepspeed") is not None and comm.local_size == comm.size:
        found.append(DeepSpeed(comm))
    return found


def values_of(num_bytes: int, num_ranks: int) -> NDArray[Any]:
    """Zeros: they stay what they are however often they are added up. Their number is a multiple of the ranks."""
    num_values = max(num_bytes // 4, num_ranks)
    return np.zeros(num_values - num_values % num_ranks, np.float32)
