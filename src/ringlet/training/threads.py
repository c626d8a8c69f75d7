"""How many threads a worker computes with, and those of BLAS for as long as a run computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ringlet.config import RunConfig
from ringlet.launch.resources import usable_cores


def chosen_threads(config: RunConfig, num_local_workers: int) -> int | None:
    """As configured, else the machine's cores shared by its workers; None leaves it to the kernels.

    What OMP_NUM_THREADS says wins over the share of the cores.
    """
    if config.threads is not None or num_local_workers == 1 or "OMP_NUM_THREADS" in os.environ:
        return config.threads
    return max(1, usable_cores() // num_local_workers)


@contextmanager
def blas_threads(number: int | None) -> Iterator[None]:
    """Within: BLAS uses ``number`` threads; None leaves it alone."""
    if number is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=number, user_api="blas"):
        yield
