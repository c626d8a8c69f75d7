"""Requests that other ranks do not submit: who is missing is told on the error output, and in the end raised."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import final

from ringlet.named.pending import Pending
from ringlet.named.settings import Settings
from ringlet.named.signatures import Key
from ringlet.named.table import Table


@final
class StallWatch:
    """Looks at the unfinished requests of the rank ``rank`` of an engine of the global ``ranks``."""

    def __init__(self, table: Table, ranks: Sequence[int], rank: int, settings: Settings) -> None:
        self._table = table
        self._ranks = list(ranks)
        self._rank = rank
        self._settings = settings
        self._next_look = monotonic() + settings.heartbeat

    def look(self, in_flight: dict[Key, Pending]) -> list[tuple[Key, str]]:
        """Warn of what has waited for long; give what has waited too long, with the reason. Cheap: seldom looks.

        Other threads may add requests meanwhile.
        """
        now = monotonic()
        if now < self._next_look:
            return []
        self._next_look = now + self._settings.heartbeat
        expired = []
        for pending in list(in_flight.values()):
            operation = self._table.waiting.get(pending.key)
            if operation is None or self._rank not in operation.signatures:
                continue  # a join, or not announced yet
            waited = now - pending.submitted
            submitted = self._names(operation.signatures)
            missing = self._names(self._table.missing(operation))
            if self._settings.stall_error and waited >= self._settings.stall_error:
                why = f"rank {missing} did not submit it within {self._settings.stall_error:g} s, rank {submitted} did"
                expired.append((pending.key, why))
            elif self._settings.stall_warning and waited >= self._settings.stall_warning and not pending.warned:
                pending.warned = True
                if self._rank == min(operation.signatures):  # one report is enough
                    _warn(
                        f"{operation.signature.kind} '{pending.name}' has waited {waited:.1f} s for rank {missing}; "
                        f"it was submitted by rank {submitted}. Every rank of {self._ranks} must submit it, or join"
                    )
        return expired

    def report_silence(self, pendings: Iterable[Pending], seconds: float) -> None:
        """A round has been under way for so long: some rank does not even say that it has nothing."""
        if not self._settings.stall_warning or seconds < self._settings.stall_warning:
            return
        silent = [pending for pending in pendings if not pending.warned]
        for pending in silent:
            pending.warned = True
        if silent:
            names = ", ".join(f"'{pending.name}'" for pending in silent[:8])
            _warn(
                f"rank {self._ranks[self._rank]} waits for {names}, but some rank has been silent for {seconds:.1f} s"
            )

    def _names(self, ranks: Iterable[int]) -> str:
        return ", ".join(str(self._ranks[rank]) for rank in sorted(ranks))


def _warn(text: str) -> None:
    sys.stderr.write(f"ringlet: warning: {text}\n")
    sys.stderr.flush()
