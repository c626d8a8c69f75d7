"""Call a function on new workers and use what they return: ``python examples/run_function.py``."""

from __future__ import annotations

import numpy as np

import ringlet


def estimate_pi(num_points: int) -> float:
    """Each rank throws its own points; the mean over all ranks comes back to each."""
    ringlet.init()
    points = np.random.default_rng(ringlet.rank()).random((num_points, 2))
    inside = float((np.square(points).sum(axis=1) < 1).mean())
    return 4 * float(ringlet.allreduce(inside, op="average"))


if __name__ == "__main__":
    print(ringlet.run(estimate_pi, 1_000_000, num_workers=2))
