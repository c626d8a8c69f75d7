"""``DistributedOptimizer`` trains as one process does on the joined batch, and leaves the same bits on all ranks."""

from __future__ import annotations

import copy
import gc
import inspect
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from hvd_common import (
    LOCAL_BATCH,
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
from torch import nn

import ringlet.torch as hvd
from ringlet.torch import exchange


@contextmanager
def small_buckets() -> Iterator[None]:
    """Every parameter in a bucket of its own."""
    kept, exchange.BUCKET_BYTES = exchange.BUCKET_BYTES, 1
    try:
        yield
    finally:
        exchange.BUCKET_BYTES = kept


def check_trains_like_one_process() -> None:
    makers = (
        sgd,
        lambda parameters: torch.optim.SGD(parameters, 0.1, nesterov=True, momentum=0.5),
        lambda parameters: torch.optim.Adam(parameters, 0.01, weight_decay=0.1),
        lambda parameters: torch.optim.AdamW(parameters, 0.01, fused=True),
        lambda parameters: torch.optim.RMSprop(parameters, 0.01, foreach=True),
    )
    batches = make_batches(4)
    for make in makers:
        for overlap in ("on", "off", "auto"):
            model = make_net()
            alone = train_alone(model, make, batches)
            optimizer = hvd.DistributedOptimizer(make(model.parameters()), model.named_parameters(), overlap=overlap)
            train_together(model, optimizer, batches)
            expect_same_everywhere(model.parameters())
            expect_close(model, alone, 1e-4)


def check_many_buckets() -> None:
    batches = make_batches(3)
    model = make_net()
    alone = train_alone(model, sgd, batches)
    with small_buckets():
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), overlap="on")
    train_together(model, optimizer, batches)
    expect_same_everywhere(model.parameters())
    expect_close(model, alone)


def check_gradients_are_averages() -> None:
    (batch,) = make_batches(1)
    model = make_net()
    alone = copy.deepcopy(model)
    loss_of(alone, *batch).backward()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    loss_of(model, own(batch[0]), own(batch[1])).backward()
    optimizer.synchronize()
    for mine, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(mine.grad, theirs.grad, atol=1e-6)


def check_is_an_instance_of_the_users_class() -> None:
    model = make_net()
    plain = sgd(model.parameters())
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD)
    assert type(optimizer).__name__ == "SGD"
    assert optimizer.param_groups is plain.param_groups
    assert optimizer.defaults == plain.defaults
    assert "SGD" in repr(optimizer)
    copied = copy.deepcopy(optimizer)
    assert isinstance(copied, torch.optim.SGD)
    copied.zero_grad()
    copied.step()  # by itself
    expect_error(lambda: hvd.DistributedOptimizer(optimizer), "distributed already")
    signature = inspect.signature(optimizer.step)
    assert "closure" in signature.parameters


def check_state_of_the_given_optimizer_is_kept() -> None:
    batches = make_batches(4)
    model = make_net()
    alone = train_alone(model, sgd, batches)
    plain = sgd(model.parameters())
    for x, y in batches[:2]:  # every rank the same
        plain.zero_grad()
        loss_of(model, x, y).backward()
        plain.step()
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    optimizer.zero_grad()
    train_together(model, optimizer, batches[2:])
    expect_close(model, alone)


def check_learning_rate_schedules_before_and_after() -> None:
    batches = make_batches(4)
    for early in (True, False):
        rates = []
        model = make_net()
        plain = sgd(model.parameters())
        scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5) if early else None
        optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
        scheduler = scheduler or torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for batch in batches:
            train_together(model, optimizer, [batch])
            scheduler.step()  # a warning would be an error
            rates.append(optimizer.param_groups[0]["lr"])
        assert rates == [0.05, 0.025, 0.0125, 0.00625]
        expect_same_everywhere(model.parameters())


def check_hooks_of_steps_run_once() -> None:
    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.load_state_dict(optimizer.state_dict())  # PyTorch wraps ``step`` again then
    train_together(model, optimizer, make_batches(2))
    assert calls == ["before", "after"] * 2


def check_channels_last() -> None:
    batches = make_batches(4)
    for overlap in ("on", "off"):
        model = make_net(channels_last=True)
        alone = train_alone(model, sgd, batches)
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap=overlap)
        train_together(model, optimizer, [(x.to(memory_format=torch.channels_last), y) for x, y in batches])
        assert model.conv.weight.stride() == alone.conv.weight.stride()
        assert not model.conv.weight.is_contiguous()
        assert model.conv.weight.grad.stride() == model.conv.weight.stride()
        expect_same_everywhere(model.parameters())
        expect_close(model, alone)


def check_layouts_that_differ_between_ranks() -> None:
    batches = make_batches(3)
    model = make_net(channels_last=hvd.rank() == 0)
    alone = train_alone(model, sgd, batches)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    train_together(model, optimizer, batches)
    expect_same_everywhere(model.parameters())
    expect_close(model, alone)


def check_zero_grad_with_and_without_none() -> None:
    batches = make_batches(4)
    for options in ({"set_to_none": True}, {"set_to_none": False}, {}):
        model = make_net()
        alone = train_alone(model, sgd, batches)
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
        for x, y in batches:
            optimizer.zero_grad(**options)
            is_none = [parameter.grad is None for parameter in model.parameters()]
            assert all(is_none) if options.get("set_to_none", True) else True
            loss_of(model, own(x), own(y)).backward()
            optimizer.step()
        if options == {"set_to_none": False}:
            optimizer.zero_grad(set_to_none=False)
            assert all(not parameter.grad.any() for parameter in model.parameters())
        expect_same_everywhere(model.parameters())
        expect_close(model, alone)


def check_zero_grad_too_early_raises() -> None:
    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    ((x, y),) = make_batches(1)
    loss_of(model, own(x), own(y)).backward()
    expect_error(optimizer.zero_grad, "after backward() but before step()", AssertionError)
    optimizer.synchronize()
    optimizer.zero_grad()
    train_together(model, optimizer, make_batches(1))
    expect_same_everywhere(model.parameters())


def check_changing_gradients_before_the_exchange_raises() -> None:
    for overlap in ("on", "off"):
        model = make_net()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap=overlap)
        ((x, y),) = make_batches(1)
        loss_of(model, own(x), own(y)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        expect_error(optimizer.step, "call optimizer.synchronize() first", AssertionError)
        hvd.barrier()
        for parameter in model.parameters():
            parameter.grad = None
        train_together(model, optimizer, make_batches(2))
        expect_same_everywhere(model.parameters())


def check_clipping() -> None:
    batches = make_batches(4)
    model = make_net()
    alone = copy.deepcopy(model)
    plain = sgd(alone.parameters())
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for x, y in batches:
        plain.zero_grad()
        loss_of(alone, x, y).backward()
        nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        plain.step()
        optimizer.zero_grad()
        loss_of(model, own(x), own(y)).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with optimizer.skip_synchronize():
            optimizer.step()
    expect_same_everywhere(model.parameters())
    expect_close(model, alone)


def check_a_step_after_synchronize_exchanges_nothing_again() -> None:
    batches = make_batches(2)
    model = make_net()
    alone = train_alone(model, sgd, batches)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(model, own(x), own(y)).backward()
        if hvd.rank() == 0:  # ranks need not do the same
            optimizer.synchronize()
        optimizer.step()
    expect_same_everywhere(model.parameters())
    expect_close(model, alone)


def check_accumulation() -> None:
    """Gradients of passes are summed, not divided; the rest of an epoch is exchanged by ``step``."""
    num_passes = 3
    batches = make_batches(2 * num_passes + 2)
    windows = [batches[0:3], batches[3:6], batches[6:8]]
    for overlap in ("on", "off"):
        model = make_net()
        alone = copy.deepcopy(model)
        plain = sgd(alone.parameters())
        for window in windows:
            plain.zero_grad()
            for x, y in window:
                loss_of(alone, x, y).backward()
            plain.step()
        optimizer = hvd.DistributedOptimizer(
            sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=num_passes, overlap=overlap
        )
        for window in windows:
            optimizer.zero_grad()
            for x, y in window:
                loss_of(model, own(x), own(y)).backward()
                _ = optimizer.param_groups[0]["lr"]  # looking at options in between changes nothing
            optimizer.step()
        expect_same_everywhere(model.parameters())
        expect_close(model, alone)


def check_windows_that_end_differently_on_ranks() -> None:
    """One rank has seen two batches, the others one: their gradients are summed as they are."""
    batches = make_batches(2)
    model = make_net()
    optimizer = hvd.DistributedOptimizer(
        sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=2, overlap="on"
    )
    optimizer.zero_grad()
    for x, y in batches[: 2 if hvd.rank() == 0 else 1]:
        loss_of(model, own(x), own(y)).backward()
    optimizer.step()
    expect_same_everywhere(model.parameters())


def check_too_many_passes_raise() -> None:
    ((x, y),) = make_batches(1)
    for num_passes in (1, 2):
        model = make_net()
        optimizer = hvd.DistributedOptimizer(
            sgd(model.parameters()), model.named_parameters(), backward_passes_per_step=num_passes
        )
        for _ in range(num_passes):
            loss_of(model, own(x), own(y)).backward()
        loss = loss_of(model, own(x), own(y))
        expect_error(loss.backward, f"more than backward_passes_per_step={num_passes} times", AssertionError)
    optimizer.set_backward_passes_per_step(1)
    expect_error(lambda: hvd.DistributedOptimizer(sgd(model.parameters()), backward_passes_per_step=0), "at least 1")


class Choosy(nn.Module):
    """Uses one of its layers; another is never used."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.ModuleList(nn.Linear(4, 2) for _ in range(4))

    def forward(self, x: torch.Tensor, choice: int) -> torch.Tensor:
        return self.layers[choice](x)


def check_missing_gradients_count_as_zeros() -> None:
    """Every rank uses another layer; nobody hangs, and all end with the same weights."""
    with small_buckets():
        for overlap in ("on", "off"):
            model = Choosy()
            optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap=overlap)
            for step in range(4):
                optimizer.zero_grad(set_to_none=step % 2 == 0)
                choice = (hvd.rank() + step) % 3
                model(torch.full((2, 4), 1.0 + step), choice).sum().backward()
                optimizer.synchronize()
                users = [rank for rank in range(hvd.size()) if (rank + step) % 3 == 0]
                expected = torch.full((2,), 2.0 * len(users) / hvd.size())
                assert torch.allclose(model.layers[0].bias.grad, expected)
                assert torch.equal(model.layers[3].bias.grad, torch.zeros(2))
                with optimizer.skip_synchronize():
                    optimizer.step()
            expect_same_everywhere(model.parameters())


def check_a_rank_without_a_batch_may_step() -> None:
    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    ((x, y),) = make_batches(1)
    optimizer.zero_grad()
    if hvd.rank() > 0:
        loss_of(model, own(x), own(y)).backward()
    optimizer.step()
    expect_same_everywhere(model.parameters())


def check_backward_orders_that_differ() -> None:
    """The layers' gradients come in another order on every rank."""
    with small_buckets():
        model = Choosy()
        optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters(), overlap="on")
    for _ in range(3):
        optimizer.zero_grad()
        order = [0, 1, 2] if hvd.rank() % 2 else [2, 0, 1]
        for choice in order:
            model(torch.ones(2, 4), choice).sum().backward()
        optimizer.step()
    expect_same_everywhere(model.parameters())


def check_mixed_dtypes_and_shared_parameters() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(5)
            self.low = nn.Linear(6, 6).bfloat16()
            self.high = nn.Linear(6, 6).double()
            self.plain = nn.Linear(6, 6)
            self.tied = nn.Linear(6, 6)
            self.tied.weight = self.plain.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.tied(self.plain(x))
            return self.low(x.bfloat16()).float() + self.high(x.double()).float()

    model = Mixed()
    alone = copy.deepcopy(model)
    plain = torch.optim.SGD(alone.parameters(), 0.05)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.05), model.named_parameters())
    x = torch.randn(LOCAL_BATCH * hvd.size(), 6, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        plain.zero_grad()
        alone(x).square().mean().backward()
        plain.step()
        optimizer.zero_grad()
        model(own(x)).square().mean().backward()
        optimizer.step()
    expect_same_everywhere(model.parameters())
    expect_close(model, alone, 2e-2)


def check_a_bfloat16_model() -> None:
    batches = [(x.bfloat16(), y.bfloat16()) for x, y in make_batches(4)]
    model = make_net(dtype=torch.bfloat16)
    alone = train_alone(model, sgd, batches)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    train_together(model, optimizer, batches)
    assert model.last.weight.grad.dtype is torch.bfloat16
    expect_same_everywhere(model.parameters())
    expect_close(model, alone, 5e-2)


def check_closures_see_the_loss_and_gradients_of_all() -> None:
    """L-BFGS with a line search, which would go apart if ranks saw different losses."""
    ((x, y),) = make_batches(1)
    model = make_net(dtype=torch.float64)
    x, y = x.double(), y.double()
    alone = copy.deepcopy(model)

    def make(parameters: object) -> torch.optim.LBFGS:
        return torch.optim.LBFGS(parameters, max_iter=6, line_search_fn="strong_wolfe")

    plain, optimizer = make(alone.parameters()), hvd.DistributedOptimizer(make(model.parameters()))

    def closure(of: nn.Module, by: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        by.zero_grad()
        loss = loss_of(of, inputs, targets)
        loss.backward()
        return loss

    expected = plain.step(lambda: closure(alone, plain, x, y))
    result = optimizer.step(lambda: closure(model, optimizer, own(x), own(y)))
    assert torch.allclose(result, expected)
    expect_same_everywhere(model.parameters())
    expect_close(model, alone, 1e-6)


def check_groups_added_later_and_layers_thawed() -> None:
    batches = make_batches(4)
    model = make_net()
    model.conv.requires_grad_(False)
    alone = copy.deepcopy(model)
    plain = sgd([*alone.conv.parameters(), *alone.hidden.parameters(), *alone.norm.parameters()])
    optimizer = hvd.DistributedOptimizer(
        sgd([*model.conv.parameters(), *model.hidden.parameters(), *model.norm.parameters()])
    )
    for step, (x, y) in enumerate(batches):
        if step == 1:
            plain.add_param_group({"params": list(alone.last.parameters()), "lr": 0.02})
            optimizer.add_param_group({"params": list(model.last.parameters()), "lr": 0.02})
        if step == 2:
            alone.conv.requires_grad_(True)
            model.conv.requires_grad_(True)
        plain.zero_grad()
        alone.last.zero_grad()
        loss_of(alone, x, y).backward()
        plain.step()
        optimizer.zero_grad()
        model.last.zero_grad()
        loss_of(model, own(x), own(y)).backward()
        optimizer.step()
    expect_same_everywhere(model.parameters())
    expect_close(model, alone)


def check_layers_frozen_later_are_left_alone() -> None:
    model = make_net()
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), model.named_parameters())
    batches = make_batches(4)
    train_together(model, optimizer, batches[:2])
    model.conv.requires_grad_(False)
    before = model.conv.weight.detach().clone()
    train_together(model, optimizer, batches[2:])
    assert torch.equal(model.conv.weight, before)  # no decay, no momentum
    expect_same_everywhere(model.parameters())


def check_several_optimizers() -> None:
    """Two at once, and a third over the parameters of one that is gone."""
    batches = make_batches(6)
    one, two = make_net(1), make_net(2)
    alone_one, alone_two = train_alone(one, sgd, batches), train_alone(two, sgd, batches)
    first = hvd.DistributedOptimizer(sgd(one.parameters()), one.named_parameters())
    second = hvd.DistributedOptimizer(sgd(two.parameters()), two.named_parameters())
    for batch in batches[:3]:
        x, y = batch
        first.zero_grad()
        second.zero_grad()
        loss_of(one, own(x), own(y)).backward()
        loss_of(two, own(x), own(y)).backward()
        if hvd.rank() % 2:
            first.step()
            second.step()
        else:
            second.step()
            first.step()
    state = first.state_dict()
    del first
    gc.collect()
    third = sgd(one.parameters())
    third.load_state_dict(state)
    third = hvd.DistributedOptimizer(third, one.named_parameters())
    train_together(one, third, batches[3:])
    train_together(two, second, batches[3:])
    for model, alone in ((one, alone_one), (two, alone_two)):
        expect_same_everywhere(model.parameters())
        expect_close(model, alone)
