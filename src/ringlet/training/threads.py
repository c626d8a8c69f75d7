"""The number of threads of BLAS, for as long as a run computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def blas_threads(number: int | None) -> Iterator[None]:
    """Within: BLAS uses ``number`` threads; None leaves it alone."""
    if number is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=number, user_api="blas"):
        yield
