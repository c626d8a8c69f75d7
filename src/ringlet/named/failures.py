"""The failed collective behind another library's error: TensorFlow and JAX raise errors that only quote ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ringlet.named.submissions import CollectiveError

_last: CollectiveError | None = None


@contextmanager
def noted() -> Iterator[None]:
    """Remember the error of a collective that is called by a library, which will make another error of it."""
    global _last
    try:
        yield
    except CollectiveError as error:
        _last = error
        raise


def failure(error: BaseException) -> CollectiveError | None:
    """The failed collective that made a training step raise; None if it was something else, or a wrong argument."""
    found: BaseException | None = error
    if not isinstance(found, CollectiveError) and _last is not None and str(_last) in str(error):
        found = _last
    return found if isinstance(found, CollectiveError) and not isinstance(found, ValueError) else None
