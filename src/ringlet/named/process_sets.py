"""Process sets: some of the ranks, who do collectives among themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from ringlet.named.errors import ArgumentsError


@final
class ProcessSet:
    """Ranks of the job, in their order. It can be used once ``init`` or ``add_process_set`` has taken it in."""

    def __init__(self, ranks: Iterable[int]) -> None:
        given = [int(rank) for rank in ranks]
        if len(set(given)) != len(given):
            raise ArgumentsError(f"a process set of ranks {given}: expected every rank once")
        self.ranks: tuple[int, ...] | None = tuple(sorted(given))
        """None: all ranks, of a job that is not initialised."""
        self.process_set_id: int | None = None
        """The same on every rank; 0 is the set of all. None: not in use."""
        self._own: int | None = None

    def size(self) -> int:
        """The number of its ranks."""
        return len(self._used())

    def included(self) -> bool:
        """Whether this process is in it."""
        return self._own in self._used()

    def rank(self) -> int:
        """This process's number within the set."""
        ranks = self._used()
        if self._own is None or self._own not in ranks:
            raise ArgumentsError(f"rank {self._own} is not in the process set of ranks {list(ranks)}")
        return ranks.index(self._own)

    def take_in(self, number: int, ranks: Iterable[int], own: int) -> None:
        """For sessions: the set can be used from now on, by the rank ``own``."""
        self.process_set_id, self.ranks, self._own = number, tuple(ranks), own

    def let_go(self) -> None:
        """For sessions: it cannot be used any longer."""
        self.process_set_id = self._own = None

    def _used(self) -> tuple[int, ...]:
        if self.process_set_id is None or self.ranks is None:
            raise ArgumentsError(
                f"{self} is not in use: pass it to init(process_sets=[…]) or add_process_set(…) first, on every rank"
            )
        return self.ranks

    def __repr__(self) -> str:
        ranks = "all" if self.ranks is None else list(self.ranks)
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={ranks})"
