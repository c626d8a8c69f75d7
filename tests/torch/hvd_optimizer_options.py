"""The options of ``DistributedOptimizer``, mixed precision, sparse gradients, process sets, uneven data, wrong use."""

from __future__ import annotations

import copy

import pytest
import torch
from hvd_common import (
    expect_close,
    expect_error,
    expect_same_everywhere,
    loss_of,
    make_batches,
    make_net,
    own,
    sgd,
    train_alone,
    train_together,
)
from hvd_optimizer import small_buckets
from torch import nn

import ringlet.torch as hvd
from ringlet.named.horovod import Compressor


def check_sum_and_predivide_factor() -> None:
    batches = make_batches(3)
    model = make_net()
    alone = train_alone(model, sgd, batches)
    factor = 4.0
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), gradient_predivide_factor=factor
    )
    train_together(model, optimizer, batches)
    expect_same_everywhere(model.parameters())
    expect_close(model, alone)

    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), op=hvd.Sum)
    x, y = batches[0]
    loss_of(model, own(x), own(y)).backward()
    optimizer.synchronize()
    twin = make_net()
    loss_of(twin, x, y).backward()
    assert torch.allclose(model.last.bias.grad, hvd.size() * twin.last.bias.grad, atol=1e-6)
    for op in (hvd.Sum, hvd.Adasum):
        expect_error(
            lambda op=op: hvd.DistributedOptimizer(sgd(model.parameters()), op=op, gradient_predivide_factor=2.0),
            "works with op=Average only",
        )
    expect_error(lambda: hvd.DistributedOptimizer(sgd(model.parameters()), op=hvd.Max), "expected Average, Sum or")


def check_groups() -> None:
    batches = make_batches(3)
    for overlap in ("on", "off"):
        for choice in ("two", "more than parameters", "lists"):
            model = make_net()
            alone = train_alone(model, sgd, batches)
            lists = [[model.conv.weight, model.last.bias], list(model.hidden.parameters())]
            groups = {"two": 2, "more than parameters": 100, "lists": lists}[choice]
            optimizer = hvd.DistributedOptimizer(
                sgd(model.parameters()), model.named_parameters(), groups=groups, overlap=overlap
            )
            train_together(model, optimizer, batches)
            expect_same_everywhere(model.parameters())
            expect_close(model, alone)
    with pytest.warns(DeprecationWarning, match="num_groups"):
        hvd.DistributedOptimizer(sgd(model.parameters()), num_groups=2)
    for groups in (-1, "two", [model.conv.weight], [[1.0]]):
        expect_error(lambda groups=groups: hvd.DistributedOptimizer(sgd(model.parameters()), groups=groups), "groups=")
    doubled = [[model.conv.weight], [model.conv.weight]]
    expect_error(lambda: hvd.DistributedOptimizer(sgd(model.parameters()), groups=doubled), "in several groups")


class Signs(Compressor):
    """A compressor of a user: signs in int8."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, object]:
        return tensor.sign().to(torch.int8), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: torch.dtype) -> torch.Tensor:
        return tensor.to(ctx)


def check_compression() -> None:
    batches = make_batches(4)
    for compression, tolerance in ((hvd.Compression.fp16, 1e-3), (hvd.Compression.bf16, 1e-2)):
        for overlap in ("on", "off"):
            model = make_net()
            alone = train_alone(model, sgd, batches)
            optimizer = hvd.DistributedOptimizer(
                sgd(model.parameters()), model.named_parameters(), compression=compression, overlap=overlap
            )
            train_together(model, optimizer, batches)
            assert model.last.weight.grad.dtype is torch.float32
            expect_same_everywhere(model.parameters())
            expect_close(model, alone, tolerance)


def check_compressors_of_users() -> None:
    ((x, y),) = make_batches(1)
    model = make_net()
    twins = [make_net() for _ in range(hvd.size())]
    for rank, twin in enumerate(twins):
        part = slice(4 * rank, 4 * rank + 4)
        loss_of(twin, x[part], y[part]).backward()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), compression=Signs, op=hvd.Sum)
    loss_of(model, own(x), own(y)).backward()
    optimizer.synchronize()
    expected = torch.stack([twin.last.weight.grad.sign() for twin in twins]).sum(0)
    assert torch.equal(model.last.weight.grad, expected)


def check_names() -> None:
    model = make_net()
    named = list(model.named_parameters())
    expect_error(
        lambda: hvd.DistributedOptimizer(sgd(model.parameters()), [*named, named[0]]), "conv.weight appear more than"
    )
    expect_error(lambda: hvd.DistributedOptimizer(sgd(model.parameters()), named[1:]), "not in named_parameters")
    expect_error(
        lambda: hvd.DistributedOptimizer(sgd(model.parameters()), model.parameters()), "pairs (name, parameter)"
    )
    expect_error(lambda: hvd.DistributedOptimizer(sgd(model.parameters()), overlap="maybe"), "overlap='maybe'")


def check_models_that_differ_between_ranks() -> None:
    layer = nn.Linear(3, 4 if hvd.rank() == 0 else 5)
    message = expect_error(lambda: hvd.DistributedOptimizer(sgd(layer.parameters())), "parameters of the distributed")
    assert "[4, 3]" in message
    assert "[5, 3]" in message
    layer = nn.Linear(3, 4)
    op = hvd.Sum if hvd.rank() == 0 else hvd.Average
    expect_error(lambda: hvd.DistributedOptimizer(sgd(layer.parameters()), op=op), "options of the distributed")
    more = [nn.Linear(2, 2) for _ in range(1 + (hvd.rank() > 0))]
    parameters = [parameter for layer in more for parameter in layer.parameters()]
    expect_error(lambda: hvd.DistributedOptimizer(sgd(parameters)), "no more")


class Bag(nn.Module):
    """Embeddings with sparse gradients, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embedding = nn.Embedding(10, 3, sparse=True)
        self.dense = nn.Linear(3, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.dense(self.embedding(words).mean(1))


def _words(step: int, rank: int) -> torch.Tensor:
    return torch.randint(0, 10, (4, 5), generator=torch.Generator().manual_seed(100 * step + rank))


def check_sparse_gradients() -> None:
    for options in ({}, {"sparse_as_dense": True}, {"overlap": "on"}, {"op": hvd.Sum, "overlap": "on"}):
        model = Bag()
        alone = copy.deepcopy(model)
        rate = 0.5
        plain = torch.optim.SGD(alone.parameters(), rate * (hvd.size() if "op" in options else 1))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), rate), model.named_parameters(), **options
        )
        for step in range(4):
            plain.zero_grad()
            alone(torch.cat([_words(step, rank) for rank in range(hvd.size())])).square().mean().backward()
            plain.step()
            optimizer.zero_grad()
            model(_words(step, hvd.rank())).square().mean().backward()
            optimizer.step()
            assert model.embedding.weight.grad.is_sparse
        expect_same_everywhere(model.parameters())
        expect_close(model, alone)


def check_sparse_gradients_that_travel_as_dense_ones_suit_optimizers_of_sparse_ones() -> None:
    table = nn.Embedding(10, 3, sparse=True, _weight=torch.arange(30.0).reshape(10, 3))
    alone = copy.deepcopy(table)
    plain = torch.optim.SparseAdam(alone.parameters(), 0.1)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SparseAdam(table.parameters(), 0.1), table.named_parameters(), sparse_as_dense=True
    )
    for step in range(3):
        plain.zero_grad()
        alone(torch.cat([_words(step, rank) for rank in range(hvd.size())])).sum().div(hvd.size()).backward()
        plain.step()
        optimizer.zero_grad()
        table(_words(step, hvd.rank())).sum().backward()
        optimizer.step()
    expect_same_everywhere(table.parameters())
    expect_close(table, alone)


def check_sparse_gradients_on_some_ranks_only() -> None:
    """Rank 0 uses the embedding later than the others, which the others cannot know."""
    model = Bag()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    for step in range(3):
        optimizer.zero_grad()
        if hvd.rank() > 0 or step == 2:
            model(_words(step, hvd.rank())).sum().backward()
        else:
            model.dense(torch.ones(2, 3)).sum().backward()
        optimizer.step()
        assert model.embedding.weight.grad.is_sparse
        expect_same_everywhere(model.parameters())


# -- mixed precision --------------------------------------------------------------------------------------------------
def _scaler(**options: float) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3, **options)


def check_grad_scaler() -> None:
    """The plain recipe: scale, backward, step, update. The scaled gradients are exchanged before they are unscaled."""
    batches = make_batches(6)
    makers = (sgd, lambda parameters: torch.optim.Adam(parameters, 0.01, fused=True))
    for make in makers:
        for overlap in ("on", "off"):
            model = make_net()
            alone = train_alone(model, make, batches)
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), overlap=overlap)
            scaler = _scaler()
            for x, y in batches:
                optimizer.zero_grad()
                scaler.scale(loss_of(model, own(x), own(y))).backward()
                scaler.step(optimizer)
                scaler.update()
            expect_same_everywhere(model.parameters())
            expect_close(model, alone, 1e-4)


def check_one_ranks_overflow_skips_the_step_on_all() -> None:
    batches = make_batches(3)
    for make in (sgd, lambda parameters: torch.optim.AdamW(parameters, 0.01, fused=True)):
        model = make_net()
        optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters())
        scaler = _scaler()
        for step, (x, y) in enumerate(batches):
            before = model.last.weight.detach().clone()
            optimizer.zero_grad()
            factor = float("inf") if step == 1 and hvd.rank() == hvd.size() - 1 else 1.0
            scaler.scale(loss_of(model, own(x), own(y)) * factor).backward()
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(before, model.last.weight) == (step == 1)
        assert scaler.get_scale() == 512.0
        expect_same_everywhere([*model.parameters(), torch.tensor(scaler.get_scale())])
        assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def check_grad_scaler_with_clipping_and_autocast() -> None:
    batches = make_batches(4)
    model = make_net()
    alone = copy.deepcopy(model)
    plain = sgd(alone.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    scalers = _scaler(), _scaler()
    for x, y in batches:
        plain.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(alone, x, y)
        scalers[0].scale(loss).backward()
        scalers[0].unscale_(plain)
        nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        scalers[0].step(plain)
        scalers[0].update()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, own(x), own(y))
        scalers[1].scale(loss).backward()
        scalers[1].unscale_(optimizer)  # exchanges
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scalers[1].step(optimizer)
        scalers[1].update()
    expect_same_everywhere(model.parameters())
    expect_close(model, alone, 2e-2)


def check_grad_scaler_with_horovods_recipe_and_a_partial_window() -> None:
    batches = make_batches(3)
    model = make_net()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=2, overlap="on"
    )
    scaler = _scaler()
    for window in (batches[:2], batches[2:]):
        optimizer.zero_grad()
        for x, y in window:
            scaler.scale(loss_of(model, own(x), own(y))).backward()
        if len(window) == 2:
            optimizer.synchronize()
            scaler.unscale_(optimizer)
            with optimizer.skip_synchronize():
                scaler.step(optimizer)
        else:
            scaler.step(optimizer)
        scaler.update()
    alone = make_net()
    plain = sgd(alone.parameters())
    for window in (batches[:2], batches[2:]):
        plain.zero_grad()
        for x, y in window:
            loss_of(alone, x, y).backward()
        plain.step()
    expect_same_everywhere(model.parameters())
    expect_close(model, alone)


# -- not all ranks alike ----------------------------------------------------------------------------------------------
def check_process_sets() -> None:
    """Rank 0 is not in the set: it has a plain optimizer."""
    members = list(range(1, hvd.size()))
    process_set = hvd.add_process_set(members)
    batches = make_batches(3)
    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), process_set=process_set)
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(model, own(x), own(y)).backward()
        optimizer.step()
    mine = members if hvd.rank() else [0]
    parts = [
        (torch.cat([x[4 * r : 4 * r + 4] for r in mine]), torch.cat([y[4 * r : 4 * r + 4] for r in mine]))
        for x, y in batches
    ]
    expect_close(model, train_alone(make_net(), sgd, parts))
    hvd.remove_process_set(process_set)


def check_uneven_batches_with_join() -> None:
    """Rank r has r + 2 batches. Who has joined counts with zeros; the last one's state is taken over."""
    for overlap in ("on", "off"):
        model = make_net()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap=overlap)
        batches = make_batches(hvd.size() + 1)
        for step, (x, y) in enumerate(hvd.uneven(batches[: hvd.rank() + 2], model, optimizer)):
            optimizer.zero_grad()
            loss_of(model, own(x), own(y)).backward()
            optimizer.step()
            num_there = sum(step < rank + 2 for rank in range(hvd.size()))
            assert num_there >= 1
        expect_same_everywhere([*model.parameters(), *(state["momentum_buffer"] for state in optimizer.state.values())])
        alone = make_net()
        plain = sgd(alone.parameters())
        for step, (x, y) in enumerate(batches):
            plain.zero_grad()
            for rank in range(hvd.size()):
                if step < rank + 2:
                    part = slice(4 * rank, 4 * rank + 4)
                    (loss_of(alone, x[part], y[part]) / hvd.size()).backward()
            plain.step()
        expect_close(model, alone)
        train_together(model, optimizer, make_batches(1))
        expect_same_everywhere(model.parameters())


def check_many_steps_with_small_buckets() -> None:
    """Fifty steps in a row without anything in between: no names or buffers get mixed up."""
    batches = make_batches(5)
    model = make_net()
    alone = train_alone(model, sgd, batches * 10)
    with small_buckets():
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), overlap="on")
    train_together(model, optimizer, batches * 10)
    expect_same_everywhere(model.parameters())
    expect_close(model, alone, 1e-3)
