"""Numbers that stop being finite: how large they can become, and a way back when it has happened.

What every rank computes is looked at before anything is exchanged. Sums of finite numbers may still overflow: in the
exchange (16 bits end early), in a norm, in the optimizer. To look at every sum and at every new parameter would cost a
pass over memory in each step, and the ranks another meeting. A bound does instead: the norms of all contributions,
which travel with the metrics of the step, add up to more than any element of their sum. Only a step whose bound is too
large is *doubtful*: it is made on trial, looked at, and undone on all ranks where it was not good on one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ringlet.engines.contract import Floats
from ringlet.optim import Segment

GRADIENT_NORM, STATE_NORM = 0, 1
"""Columns of the metrics that a strategy agrees on: of each shard the norm of its gradients, and that of its running
statistics times its samples."""
_LARGEST_BOUND = 1e290
"""So that bounds can be added up and multiplied by numbers of samples."""


def norm_bound(values: Floats) -> float:
    """At least the Euclidean norm, up to rounding, in one cheap pass; not finite only if one of ``values`` is not.

    Of float64 it ends at ``_LARGEST_BOUND``, which is doubtful in any case.
    """
    square = float(np.dot(values, values))
    if math.isfinite(square):
        return math.sqrt(square)
    largest = float(np.abs(values).max(initial=0.0))
    return min(largest * math.sqrt(values.size), _LARGEST_BOUND) if math.isfinite(largest) else largest


def is_finite(values: Floats) -> bool:
    """Whether all of ``values`` are: they are looked at one by one only if their squares overflow."""
    return math.isfinite(np.dot(values, values)) or bool(np.isfinite(values).all())


def first_not_finite(tensors: Mapping[str, NDArray[Any]]) -> str:
    """The name of the first tensor with an element that is not finite; empty if there is none."""
    return next((name for name, tensor in tensors.items() if not is_finite(tensor.reshape(-1))), "")


def segment_at(segments: Sequence[Segment], values: Floats, start: int = 0) -> str:
    """In quotes the name of the parameter with the first element of ``values`` that is not finite.

    ``values`` begin at the flat buffer's element ``start``. Empty where the segments have no names.
    """
    place = start + int(np.argmin(np.isfinite(values)))
    return next((f" of '{segment.name}'" for segment in segments if segment.start <= place < segment.stop), "")


def safe_norm(dtype: DTypeLike) -> float:
    """Up to here squares of gradients, and their sum, stay finite; half of it, since bounds are rounded."""
    return 0.5 * math.sqrt(float(np.finfo(dtype).max))


class Magnitude(NamedTuple):
    """Bounds of what the contributions to a step add up to."""

    gradients: float = 0.0
    state: float = 0.0

    @classmethod
    def of(cls, metrics: NDArray[np.float64]) -> Magnitude:
        """From the metrics of all shards that contribute."""
        return cls(*np.add.reduce(metrics[:, : STATE_NORM + 1], axis=0).tolist())

    def is_doubtful(self, limit: float, safe: float, learning_rate: float) -> bool:
        """Whether an update may overflow.

        ``limit`` is what the exchange can carry, ``safe`` that of :func:`safe_norm`.
        """
        return self.gradients > limit or self.gradients * max(learning_rate, 1.0) > safe or self.state > safe


@final
class Undo:
    """Copies of ``arrays``, to be put back."""

    def __init__(self, arrays: Iterable[Floats]) -> None:
        self._copies = [(array, array.copy()) for array in arrays]

    def restore(self) -> None:
        """Make all of them as they were."""
        for array, copy in self._copies:
            array[...] = copy
