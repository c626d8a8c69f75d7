"""Gradients of the collectives: every rank has a loss of its own, whose gradient at its result is known to all."""

from __future__ import annotations

import torch
from hvd_common import expect_equal, of_all, of_rank, total
from torch import Tensor

import ringlet.torch as hvd


def leaf(rank: int | None = None, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> Tensor:
    return of_rank(hvd.rank() if rank is None else rank, shape, torch.float64, seed).requires_grad_()


def check_allreduce() -> None:
    for op, divisor in ((hvd.Sum, 1), (hvd.Average, hvd.size())):
        tensor = leaf()
        result = hvd.allreduce(tensor, op=op, prescale_factor=2.0, postscale_factor=4.0)
        result.backward(of_rank(hvd.rank(), (3, 4), torch.float64, seed=5))
        assert torch.allclose(tensor.grad, 8 * total(of_all(seed=5)) / divisor)


def check_grouped_allreduce() -> None:
    tensors = [leaf(seed=1), leaf(shape=(5,), seed=2)]
    one, two = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    (one.sum() * (hvd.rank() + 1) + two.sum() * 3).backward()
    ranks = hvd.size() * (hvd.size() + 1) / 2
    expect_equal(tensors[0].grad, torch.full((3, 4), ranks))
    expect_equal(tensors[1].grad, torch.full((5,), 3.0 * hvd.size()))


def check_minimum_and_maximum() -> None:
    """As autograd has it for the extreme of a stack, of whose ranks each sums up with other weights."""
    for op, extreme in ((hvd.Min, torch.amin), (hvd.Max, torch.amax)):
        tensor = leaf()
        hvd.allreduce(tensor, op=op).backward(of_rank(hvd.rank(), (3, 4), torch.float64, seed=5))
        stack = torch.stack([value.double() for value in of_all()]).requires_grad_()
        extreme(stack, 0).backward(total(of_all(seed=5)))
        assert torch.allclose(tensor.grad, stack.grad[hvd.rank()])


def check_product_with_zeros() -> None:
    tensor = leaf()
    hvd.allreduce(tensor, op=hvd.Product).backward(of_rank(hvd.rank(), (3, 4), torch.float64, seed=5))
    stack = torch.stack([value.double() for value in of_all()]).requires_grad_()
    stack.prod(0).backward(total(of_all(seed=5)))
    assert (stack == 0).any()
    assert torch.allclose(tensor.grad, stack.grad[hvd.rank()])


def check_allgather() -> None:
    """Averaged over ranks, then this rank's slice."""
    lengths = [rank + 1 for rank in range(hvd.size())]
    tensor = leaf(shape=(hvd.rank() + 1, 3))
    gathered = hvd.allgather(tensor)
    weights = of_all((sum(lengths), 3), torch.float64, seed=5)
    gathered.backward(weights[hvd.rank()])
    start = sum(lengths[: hvd.rank()])
    expected = (total(weights) / hvd.size())[start : start + lengths[hvd.rank()]]
    assert torch.allclose(tensor.grad, expected)
    tensors = [leaf(shape=(2, 2)), leaf(shape=(hvd.rank() + 1,))]
    one, two = hvd.grouped_allgather(tensors)
    (one.sum() + 2 * two.sum()).backward()
    expect_equal(tensors[0].grad, torch.ones(2, 2))
    expect_equal(tensors[1].grad, torch.full((hvd.rank() + 1,), 2.0))


def check_broadcast() -> None:
    root = hvd.size() - 1
    tensor = leaf()
    hvd.broadcast(tensor, root).backward(of_rank(hvd.rank(), (3, 4), torch.float64, seed=5))
    mean = total(of_all(seed=5)) / hvd.size()
    assert torch.allclose(tensor.grad, mean if hvd.rank() == root else torch.zeros_like(mean))


def check_alltoall() -> None:
    size, rank = hvd.size(), hvd.rank()
    tensor = leaf(shape=(size * (size + 1) // 2, 2))
    rows, received = hvd.alltoall(tensor, [place + 1 for place in range(size)])
    assert received.tolist() == [rank + 1] * size
    rows.backward(torch.full_like(rows, float(rank)))
    expected = torch.cat([torch.full((place + 1, 2), float(place)) for place in range(size)])
    expect_equal(tensor.grad, expected)
    tensor = leaf(shape=(size, 2))
    hvd.alltoall(tensor).backward(torch.full((size, 2), float(rank), dtype=torch.float64))
    expect_equal(tensor.grad, torch.arange(size)[:, None].expand(size, 2))


def check_reducescatter() -> None:
    size, rank = hvd.size(), hvd.rank()
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        tensor = leaf(shape=(2 * size, 2))
        part = hvd.reducescatter(tensor, op=op, prescale_factor=2.0)
        part.backward(torch.full_like(part, float(rank + 1)))
        expected = 2.0 * factor * (torch.arange(size).repeat_interleave(2) + 1)[:, None].expand(2 * size, 2)
        expect_equal(tensor.grad, expected)
    tensors = [leaf(shape=(size, 2)), leaf(shape=(2 * size,))]
    one, two = hvd.grouped_reducescatter(tensors, op=hvd.Average)
    (one.sum() + two.sum() * 3).backward()
    expect_equal(tensors[0].grad, torch.ones(size, 2))
    expect_equal(tensors[1].grad, torch.full((2 * size,), 3.0))


def check_through_compression() -> None:
    tensor = of_rank(hvd.rank()).requires_grad_()
    hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.bf16).sum().backward()
    expect_equal(tensor.grad, torch.full((3, 4), float(hvd.size())))


def check_second_derivatives() -> None:
    tensor = leaf()
    result = hvd.allreduce(tensor, op=hvd.Sum)
    (slope,) = torch.autograd.grad((result**3).sum(), tensor, create_graph=True)
    (slope.sum()).backward()
    expected = 6 * total(of_all()) * hvd.size() * hvd.size()
    assert torch.allclose(tensor.grad, expected)


def check_ranks_that_need_no_gradient_go_along() -> None:
    tensor = of_rank(hvd.rank()).requires_grad_(hvd.rank() == 0)
    expect_equal(hvd.allreduce(tensor, op=hvd.Sum).detach(), total(of_all()))
    expect_equal(hvd.allgather(tensor).detach(), torch.cat(of_all()))
    with torch.no_grad():
        assert not hvd.allreduce(tensor, op=hvd.Sum).requires_grad
