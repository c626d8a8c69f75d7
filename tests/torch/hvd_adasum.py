"""Adasum: of tensors by its formula, and of an optimizer's steps."""

from __future__ import annotations

import copy

import torch
from hvd_common import expect_close, expect_error, expect_same_everywhere, loss_of, make_batches, make_net, own, sgd
from torch import Tensor

import ringlet.torch as hvd


def combined(values: list[Tensor]) -> Tensor:
    """Pairs, then pairs of pairs: a' = (1 - a·b / (2 |a|²)) a + (1 - a·b / (2 |b|²)) b."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [_pair(one.double(), two.double()) for one, two in pairs]
    return values[0]


def _pair(a: Tensor, b: Tensor) -> Tensor:
    dot, squares = (a * b).sum(), [(a * a).sum(), (b * b).sum()]
    factors = [1 - dot / (2 * square) if square > 0 else torch.tensor(1.0) for square in squares]
    return factors[0] * a + factors[1] * b


def _is_possible() -> bool:
    return hvd.size() & (hvd.size() - 1) == 0


def _values(rank: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank))


def check_allreduce() -> None:
    everything = [_values(rank, (4, 3)) for rank in range(hvd.size())]
    if not _is_possible():
        expect_error(lambda: hvd.allreduce(everything[hvd.rank()], op=hvd.Adasum), "power of two")
        return
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10), (torch.bfloat16, 2e-2)):
        result = hvd.allreduce(everything[hvd.rank()].to(dtype), op=hvd.Adasum)
        assert torch.allclose(result.double(), combined([value.to(dtype) for value in everything]), rtol=tolerance)
        expect_same_everywhere([result])
    alike = hvd.allreduce(everything[0], op=hvd.Adasum)  # equal gradients are averaged
    assert torch.allclose(alike, everything[0], rtol=1e-5)


def check_optimizer() -> None:
    """Local steps are combined, tensor by tensor; compression and accumulation work."""
    batches = make_batches(4)
    if not _is_possible():
        expect_error(lambda: hvd.DistributedOptimizer(sgd(make_net().parameters()), op=hvd.Adasum), "power of two")
        return
    model = make_net()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), op=hvd.Adasum, backward_passes_per_step=2
    )
    assert isinstance(optimizer, torch.optim.SGD)
    twins = [copy.deepcopy(model) for _ in range(hvd.size())]
    optimizers = [sgd(twin.parameters()) for twin in twins]
    for window in (batches[:2], batches[2:]):
        optimizer.zero_grad(set_to_none=False)
        for x, y in window:
            loss_of(model, own(x), own(y)).backward()
        optimizer.step()
        starts = [parameter.detach().clone() for parameter in twins[0].parameters()]
        for rank, (twin, plain) in enumerate(zip(twins, optimizers, strict=True)):
            plain.zero_grad()
            part = slice(4 * rank, 4 * rank + 4)
            for x, y in window:
                loss_of(twin, x[part], y[part]).backward()
            plain.step()
        with torch.no_grad():
            for start, *parameters in zip(starts, *[twin.parameters() for twin in twins], strict=True):
                target = start + combined([parameter - start for parameter in parameters])
                for parameter in parameters:
                    parameter.copy_(target)
    expect_same_everywhere(model.parameters())
    expect_close(model, twins[0])


def check_optimizer_with_compression() -> None:
    if not _is_possible():
        return
    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), op=hvd.Adasum, compression=hvd.Compression.bf16)
    for x, y in make_batches(2):
        optimizer.zero_grad()
        loss_of(model, own(x), own(y)).backward()
        optimizer.step()
    expect_same_everywhere(model.parameters())


def check_what_does_not_go_with_it() -> None:
    if not _is_possible():
        return
    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), op=hvd.Adasum)
    ((x, y),) = make_batches(1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model, own(x), own(y))).backward()
    expect_error(lambda: scaler.step(optimizer), "does not work with op=Adasum", AssertionError)

    def skip() -> None:
        with optimizer.skip_synchronize():
            raise AssertionError("not reached")

    expect_error(skip, "cannot skip that", AssertionError)
    optimizer.synchronize()
