"""Each rank its share of the samples, and figures over all samples: averages weigh by samples, never by ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler as TorchDistributedSampler

from ringlet.named import ProcessSet, Reduction
from ringlet.named.session import global_process_set
from ringlet.torch import operations
from ringlet.torch.broadcasting import broadcast_optimizer_state, broadcast_parameters
from ringlet.torch.collectives import join
from ringlet.torch.operations import Scaling

Item = TypeVar("Item")


class DistributedSampler(TorchDistributedSampler[Any]):
    """PyTorch's ``DistributedSampler`` with Ringlet's rank and size: call ``set_epoch`` before each epoch.

    Every rank reads equally many samples: some twice, or with ``drop_last`` the last ones not at all.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        size = process_set.size() if num_replicas is None else num_replicas
        own = process_set.rank() if rank is None else rank
        super().__init__(dataset, size, own, shuffle, seed, drop_last)


class UnevenSampler(TorchDistributedSampler[Any]):
    """Every sample exactly once: some ranks read one more. For evaluation, and for training with :func:`uneven`."""

    def __init__(
        self,
        dataset: Dataset[Any],
        shuffle: bool = False,
        seed: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(dataset, process_set.size(), process_set.rank(), shuffle, seed)
        num_all = len(cast(Sized, dataset))
        self.num_samples = len(range(self.rank, num_all, self.num_replicas))
        self.total_size = num_all

    def __iter__(self) -> Iterator[int]:
        num_all = self.total_size
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(num_all, generator=generator).tolist()
        else:
            order = list(range(num_all))
        return iter(order[self.rank :: self.num_replicas])


def uneven(batches: Iterable[Item], model: Module | None = None, optimizer: Optimizer | None = None) -> Iterator[Item]:
    """The batches of this rank, where ranks may have different numbers of them; every rank must run to the end.

    A rank that has no more joins: it counts with zeros until the last rank has finished, instead of leaving the others
    waiting. Then all ranks take over ``model`` and ``optimizer`` of the rank that was last, so that all are equal.
    """
    yield from batches
    last = join()
    if model is not None:
        broadcast_parameters(model.state_dict(), last)
    if optimizer is not None:
        broadcast_optimizer_state(optimizer, last)


def sample_weighted(
    value: float | Tensor, num_samples: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> float:
    """The mean over all samples of all ranks, of which this rank's ``num_samples`` have the mean ``value``."""
    return average_metrics({"value": value}, num_samples, name, process_set)["value"]


def average_metrics(
    metrics: Mapping[str, float | Tensor],
    num_samples: int = 1,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> dict[str, float]:
    """Every figure as the mean over all ranks, weighed by the number of samples that it was computed from.

    Every rank must call with the same names; a rank without samples passes 0 and its values do not matter.
    """
    names = sorted(metrics)
    values = torch.tensor([float(metrics[key]) for key in names], dtype=torch.float64)
    weighted = values * num_samples if num_samples else torch.zeros_like(values)
    sums = torch.cat([weighted, torch.tensor([num_samples], dtype=torch.float64)])
    (total,) = operations.allreduce([sums], name, Scaling(Reduction.SUM), process_set).run()
    count = float(total[-1])
    return {key: float(total[place]) / count if count else float("nan") for place, key in enumerate(names)}
