"""Named collectives of one process set: ranks may submit them in any order, from any thread. No pickle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike

from ringlet.comm.contract import Communicator
from ringlet.errors import DataError, UsageError
from ringlet.forks import Owner
from ringlet.io import encoding
from ringlet.named.buffers import Buffer, make_buffer
from ringlet.named.monitoring import Patience, Trace, patience_from_environment
from ringlet.named.reductions import Reduction
from ringlet.named.rounds import Rounds
from ringlet.named.signatures import Describer
from ringlet.named.submissions import (
    ArgumentsError,
    CollectiveError,
    DuplicateNameError,
    Handle,
    Submission,
    split_name,
)

Convert = Callable[[list[Any]], Any]
_VALUE, _EXCUSE = b"V", b"E"


@final
class NamedCollectives:
    """Over a communicator that no one else uses, of the global ``ranks``, each of which must make its own.

    ``thread`` false: collectives progress only while someone waits, for communicators that one thread alone may use.
    """

    def __init__(
        self, communicator: Communicator, ranks: Sequence[int], *, patience: Patience | None = None, thread: bool = True
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
        chosen = patience if patience is not None else patience_from_environment()
        self._rounds = Rounds(communicator, self.ranks, chosen, thread=thread and self.size > 1)

    def submit(self, submission: Submission, *, background: bool = True, convert: Convert | None = None) -> Handle:
        """Announce a collective; it runs once all ranks have. Raises if its name is under way on this rank.

        With ``background`` false nothing happens before someone waits for it (or for about a second), and no thread is
        woken: for those who wait soon. ``convert`` turns the results into what ``wait`` gives.
        """
        return self._submit(submission, background, convert=convert)

    def run(self, submission: Submission) -> list[Any]:
        """Submit and wait."""
        return self._submit(submission, False).wait()  # type: ignore[no-any-return]

    def default_name(self, kind: str) -> str:
        """A name for what has none: ``<kind>.noname.<n>``, the same on ranks that ask equally often.

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
    ) -> Handle:
        """Allreduce a range of a buffer in place: every rank's ``own`` holds the result. ``submit`` says the rest."""
        begin, end, _ = slice(start, stop).indices(buffer.own.size)
        part = buffer.own[begin:end]
        submission = Submission("allreduce", name, (part,), (part,), op, prescale, postscale)
        return self._submit(submission, background, buffer, detail=(buffer.number, begin, max(begin, end)))

    # -- Python values; ``ringlet.io.encoding`` says what can travel --------------------------------------------------
    def broadcast_object(self, value: Any, root: int, name: str | None = None) -> Any:
        """The value of the global rank ``root``; every rank must call. The root gets its own value back as it is."""
        if root not in self.ranks:
            raise ArgumentsError(f"root {root} is not in the process set: expected one of {list(self.ranks)}")
        is_root = self.ranks[self.rank] == root
        data = _pack(value, f"the value of rank {root}") if is_root else b""
        gathered = self._gather(data, name or self.default_name("broadcast_object"))
        received = _unpack(gathered[self.ranks.index(root)], root)
        return value if is_root else received

    def allgather_object(self, value: Any, name: str | None = None) -> list[Any]:
        """The values of all ranks; every rank must call."""
        data = _pack(value, f"the value of rank {self.ranks[self.rank]}")
        gathered = self._gather(data, name or self.default_name("allgather_object"))
        return [_unpack(packed, rank) for packed, rank in zip(gathered, self.ranks, strict=True)]

    def _gather(self, data: bytes, name: str) -> list[bytes]:
        """The bytes of every rank, each after its length: one collective, whatever their lengths."""
        packed = np.frombuffer(len(data).to_bytes(8, "little") + data, np.uint8)
        [joined] = self.run(Submission("allgather", name, (packed,)))
        everything, parts = joined.tobytes(), []
        while everything:
            end = 8 + int.from_bytes(everything[:8], "little")
            parts.append(everything[8:end])
            everything = everything[end:]
        return parts

    # -- the process set ----------------------------------------------------------------------------------------------
    def group(self, ranks: Sequence[int], refusal: str = "") -> Communicator | None:
        """A communicator of some of these ranks (places in ``self.ranks``); every rank must call.

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
        """Write collectives down from now on, or not any longer."""
        self._rounds.trace = trace

    def leave(self) -> None:
        """Begin to :meth:`close`, without waiting for others."""
        if self._owner.is_here:
            self._rounds.leave()

    def close(self) -> None:
        """Leave the set: what is under way fails on all ranks, and so does what comes later. Safe to call twice."""
        if self._owner.is_here:
            self._rounds.close()

    def _together(
        self, kind: str, detail: tuple[int, ...], action: Callable[[], Any], refusal: str = "", inputs: Any = ()
    ) -> Any:
        """Do something on all ranks at the same time, in step with the collectives."""
        submission = Submission(kind, self.default_name(f"ringlet.{kind}"), inputs)
        [result] = self._submit(submission, False, None, action, detail, refusal).wait()
        return result

    def _submit(
        self,
        submission: Submission,
        background: bool,
        buffer: Buffer | None = None,
        action: Callable[[], Any] | None = None,
        detail: tuple[int, ...] = (),
        refusal: str = "",
        convert: Convert | None = None,
    ) -> Handle:
        if not self._owner.is_here:
            raise CollectiveError(self._owner.explain(f"{submission.kind} '{submission.name}'", self.ranks[self.rank]))
        key = split_name(submission.name)
        signature = self._describer.encoded(submission, key.stem, detail, refusal)
        handle = Handle(self._rounds, submission, key, signature, buffer, action, convert)
        if not self._rounds.add(handle, background=background):
            raise DuplicateNameError(
                f"{submission.kind} '{submission.name}' is already under way on rank {self.ranks[self.rank]}: wait "
                "for it before the name is used again, or give every operation a name of its own"
            )
        if self.size == 1:
            self._rounds.drive(handle)
        return handle


def _pack(value: Any, what: str) -> bytes:
    """A value that cannot travel becomes an excuse, so that the other ranks do not wait for it."""
    try:
        return _VALUE + encoding.dumps(value, what)
    except (UsageError, RecursionError) as error:
        return _EXCUSE + str(error).encode()


def _unpack(data: bytes, rank: int) -> Any:
    if data[:1] == _EXCUSE:
        raise ArgumentsError(data[1:].decode(errors="replace"))
    if data[:1] != _VALUE:
        raise DataError(f"rank {rank} sent no value: was it made by the same version of Ringlet?")
    return encoding.loads(data[1:])
