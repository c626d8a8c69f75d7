"""A request that is under way."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol, final

from ringlet.named.buffers import Buffer
from ringlet.named.requests import Request
from ringlet.named.signatures import Key


class Driver(Protocol):
    """Whoever makes requests finish."""

    def drive(self, pending: Pending) -> None:
        """Return when it has finished."""

    def nudge(self) -> None:
        """Somebody wants to know; see to it that requests go on."""


@final
class Pending:
    """Its results appear here. Made by engines."""

    def __init__(
        self,
        driver: Driver,
        request: Request,
        key: Key,
        signature: str,
        buffer: Buffer | None = None,
        action: Callable[[], Any] | None = None,
    ) -> None:
        self._driver = driver
        self.name = request.name
        self.kind: str = request.kind
        self.key = key
        self.signature = signature
        self.submitted = monotonic()
        self.request: Request | None = request
        """None once it has finished, so that arrays are let go; likewise the next two."""
        self.buffer = buffer
        self.action = action
        self.awaited = False
        """Somebody sleeps until it has finished."""
        self.warned = False
        self.finished = False
        """Like :meth:`done`, and nothing else happens."""
        self._results: list[Any] = []
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        if not self.finished:
            self._driver.nudge()
        return self.finished

    def wait(self) -> list[Any]:
        """The results, one array for each input; raises what went wrong, on all ranks. May be called again.

        An alltoall gives the rows and how many came from each rank; a join the rank that joined last.
        """
        if not self.finished:
            self._driver.drive(self)
        if self._error is not None:
            raise self._error
        return self._results

    def finish(self, results: list[Any], error: BaseException | None = None) -> None:
        """For engines: it is over."""
        self._results, self._error = results, error
        self.request = self.buffer = self.action = None
        self.finished = True
