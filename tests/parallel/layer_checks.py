"""Checks of particular layouts: run by test_comm_layers.py on real ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from checks import CHECKS

from ringlet.comm import layered, mpi, torch_distributed
from ringlet.comm.contract import Communicator, Op
from ringlet.errors import CommunicationError

SELECTION = (
    "allreduce_of_float16",
    "allreduce_of_float32",
    "allreduce_of_bool",
    "random_reductions",
    "large_arrays",
    "float16_is_accumulated_in_float32",
    "same_bits_on_all_ranks",
    "broadcast_of_any_shape",
    "random_moves",
    "barrier_waits_for_all",
    "started_and_called_collectives_may_be_out_of_step",
    "groups_keep_the_given_order",
    "groups_of_groups",
)


def _all_numbers(comm: Communicator) -> None:
    """A selection of checks that use every path of a communicator."""
    for name in SELECTION:
        CHECKS[name](comm)


def _mpi_wire() -> mpi.MpiWire:
    return mpi.MpiWire(mpi._load_mpi().COMM_WORLD.Dup())


def machines_in_turn(comm: Communicator) -> list[list[int]]:
    """Ranks dealt to machines like cards: neighbours in rank are on different machines."""
    dealt = layered.LayeredCommunicator(_mpi_wire(), [rank % 2 for rank in range(comm.size)])
    _all_numbers(dealt)
    return [list(dealt.local_sizes), [dealt.node, dealt.local_rank, dealt.cross.size]]


def small_pieces(comm: Communicator) -> bool:
    """Everything again, in pieces of 1000 elements or bytes, as if arrays were larger than MPI can count."""
    mpi.MAX_COUNT = 1000
    _all_numbers(comm)
    CHECKS["allgather_of_large_arrays"](comm)
    return True


def without_shared_memory(comm: Communicator) -> list[Any]:
    """The last rank cannot attach: its machine falls apart into single ranks, with a warning there, and all works."""

    def refuse(token: bytes) -> Any:
        raise CommunicationError("this rank lives elsewhere")

    if comm.rank == comm.size - 1:
        layered.attach_segment = refuse
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        apart = layered.LayeredCommunicator(_mpi_wire(), [0, *[1] * (comm.size - 1)])
    _all_numbers(apart)
    return [list(apart.local_sizes), [str(warning.message) for warning in caught]]


def part_of_the_world(comm: Communicator) -> list[int]:
    """A communicator from an mpi4py communicator of some ranks."""
    MPI = mpi._load_mpi()  # noqa: N806
    half = MPI.COMM_WORLD.Split(comm.rank % 2, -comm.rank)
    ours = mpi.mpi_communicator(half, ranks_per_node=1)
    return [ours.rank, ours.size, int(ours.allreduce(np.array([comm.rank]))[0]), len(ours.local_sizes)]


def beside_the_users_own_group(comm: Communicator) -> list[int]:
    """A program that has initialised torch.distributed itself: its group and ours do not disturb each other."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    chosen = distributed.new_group([0, 2])
    mine = torch.full((3,), float(comm.rank))
    ours = torch_distributed.join_torch()
    distributed.all_reduce(mine)
    sums = [int(mine[0]), int(ours.allreduce(np.array([comm.rank]))[0])]
    if comm.rank in (0, 2):
        part = torch_distributed.torch_communicator(chosen)
        sums.append(int(part.allreduce(np.array([comm.rank + 1]), Op.SUM)[0]))
    ours.barrier()
    return sums
