"""Waiting for the slowest: the expected maximum over workers of a time that varies, by simulation.

Every worker draws its step times from the same sample, which was measured (or described: see
:func:`described_variation`), with a seeded generator. Workers that meet after every K-th step wait for the largest
*sum* of K draws, which varies less. The largest of many draws cannot exceed the largest measured one: rarer events
than the measurement saw are not in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NUM_ROUNDS = 300
MAX_DRAWS = 1 << 20
"""Numbers drawn at once."""


def slowdown(sample: Sequence[float], num_workers: int, *, every: int = 1, seed: int = 0) -> float:
    """Expected time of the slowest worker over the mean time; 1 for one worker or times that do not vary."""
    values = np.asarray(sample, np.float64)
    if num_workers == 1 or values.size < 2 or values.min() == values.max():
        return 1.0
    generator = np.random.default_rng([seed, num_workers, every])
    longest = np.zeros(NUM_ROUNDS)
    for first in range(0, num_workers, chunk := max(1, MAX_DRAWS // NUM_ROUNDS)):
        count = min(chunk, num_workers - first)
        sums = np.zeros((NUM_ROUNDS, count))
        for _ in range(every):
            sums += values[generator.integers(0, values.size, (NUM_ROUNDS, count))]
        np.maximum(longest, sums.max(axis=1), out=longest)
    return max(1.0, float(longest.mean() / (every * values.mean())))


def described_variation(variation: float, num_values: int = 4096) -> NDArray[np.float64]:
    """A sample of mean 1 whose standard deviation is ``variation``: log-normal, at evenly spaced probabilities."""
    from statistics import NormalDist

    normal = NormalDist()
    sigma = np.sqrt(np.log1p(variation**2))
    quantiles = [normal.inv_cdf((place + 0.5) / num_values) for place in range(num_values)]
    values = np.exp(sigma * np.array(quantiles))
    return np.asarray(values / values.mean(), np.float64)
