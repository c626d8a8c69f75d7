"""Each rank its share of the samples, metrics over all samples (averages weigh by samples, never by ranks), and rates.

Learning rates for many ranks are scaled by their number and warmed up: Goyal et al., *Accurate, large minibatch SGD:
training ImageNet in 1 hour*, 2017 (arXiv 1706.02677).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import Dataset, Sampler
from torch.utils.data.distributed import DistributedSampler as TorchDistributedSampler

from ringlet.named import ArgumentsError, ProcessSet, Reduction
from ringlet.named.horovod import Scaling, rate_factor, warmup_factor
from ringlet.named.session import global_process_set
from ringlet.torch.broadcasting import broadcast_optimizer_state, broadcast_parameters
from ringlet.torch.collectives import join
from ringlet.torch.operations import allreduce

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


class ElasticSampler(Sampler[int]):
    """Each rank its share of the samples that no rank has read in this epoch, so that training resumes within it.

    Call :meth:`record_batch` after each batch and :meth:`set_epoch` at the *end* of each epoch. As part of a
    ``TorchState`` it is committed with the samples that all ranks have read, and shares out the rest after a restart.
    """

    def __init__(self, dataset: Dataset[Any], shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: set[int] = set()
        self.reset()

    def reset(self) -> None:
        """Share out again what is left, among the ranks that there are now."""
        self.num_replicas, self.rank = global_process_set.size(), global_process_set.rank()
        self._num_shared = len(self.processed_indices)
        num_all = len(cast(Sized, self.dataset))
        self.remaining_indices = [index for index in range(num_all) if index not in self.processed_indices]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices: list[int] = self._share()

    @property
    def processed_num(self) -> int:
        """How many samples all ranks have read of this epoch, if the others have recorded as many as this one."""
        return self._num_shared + (len(self.processed_indices) - self._num_shared) * self.num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: nothing of it has been read, and it has an order of its own."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def get_indices(self, batch_idx: int, batch_size: int) -> list[int]:
        """This rank's samples in the batch with this number since the last :meth:`reset`."""
        start = batch_idx * batch_size
        return self.indices[start : start + batch_size]

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """The batch with this number has been read."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: Iterable[int]) -> None:
        """These samples have been read."""
        self.processed_indices.update(indices)

    def state_dict(self) -> dict[str, Any]:
        """The epoch, and what has been read of it."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a state; what is left is shared out again."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def _share(self) -> list[int]:
        order = list(self.remaining_indices)
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)  # noqa: S311  the same on every rank
        padded = [order[place % len(order)] for place in range(self.total_size)]  # equally many for each rank
        return padded[self.rank :: self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples


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
    """Every metric as the mean over all ranks, weighted by the number of samples that it was computed from.

    Every rank must call with the same names; a rank without samples passes 0 and its values do not matter.
    """
    names = sorted(metrics)
    values = torch.tensor([float(metrics[key]) for key in names], dtype=torch.float64)
    weighted = values * num_samples if num_samples else torch.zeros_like(values)
    sums = torch.cat([weighted, torch.tensor([num_samples], dtype=torch.float64)])
    (total,) = allreduce([sums], Scaling(Reduction.SUM), process_set, name)
    count = float(total[-1])
    return {key: float(total[place]) / count if count else float("nan") for place, key in enumerate(names)}


# -- learning rates ---------------------------------------------------------------------------------------------------
def scaled_rate(
    rate: float,
    rule: str = "linear",
    *,
    size: int | None = None,
    backward_passes_per_step: int = 1,
    op: Reduction = Reduction.AVERAGE,
) -> float:
    """The learning rate for the batch of all ranks, where ``rate`` is that of one rank's batch.

    ``linear`` multiplies by the number of ranks, ``sqrt`` by its root. Sums of gradients grow with the ranks by
    themselves, and Adasum needs no scaling: then only local passes count.
    """
    num_ranks = size if size is not None else global_process_set.size()
    return rate * rate_factor(rule, backward_passes_per_step * (num_ranks if op is Reduction.AVERAGE else 1))


class WarmUp(LRScheduler):
    """Rise linearly from rate / size to the full rate over the first ``num_steps`` calls of ``step``.

    Call ``step`` after every update (then ``num_steps`` is epochs times updates per epoch) or every epoch. To follow
    it by another schedule use ``torch.optim.lr_scheduler.SequentialLR`` with this one first.
    """

    def __init__(
        self, optimizer: Optimizer, num_steps: int, *, size: int | None = None, last_epoch: int = -1, **options: Any
    ) -> None:
        if num_steps < 0:
            raise ArgumentsError(f"a warm-up of {num_steps} steps: expected none or more")
        self.num_steps = num_steps
        self.size = size if size is not None else global_process_set.size()
        super().__init__(optimizer, last_epoch, **options)

    def get_lr(self) -> list[Any]:
        """``base / size * (1 + done (size - 1) / num_steps)`` until ``num_steps`` are done, then ``base``."""
        factor = warmup_factor(self.last_epoch, self.num_steps, self.size)
        return [base * factor for base in self.base_lrs]
