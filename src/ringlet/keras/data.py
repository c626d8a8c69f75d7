"""Which samples are whose, and what more ranks mean for the learning rate."""

from __future__ import annotations

from math import sqrt
from typing import Any

from ringlet.data.partition import bounds
from ringlet.keras.errors import ArgumentError
from ringlet.named import session


def shard_bounds(num_samples: int, rank: int | None = None, size: int | None = None) -> tuple[int, int]:
    """Start and end of this rank's samples; the first ``num_samples % size`` ranks get one more."""
    engine = session.engine() if rank is None or size is None else None
    own = rank if rank is not None or engine is None else engine.rank
    total = size if size is not None or engine is None else engine.size
    return bounds(num_samples, own or 0, total or 1)


def shard(*arrays: Any, rank: int | None = None, size: int | None = None) -> Any:
    """This rank's part of each array along axis 0, as a view: one array for one, a tuple for several.

    ``x, y = hvd.shard(images, labels)``. All arrays must have the same length.
    """
    lengths = {len(array) for array in arrays}
    if len(lengths) != 1:
        raise ArgumentError(
            f"arrays of lengths {[len(array) for array in arrays]} cannot be cut alike: expected at least one array, "
            "and the same number of samples in each"
        )
    start, stop = shard_bounds(lengths.pop(), rank, size)
    parts = tuple(array[start:stop] for array in arrays)
    return parts[0] if len(parts) == 1 else parts


def scale_learning_rate(learning_rate: float, size: int | None = None, rule: str = "linear") -> float:
    """The learning rate for a global batch ``size`` times as large (default: the number of ranks).

    ``linear``: lr·size (Goyal et al., *Accurate, Large Minibatch SGD*, 2017; with warm-up). ``sqrt``: lr·√size, often
    better for Adam.
    """
    total = session.engine().size if size is None else size
    factors = {"linear": float(total), "sqrt": sqrt(total)}
    if rule not in factors:
        raise ArgumentError(f"unknown rule '{rule}' for the learning rate: expected one of {', '.join(factors)}")
    return learning_rate * factors[rule]
