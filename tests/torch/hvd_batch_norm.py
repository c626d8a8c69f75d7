"""``SyncBatchNorm`` is ``BatchNorm`` over the joined batch: results, gradients, running statistics."""

from __future__ import annotations

import copy
from typing import Any

import torch
from hvd_common import expect_error, expect_same_everywhere
from torch import Tensor, nn

import ringlet.torch as hvd

FORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def batch(rank: int, num_samples: int, space: tuple[int, ...], dtype: torch.dtype, shift: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return (shift + torch.randn(num_samples, 4, *space, generator=generator, dtype=torch.float64)).to(dtype)


def compare(
    sizes: list[int], space: tuple[int, ...], dtype: torch.dtype, tolerance: float, shift: float = 3.0, **options: Any
) -> None:
    """Two steps of training, then evaluation, beside one process with all batches."""
    layer = hvd.SyncBatchNorm(4, **options).to(dtype)
    joint = FORMS[max(len(space), 1)](4, **options).to(dtype)
    if layer.affine:
        torch.manual_seed(0)
        nn.init.normal_(layer.weight)
        nn.init.normal_(layer.bias)
    joint.load_state_dict(layer.state_dict())
    start = sum(sizes[: hvd.rank()])
    mine = slice(start, start + sizes[hvd.rank()])
    for step in range(2):
        everything = torch.cat([batch(10 * step + r, size, space, dtype, shift) for r, size in enumerate(sizes)])
        slopes = torch.randn(everything.shape, generator=torch.Generator().manual_seed(99), dtype=torch.float64).to(
            dtype
        )
        x, whole = everything[mine].clone().requires_grad_(), everything.clone().requires_grad_()
        y, expected = layer(x), joint(whole)
        assert torch.allclose(y, expected[mine], rtol=tolerance, atol=tolerance)
        y.backward(slopes[mine])
        expected.backward(slopes)
        assert torch.allclose(x.grad, whole.grad[mine], rtol=tolerance, atol=tolerance)
    if layer.affine:
        for name in ("weight", "bias"):
            summed = hvd.allreduce(getattr(layer, name).grad, op=hvd.Sum)
            assert torch.allclose(summed, getattr(joint, name).grad, rtol=10 * tolerance, atol=10 * tolerance), name
    for (name, value), other in zip(layer.named_buffers(), joint.buffers(), strict=True):
        assert torch.allclose(value, other, rtol=tolerance, atol=tolerance), name
    expect_same_everywhere([buffer.double() for buffer in layer.buffers()] or [torch.zeros(1)])
    layer.eval()
    joint.eval()
    if joint.running_mean is not None:
        mine_now, expected = layer(everything[mine]), joint(everything)[mine]
        assert torch.allclose(mine_now, expected, rtol=tolerance, atol=tolerance)


def check_every_number_of_dimensions() -> None:
    sizes = [4] * hvd.size()
    for space in ((), (5,), (3, 2), (2, 3, 2)):
        compare(sizes, space, torch.float32, 2e-5)
        compare(sizes, space, torch.float64, 1e-12)


def check_options() -> None:
    sizes = [4] * hvd.size()
    for options in (
        {"affine": False},
        {"momentum": None},
        {"momentum": 0.5, "eps": 0.1},
        {"track_running_stats": False},
    ):
        compare(sizes, (3, 2), torch.float32, 2e-5, **options)


def check_batches_of_different_sizes() -> None:
    sizes = [2 + 3 * rank for rank in range(hvd.size())]
    compare(sizes, (3, 2), torch.float64, 1e-12)
    compare(sizes, (3, 2), torch.float32, 2e-5)
    compare([0 if rank == 0 else 6 for rank in range(hvd.size())], (3, 2), torch.float64, 1e-12)


def check_large_means_lose_no_digits() -> None:
    compare([6] * hvd.size(), (3, 2), torch.float64, 1e-6, shift=1e6)


def check_low_precision() -> None:
    compare([4] * hvd.size(), (3, 2), torch.bfloat16, 5e-2)


def check_channels_last_in_a_network() -> None:
    torch.manual_seed(2)
    plain = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Sequential(nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2))
    )
    plain = plain.to(memory_format=torch.channels_last)
    model = hvd.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(plain))
    assert sum(isinstance(module, hvd.SyncBatchNorm) for module in model.modules()) == 2
    x = torch.randn(4 * hvd.size(), 2, 6, 6, generator=torch.Generator().manual_seed(3))
    x = x.to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    alone = torch.optim.SGD(plain.parameters(), 0.1)
    for _ in range(3):
        alone.zero_grad()
        plain(x).square().mean().backward()
        alone.step()
        optimizer.zero_grad()
        model(x[4 * hvd.rank() : 4 * hvd.rank() + 4]).square().mean().backward()
        optimizer.step()
    expect_same_everywhere([*model.parameters(), *(buffer.double() for buffer in model.buffers())])
    for mine, theirs in zip(model.state_dict().values(), plain.state_dict().values(), strict=True):
        assert torch.allclose(mine.double(), theirs.double(), rtol=1e-4, atol=1e-5)


def check_a_rank_that_has_joined_counts_with_no_samples() -> None:
    layer = hvd.SyncBatchNorm(4)
    if hvd.rank() > 0:
        x = batch(hvd.rank(), 4, (), torch.float32)
        others = torch.cat([batch(rank, 4, (), torch.float32) for rank in range(1, hvd.size())])
        assert torch.allclose(layer(x), nn.BatchNorm1d(4)(others)[4 * (hvd.rank() - 1) : 4 * hvd.rank()], atol=1e-5)
    hvd.join()


def check_wrong_inputs() -> None:
    layer = hvd.SyncBatchNorm(4)
    expect_error(lambda: layer(torch.ones(3, 5)), "expected (N, 4, …)")
    x = torch.ones(1 if hvd.rank() == 0 else 0, 4)
    expect_error(lambda: layer(x), "expected more than one")
    assert torch.allclose(layer(torch.ones(2, 4)), torch.zeros(2, 4), atol=1e-3)
