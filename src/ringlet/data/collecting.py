"""Data that can only be read in order (generators, tf.data, Keras' batches): read once, into memory.

Training reads samples in another order each epoch, on every worker, and resumes in the middle of one. An iterable
cannot do that; a copy of it in memory can. So there is a limit, the memory that is free, and what does not fit is
refused with what to do instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringlet.data.items import Item, split_item
from ringlet.data.values import as_array, is_picture, picture_values
from ringlet.errors import DataError

_UNKNOWN_MEMORY = 1 << 30
Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]


def default_limit() -> int:
    """Half of the memory that is free: putting the parts together needs them twice for a moment."""
    with suppress(ValueError, OSError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return _UNKNOWN_MEMORY


@dataclass
class Collector:
    """Takes items one after the other and puts them together.

    ``batched``: whether an item holds several samples; None: the first one tells, by inputs and targets of equal
    length.
    """

    what: str
    batched: bool | None = None
    max_bytes: int = field(default_factory=default_limit)
    max_samples: int | None = None
    remarks: list[str] = field(default_factory=list)
    _parts: list[Item] = field(default_factory=list)
    _num_samples: int = 0
    _num_bytes: int = 0
    _picture_channels: int = 0

    def collect(self, items: Iterable[Any]) -> Arrays:
        """All items as arrays; only as many samples as ``max_samples`` says."""
        for number, item in enumerate(items):
            self._add(split_item(item, f"{self.what}, item {number}"), number)
            if self.max_samples is not None and self._num_samples >= self.max_samples:
                break
        if not self._parts:
            raise DataError(f"{self.what} gave no items: expected samples. A generator that was read before is empty")
        whole = slice(None, self.max_samples)
        inputs, targets = (np.concatenate([part[side] for part in self._parts])[whole] for side in (0, 1))
        has_weights = self._parts[0].weights is not None
        weights = np.concatenate([part.weights for part in self._parts])[whole] if has_weights else None
        return inputs, targets, weights

    def _add(self, item: Item, number: int) -> None:
        what = f"{self.what}, item {number}"
        inputs, targets = self._inputs(item.inputs, what), as_array(item.targets, f"{what}: target")
        if self.batched is None:
            self.batched = inputs.ndim > 1 and targets.ndim > 0 and len(inputs) == len(targets)
            if self.batched and len(inputs) > 1:
                self.remarks.append(
                    f"{self.what}: its items are taken as batches of {len(inputs)} samples; batched=False if each is "
                    "one"
                )
        weights = None if item.weights is None else as_array(item.weights, f"{what}: weight").astype(np.float32)
        arrays = [inputs, targets] if weights is None else [inputs, targets, weights]
        if not self.batched:
            arrays = [values[None] for values in arrays]
        self._check(arrays, what)
        # the owner may use its memory again for the next item
        kept = Item(*(np.array(values) for values in arrays))
        self._parts.append(kept)
        self._num_samples += len(kept.inputs)
        self._num_bytes += sum(values.nbytes for values in arrays)
        if self._num_bytes > self.max_bytes:
            raise DataError(
                f"{self.what}: {self._num_samples:,} samples take {self._num_bytes / 1e6:,.0f} MB and there are more: "
                f"only {self.max_bytes / 1e6:,.0f} MB may be taken of the free memory. Give data that are read by "
                "index: an object with __getitem__ and __len__, files, or a memory-mapped array; or num_samples for "
                "fewer"
            )

    def _inputs(self, inputs: Any, what: str) -> NDArray[Any]:
        if not is_picture(inputs):
            return as_array(inputs, f"{what}: input")
        self._picture_channels = self._picture_channels or (1 if inputs.mode in ("1", "L", "I", "F") else 3)
        return picture_values(inputs, self._picture_channels)

    def _check(self, arrays: list[NDArray[Any]], what: str) -> None:
        if arrays[0].ndim == 0 or any(values.shape[:1] != arrays[0].shape[:1] for values in arrays):
            shapes = ", ".join(str(values.shape) for values in arrays)
            raise DataError(f"{what}: batches of shapes {shapes}: expected inputs, targets and weights of one length")
        first = self._parts[0] if self._parts else None
        known = () if first is None else [part for part in first if part is not None]
        if first is not None and len(known) != len(arrays):
            raise DataError(f"{what}: weights in some items only: expected them in all or in none")
        for values, before in zip(arrays, known, strict=False):
            if values.shape[1:] != before.shape[1:] or values.dtype.kind != before.dtype.kind:
                raise DataError(
                    f"{what}: samples of shape {values.shape[1:]} and type {values.dtype}, those before have "
                    f"{before.shape[1:]} and {before.dtype}: expected one shape and type"
                )
