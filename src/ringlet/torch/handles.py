"""Operations under way: what ``*_async`` functions give, and what ``poll`` and ``synchronize`` take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from ringlet.comm.contract import Array
from ringlet.named import ArgumentsError, Pending


@final
class Handle:
    """One operation, or several that make up one result."""

    def __init__(self, pending: Sequence[Pending], finish: Callable[[list[list[Array]]], Any]) -> None:
        """``finish`` turns the arrays of every pending request into what :func:`synchronize` gives."""
        self._pending: list[Pending] = list(pending)
        self._finish: Callable[[list[list[Array]]], Any] | None = finish
        self._result: Any = None

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        return all(pending.done() for pending in self._pending)

    def wait(self) -> Any:
        """The result; raises what the operation raised, the same on all ranks. May be called again."""
        if self._finish is not None:
            self._result = self._finish([pending.wait() for pending in self._pending])
            self._finish = None  # lets go of the tensors
        return self._result

    def __call__(self) -> Any:
        """The same as :meth:`wait`."""
        return self.wait()


def poll(handle: Handle) -> bool:
    """Whether an asynchronous operation has finished, so that :func:`synchronize` will not block."""
    return _checked(handle).done()


def synchronize(handle: Handle) -> Any:
    """Wait for an asynchronous operation; gives its tensor, or what its blocking form gives."""
    return _checked(handle).wait()


def _checked(handle: object) -> Handle:
    if not isinstance(handle, Handle):
        raise ArgumentsError(f"{handle!r} is no handle: expected what an …_async function gave")
    return handle
