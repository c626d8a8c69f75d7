"""A barrier that names the ranks that do not come: ``monitored_barrier``.

It uses the store alone, so it works while collectives of the group hang, which is when it is wanted. Rank 0 waits for
all others and tells them the verdict. Messages begin with Gloo's words, for which programs look.
"""

# PyTorch exports these names without saying so to type checkers.
# mypy: disable-error-code="attr-defined"
from __future__ import annotations

from datetime import timedelta
from time import monotonic
from typing import final

from torch.distributed import PrefixStore, Store

from ringlet.errors import CommunicationError
from ringlet.torch.process_group.meeting import Keys

_SECONDS_TO_TELL = 5.0
"""How long a verdict may take from rank 0 to the others."""


@final
class RollCall:
    """The monitored barriers of one rank of a group."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._keys = Keys(PrefixStore("roll-call", store))
        self._rank = rank
        self._size = size
        self._number = 0

    def pass_together(self, timeout: timedelta, *, wait_all_ranks: bool) -> None:
        """Return when all ranks have come; every rank must call. :class:`CommunicationError` says who has not come.

        ``wait_all_ranks`` names all that are missing, not only the first.
        """
        self._number += 1
        self._keys.set(self._key(self._rank), b"")
        if self._rank != 0:
            self._wait_for_verdict(timeout.total_seconds())
            return
        missing = self._missing(monotonic() + timeout.total_seconds(), wait_all_ranks)
        message = self._explain(missing, timeout) if missing else ""
        self._keys.set(self._key("verdict"), message.encode())
        if missing:
            raise CommunicationError(message)
        self._forget(self._number - 1)

    def _key(self, what: int | str, number: int | None = None) -> str:
        return f"{number or self._number}/{what}"

    def _missing(self, deadline: float, wait_all_ranks: bool) -> list[int]:
        missing = []
        for rank in range(1, self._size):
            if not self._keys.wait(self._key(rank), deadline):
                missing.append(rank)
                if not wait_all_ranks:
                    break
        return missing

    def _explain(self, missing: list[int], timeout: timedelta) -> str:
        milliseconds = round(1000 * timeout.total_seconds())
        if milliseconds <= 0:
            return f"Rank 0 timed out in monitoredBarrier after {milliseconds} ms: pass a timeout longer than nothing"
        who = f"Rank {missing[0]}" if len(missing) == 1 else f"Ranks {', '.join(map(str, missing))}"
        return (
            f"{who} failed to pass monitoredBarrier in {milliseconds} ms. Every rank of the group must call it; look "
            "at what these do instead, or pass a longer timeout if they just need longer"
        )

    def _wait_for_verdict(self, seconds: float) -> None:
        """Rank 0 may have come later, and waits as long for the others."""
        if not self._keys.wait(self._key(0), monotonic() + seconds):
            raise CommunicationError(f"{self._reached()}: it has not come within {round(1000 * seconds)} ms")
        if not self._keys.wait(self._key("verdict"), monotonic() + seconds + _SECONDS_TO_TELL):
            raise CommunicationError(f"{self._reached()}: it came, but has not said whether all others did. Look at it")
        message = self._keys.get(self._key("verdict")).decode()
        if message:
            raise CommunicationError(f"{self._reached()}: {message}")

    def _reached(self) -> str:
        return (
            f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
            "from rank 0"
        )

    def _forget(self, number: int) -> None:
        """All have come here, so all have read the verdict before."""
        if number > 0:
            for what in ("verdict", *range(self._size)):
                self._keys.delete(self._key(what, number))
