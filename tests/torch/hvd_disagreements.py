"""Ranks that do not agree get an error on all of them, and the next operation works."""

from __future__ import annotations

import torch
from hvd_common import expect_equal, expect_error, of_all, of_rank, total

import ringlet.torch as hvd


def _next_works() -> None:
    expect_equal(hvd.allreduce(of_rank(hvd.rank()), op=hvd.Sum), total(of_all()))


def check_shapes() -> None:
    tensor = torch.ones(3 + hvd.rank() % 2)
    message = expect_error(lambda: hvd.allreduce(tensor, name="shapes"), "do not fit together")
    assert "(3,)" in message
    assert "(4,)" in message
    _next_works()
    expect_error(lambda: hvd.allgather(torch.ones(2, 3 + hvd.rank() % 2)), "do not fit together")
    _next_works()
    expect_error(lambda: hvd.broadcast(tensor, 0), "do not fit together")
    _next_works()


def check_dtypes() -> None:
    tensor = torch.ones(3, dtype=torch.float32 if hvd.rank() else torch.float64)
    expect_error(lambda: hvd.allreduce(tensor), "float64")
    _next_works()
    handle = hvd.allreduce_async(tensor, name="later")
    expect_error(lambda: hvd.synchronize(handle), "float64", RuntimeError)  # it is both kinds of errors
    _next_works()


def check_scales_operations_and_roots() -> None:
    rank = hvd.rank()
    expect_error(lambda: hvd.allreduce(torch.ones(3), op=hvd.Sum, prescale_factor=1.0 + rank % 2), "scaled by")
    expect_error(lambda: hvd.allreduce(torch.ones(3), op=hvd.Sum if rank else hvd.Max), "op max")
    expect_error(lambda: hvd.broadcast(torch.ones(3), rank % 2), "root 1")
    expect_error(lambda: hvd.broadcast(torch.ones(3), hvd.size()), f"root {hvd.size()}")
    _next_works()


def check_kinds() -> None:
    def call() -> None:
        if hvd.rank():
            hvd.allreduce(torch.ones(2), name="kind")
        else:
            hvd.allgather(torch.ones(2), name="kind")

    expect_error(call, "do not fit together")
    _next_works()


def check_splits() -> None:
    splits = [1] * hvd.size()
    splits[0] += hvd.rank()  # too many on all but rank 0
    expect_error(lambda: hvd.alltoall(torch.ones(hvd.size(), 2), splits), "do not fit")
    _next_works()


def check_members_of_groups() -> None:
    tensors = [torch.ones(2)] * (2 + hvd.rank() % 2)
    expect_error(lambda: hvd.grouped_allreduce(tensors), "do not fit together")
    _next_works()


def check_one_name_twice_in_flight() -> None:
    handle = hvd.allreduce_async(torch.ones(2), name="twice")
    # Nobody has waited: with luck the first has finished already, so it is held back by a rank that is late.
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(2), name="held back")
        expect_error(lambda: hvd.allreduce_async(torch.ones(2), name="held back"), "already under way")
        hvd.barrier()
        hvd.synchronize(first)
    else:
        hvd.barrier()
        hvd.allreduce(torch.ones(2), name="held back")
    hvd.synchronize(handle)
    _next_works()


def check_things_that_are_no_tensors() -> None:
    expect_error(lambda: hvd.allreduce_([1.0, 2.0]), "expected a tensor, not list")
    expect_error(lambda: hvd.allreduce(torch.ones(2).to_sparse()), "cannot travel as it is")
    expect_error(lambda: hvd.broadcast(torch.ones(2, dtype=torch.float8_e5m2), 0), "float8_e5m2 cannot travel")
    _next_works()
