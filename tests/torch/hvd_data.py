"""Samplers, metrics, learning rates."""

from __future__ import annotations

import math

import torch
from hvd_common import expect_error, make_net, sgd
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import ringlet.torch as hvd


def check_sampler_is_that_of_pytorch_with_our_ranks() -> None:
    data = TensorDataset(torch.arange(11))
    for options in ({}, {"shuffle": False}, {"seed": 5}, {"drop_last": True}):
        ours = hvd.DistributedSampler(data, **options)
        theirs = DistributedSampler(data, hvd.size(), hvd.rank(), **options)
        for epoch in range(3):
            ours.set_epoch(epoch)
            theirs.set_epoch(epoch)
            assert list(ours) == list(theirs)
            assert len(ours) == len(theirs)
    seen = hvd.allgather(torch.tensor(list(hvd.DistributedSampler(data))))
    assert set(seen.tolist()) == set(range(11))


def check_uneven_sampler_gives_every_sample_once() -> None:
    data = TensorDataset(torch.arange(2 * hvd.size() + 1))
    for shuffle in (False, True):
        sampler = hvd.UnevenSampler(data, shuffle=shuffle, seed=3)
        orders = []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            mine = [int(x) for batch in DataLoader(data, sampler=sampler, batch_size=2) for x in batch[0]]
            assert len(mine) == len(sampler)
            orders.append(hvd.allgather(torch.tensor(mine)).tolist())
            assert sorted(orders[-1]) == list(range(len(data)))
        assert (orders[0] != orders[1]) == shuffle


def check_metrics_weigh_by_samples() -> None:
    num_samples = 10 * (hvd.rank() + 1)
    value = float(hvd.rank())
    weights = [10 * (rank + 1) for rank in range(hvd.size())]
    expected = sum(rank * weight for rank, weight in enumerate(weights)) / sum(weights)
    assert math.isclose(hvd.sample_weighted(value, num_samples), expected)
    figures = hvd.average_metrics({"loss": torch.tensor(value), "one": 1.0}, num_samples, name="figures")
    assert math.isclose(figures["loss"], expected)
    assert math.isclose(figures["one"], 1.0)
    plain = hvd.average_metrics({"loss": value})
    assert math.isclose(plain["loss"], (hvd.size() - 1) / 2)
    only_last = hvd.sample_weighted(float("nan") if hvd.rank() == 0 else 2.0, 0 if hvd.rank() == 0 else 3)
    assert only_last == 2.0
    assert math.isnan(hvd.sample_weighted(1.0, 0))


def check_rates() -> None:
    size = hvd.size()
    assert hvd.scaled_rate(0.1) == 0.1 * size
    assert math.isclose(hvd.scaled_rate(0.1, "sqrt"), 0.1 * size**0.5)
    assert hvd.scaled_rate(0.1, "none") == 0.1
    assert hvd.scaled_rate(0.1, backward_passes_per_step=2, op=hvd.Adasum) == 0.2
    expect_error(lambda: hvd.scaled_rate(0.1, "cubic"), "unknown rule 'cubic'")


def check_warm_up() -> None:
    size = hvd.size()
    optimizer = sgd(make_net().parameters())
    optimizer.param_groups[0]["lr"] = 0.3
    warm_up = hvd.WarmUp(optimizer, 4)
    after = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, after], [4])
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    expected = [0.3 / size * (1 + min(step, 4) * (size - 1) / 4) for step in range(6)]
    assert torch.allclose(torch.tensor(rates), torch.tensor(expected))
    expect_error(lambda: hvd.WarmUp(optimizer, -1), "a warm-up of -1 steps")
