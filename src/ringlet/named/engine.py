"""Named collectives of one process set: ranks may submit them in any order, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from ringlet.comm.contract import Communicator
from ringlet.forks import Owner
from ringlet.named.buffers import Buffer, make_buffer
from ringlet.named.checks import Describer
from ringlet.named.errors import CollectiveError, DuplicateNameError
from ringlet.named.pending import Pending
from ringlet.named.requests import Reduction, Request
from ringlet.named.rounds import Rounds
from ringlet.named.settings import Settings, settings_from_environment
from ringlet.named.signatures import split_name
from ringlet.named.trace import Trace


@final
class Engine:
    """Over a communicator that nobody else uses, of the global ``ranks``; every one of them must make its engine.

    ``thread`` false: requests go on only while somebody waits, for communicators that one thread alone may use.
    """

    def __init__(
        self, communicator: Communicator, ranks: Sequence[int], *, settings: Settings | None = None, thread: bool = True
    ) -> None:
        self.ranks = tuple(ranks)
        self.rank = communicator.rank
        """This process's number within the set."""
        self.size = communicator.size
        self._communicator = communicator
        self._describer = Describer(self.ranks)
        self._counts: dict[str, int] = {}
        self._counted_joins = 0
        self._counting = threading.Lock()
        self._num_buffers = 0
        self._owner = Owner()
        chosen = settings if settings is not None else settings_from_environment()
        self._rounds = Rounds(communicator, self.ranks, chosen, thread=thread and self.size > 1)

    def submit(self, request: Request, *, background: bool = True) -> Pending:
        """Announce a collective; it runs once all ranks have. Raises if its name is under way on this rank.

        With ``background`` false nothing happens before somebody waits for it (or for about a second), and the thread
        of the engine is not woken: for those who wait soon.
        """
        return self._submit(request, background)

    def run(self, request: Request) -> list[Any]:
        """Submit and wait."""
        return self._submit(request, False).wait()

    def default_name(self, kind: str) -> str:
        """A name for a request that has none: ``<kind>.noname.<n>``, the same on ranks that ask equally often.

        After a join it counts from 1 again: ranks that joined earlier have asked less often.
        """
        with self._counting:
            if self._counted_joins != self._rounds.num_joins:
                self._counted_joins = self._rounds.num_joins
                self._counts.clear()
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}.noname.{number}"

    def buffer(self, num_elements: int, dtype: DTypeLike) -> Buffer:
        """Memory for :meth:`allreduce_buffer`; every rank must call, with equal arguments, in the same order."""
        wanted, length = np.dtype(dtype), int(num_elements)

        def make() -> Buffer:
            self._num_buffers += 1
            return make_buffer(self._communicator, self._num_buffers, length, wanted)

        shape = np.broadcast_to(np.zeros((), wanted), (length,))  # says what it is and takes no memory
        return self._together("buffer", (), make, inputs=(shape,))  # type: ignore[no-any-return]

    def allreduce_buffer(
        self,
        buffer: Buffer,
        name: str,
        op: Reduction = Reduction.AVERAGE,
        *,
        prescale: float = 1.0,
        postscale: float = 1.0,
        start: int = 0,
        stop: int | None = None,
        background: bool = True,
    ) -> Pending:
        """Allreduce a range of a buffer in place: every rank's ``own`` holds the result. ``submit`` says the rest."""
        begin, end, _ = slice(start, stop).indices(buffer.own.size)
        part = buffer.own[begin:end]
        request = Request("allreduce", name, (part,), (part,), op, prescale, postscale)
        return self._submit(request, background, buffer, detail=(buffer.number, begin, max(begin, end)))

    def group(self, ranks: Sequence[int], refusal: str = "") -> Communicator | None:
        """A communicator of some of this engine's ranks (places in ``self.ranks``); every rank must call.

        A ``refusal`` of any rank is raised on all.
        """
        places = tuple(ranks)
        found: Communicator | None = self._together(
            "add_process_set", places, lambda: self._communicator.group(places), refusal
        )
        return found

    def agree(self, what: str, detail: Sequence[int], refusal: str = "") -> None:
        """Return when every rank has called with the same arguments; raise on all if any differs or refuses."""
        self._together(what, tuple(detail), lambda: None, refusal)

    def set_trace(self, trace: Trace | None) -> None:
        """Write operations down from now on, or not any longer."""
        self._rounds.trace = trace

    def leave(self) -> None:
        """Begin to :meth:`close`, without waiting for others."""
        if self._owner.is_here:
            self._rounds.leave()

    def close(self) -> None:
        """Leave the set: requests that are under way fail on all ranks, and so do later ones. Safe to call twice."""
        if self._owner.is_here:
            self._rounds.close()

    def _together(
        self, kind: str, detail: tuple[int, ...], action: Callable[[], Any], refusal: str = "", inputs: Any = ()
    ) -> Any:
        """Do something on all ranks at the same time, in step with the collectives."""
        request = Request(kind, self.default_name(f"ringlet.{kind}"), inputs)  # type: ignore[arg-type]
        [result] = self._submit(request, False, None, action, detail, refusal).wait()
        return result

    def _submit(
        self,
        request: Request,
        background: bool,
        buffer: Buffer | None = None,
        action: Callable[[], Any] | None = None,
        detail: tuple[int, ...] = (),
        refusal: str = "",
    ) -> Pending:
        if not self._owner.is_here:
            raise CollectiveError(self._owner.explain(f"{request.kind} '{request.name}'", self.ranks[self.rank]))
        key = split_name(request.name)
        signature = self._describer.encoded(request, key.stem, detail, refusal)
        pending = Pending(self._rounds, request, key, signature, buffer, action)
        if not self._rounds.add(pending, background=background):
            raise DuplicateNameError(
                f"{request.kind} '{request.name}' is already under way on rank {self.ranks[self.rank]}: wait for it "
                "before the name is used again, or give every operation a name of its own"
            )
        if self.size == 1:
            self._rounds.drive(pending)
        return pending
