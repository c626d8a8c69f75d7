"""What the checks of ``ringlet.torch`` share: values that every rank can compute for all, models, comparisons."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import ringlet.torch as hvd

LOCAL_BATCH = 4
WHOLE = (torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32, torch.int64)
FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def of_rank(rank: int, shape: tuple[int, ...] = (3, 4), dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Small whole numbers, so that results are exact in every dtype."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    low = 0 if dtype in (torch.bool, torch.uint8, torch.uint16) else -3
    numbers = torch.randint(low, 4, shape, generator=generator)
    return (numbers > 1) if dtype is torch.bool else numbers.to(dtype)


def of_all(shape: tuple[int, ...] = (3, 4), dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    """What :func:`of_rank` gives on every rank."""
    return [of_rank(rank, shape, dtype, seed) for rank in range(hvd.size())]


def total(tensors: Iterable[Tensor]) -> Tensor:
    return torch.stack([tensor.double() for tensor in tensors]).sum(0)


def expect_equal(result: Tensor, expected: Tensor) -> None:
    """Values alike, after rounding to the dtype of the result."""
    assert result.shape == expected.shape, (result.shape, expected.shape)
    assert torch.equal(result, expected.to(result.dtype)), (result, expected)


def expect_error(call: Callable[[], object], words: str, kind: type[Exception] = ValueError) -> str:
    with pytest.raises(kind, match=re.escape(words)) as caught:
        call()
    return str(caught.value)


def expect_same_everywhere(tensors: Iterable[Tensor]) -> None:
    """The same bits on all ranks."""
    flat = torch.cat([tensor.detach().reshape(-1).double() for tensor in tensors])
    gathered = hvd.allgather(flat.unsqueeze(0))
    assert all(torch.equal(row, gathered[0]) for row in gathered), gathered


def expect_close(model: nn.Module, other: nn.Module, tolerance: float = 1e-5) -> None:
    for (name, mine), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance), (name, (mine - theirs).abs().max())


class Net(nn.Module):
    """A convolution, a normalisation, two dense layers: parameters of all kinds."""

    def __init__(self, channels_last: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 5, 3, padding=1)
        self.norm = nn.GroupNorm(1, 5)
        self.hidden = nn.Linear(5 * 16, 7)
        self.last = nn.Linear(7, 3)
        if channels_last:
            self.to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.last(torch.tanh(self.hidden(x.flatten(1))))


def make_net(seed: int = 1, channels_last: bool = False, dtype: torch.dtype = torch.float32) -> Net:
    torch.manual_seed(seed)
    return Net(channels_last).to(dtype)


def make_batches(num_steps: int, seed: int = 7, size: int | None = None) -> list[tuple[Tensor, Tensor]]:
    """Global batches: inputs and targets for all ranks together."""
    generator = torch.Generator().manual_seed(seed)
    num = LOCAL_BATCH * (size or hvd.size())
    return [
        (torch.randn(num, 2, 4, 4, generator=generator), torch.randn(num, 3, generator=generator))
        for _ in range(num_steps)
    ]


def own(tensor: Tensor) -> Tensor:
    """This rank's part of a global batch."""
    return tensor[LOCAL_BATCH * hvd.rank() : LOCAL_BATCH * (hvd.rank() + 1)]


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(model(x), y)


def train_alone(model: nn.Module, make: Callable[[Any], Any], batches: Iterable[tuple[Tensor, Tensor]]) -> nn.Module:
    """A copy of the model, trained on global batches in one process."""
    alone = copy.deepcopy(model)
    optimizer = make(alone.parameters())
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(alone, x.to(next(alone.parameters()).dtype), y.to(next(alone.parameters()).dtype)).backward()
        optimizer.step()
    return alone


def train_together(model: nn.Module, optimizer: Any, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
    """The model, trained on this rank's parts of global batches."""
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(model, own(x), own(y)).backward()
        optimizer.step()


def sgd(parameters: Any) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.01)
