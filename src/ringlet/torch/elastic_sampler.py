"""A sampler that remembers what was read, so that training goes on in the middle of an epoch with any ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sized
from typing import Any, cast

from torch.utils.data import Dataset, Sampler

from ringlet.named.session import global_process_set


class ElasticSampler(Sampler[int]):
    """Each rank its share of the samples that no rank has read in this epoch.

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
        """Share out anew what is left, among the ranks that there are now."""
        self.num_replicas, self.rank = global_process_set.size(), global_process_set.rank()
        num_all = len(cast(Sized, self.dataset))
        self.remaining_indices = [index for index in range(num_all) if index not in self.processed_indices]
        self.num_samples = math.ceil(len(self.remaining_indices) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices: list[int] = self._share()

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
        """Go on from a state; what is left is shared out anew."""
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
