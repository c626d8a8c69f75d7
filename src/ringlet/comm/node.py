"""Ranks of one machine that meet in shared memory: no MPI, no network.

Two channels lie in one segment, one for collectives that are called and one for those that are started, so that both
may be under way at the same time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, final
from weakref import WeakSet

import numpy as np
from numpy.typing import DTypeLike

from ringlet import forks
from ringlet.comm import arrays
from ringlet.comm.channel import Channel, layout, open_channel
from ringlet.comm.channel.layout import is_running
from ringlet.comm.collective import Array, Background, Collective, Op, Result
from ringlet.comm.contract import Communicator, Handle
from ringlet.comm.environments import LAUNCHER_PID
from ringlet.comm.memory import Segment, attach_segment, create_segment, share_segment
from ringlet.comm.single import SingleCommunicator
from ringlet.comm.window import LocalWindow, Window
from ringlet.errors import CommunicationError, RankFailedError
from ringlet.forks import Owner
from ringlet.io.disk import free_bytes, replacing
from ringlet.output_streams import flush_streams

MAX_CACHED = 4096
"""Kinds of calls whose descriptions are kept; beyond them all are dropped and made again."""
TOKEN_FILE = "segment"  # noqa: S105 (a file's name)
SECONDS_TO_MEET = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05

_OPEN: WeakSet[NodeCommunicator] = WeakSet()
"""All that this process can be waited for in."""


def segment_bytes(size: int) -> int:
    """The bytes of the segment that ``size`` ranks need for a :class:`NodeCommunicator`."""
    return 2 * _lane_bytes(size)


def join_node(job: str, rank: int, size: int) -> NodeCommunicator:
    """The communicator of a local job, whose ranks meet in the directory ``job``; every rank must call."""
    segment = meet_in_directory(job, rank, segment_bytes(size))
    communicator = NodeCommunicator(segment, rank, size)
    communicator.barrier()  # all have attached
    segment.seal()
    return communicator


class Call(NamedTuple):
    """What is the same for all calls of a collective with the same facts."""

    signature: bytes
    """What ranks compare before they exchange anything."""
    plan: Any
    """See ``Collective.plan``."""
    refusal: CommunicationError | None
    """Why none of them can work."""


@final
class NodeCommunicator(Communicator):
    """Ranks ``0 … size - 1`` over a segment of :func:`segment_bytes` that all of them have attached."""

    name = "node"

    def __init__(self, segment: Segment, rank: int, size: int, *, lane: Literal[0, 1] = 0) -> None:
        """``lane`` 1 is the second channel of the segment, for what is started."""
        self.rank = rank
        self.size = size
        self.machines = [range(size)]
        self._owner = Owner()
        self._segment: Segment | None = segment
        start = lane * _lane_bytes(size)
        memory = segment.buffer[start : start + layout.channel_bytes(size)]
        self._control = layout.control_blocks(memory, size)[rank : rank + 1]
        self._channel: Channel | None = open_channel(memory, rank, size)
        self._calls: dict[Hashable, Call] = {}
        self._background: Background | None = None
        self._cross = SingleCommunicator()
        _OPEN.add(self)

    @property
    def local(self) -> Communicator:
        """Itself."""
        return self

    @property
    def cross(self) -> Communicator:
        """This rank alone."""
        return self._cross

    # -- collectives --------------------------------------------------------------------------------------------------
    def run(self, collective: Collective[Result], *arguments: Any) -> Result:
        """Through the channel. If this rank must refuse its call, the others, who do not know, get an error too."""
        channel = self._channel
        if channel is None or self._owner.process != forks.here:
            channel = self._open_channel(collective.name)
        if collective.facts is None:
            call = self._calls.get(collective.name) or self._describe(collective.name, collective, ())
        else:
            facts = collective.facts(*arguments)
            key = (collective.name, facts)
            call = self._calls.get(key) or self._describe(key, collective, facts)
            if call.refusal is not None:
                self._refuse(channel, call.signature, call.refusal)
        if collective.prepare is not None:
            try:
                arguments = collective.prepare(self.size, *arguments)
            except CommunicationError as error:
                self._refuse(channel, call.signature, error)
        if collective.node is not None:
            return collective.node(self, channel, call, *arguments)
        assert collective.composed is not None
        return collective.composed(self, *arguments)

    def _describe(self, key: Hashable, collective: Collective[Any], facts: tuple[Any, ...]) -> Call:
        refusal = None
        try:
            if collective.check is not None:
                collective.check(*facts)
        except CommunicationError as error:
            refusal = error
        plan = None if refusal is not None or collective.plan is None else collective.plan(*facts)
        call = Call(_signature(collective.name, facts), plan, refusal)
        if len(self._calls) >= MAX_CACHED:
            self._calls.clear()
        self._calls[key] = call
        return call

    def begin(self, collective: Collective[Any], *arguments: Any) -> Handle:
        """In a thread, over the second channel."""
        self._open_channel(collective.name)
        if self._background is None:
            segment, rank, size = self._segment, self.rank, self.size
            assert segment is not None
            self._background = Background(lambda: NodeCommunicator(segment, rank, size, lane=1))
        return self._background.submit(collective, *arguments)

    # -- memory, groups -----------------------------------------------------------------------------------------------
    def shared_array(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> Array:
        """A segment of its own, made by rank 0."""
        channel = self._open_channel("shared_array")
        wanted = np.dtype(dtype)
        extents = tuple(int(extent) for extent in (shape if isinstance(shape, tuple) else (shape,)))
        signature = layout.signature(f"shared_array({extents}, {wanted})")
        self._agreed(channel, signature, arrays.check_movable, wanted)
        num_bytes = int(np.prod(extents, dtype=np.int64)) * wanted.itemsize
        segment = self._share(num_bytes, range(self.size))
        assert segment is not None
        array: Array = segment.buffer.view(wanted).reshape(extents)
        return array

    def window(self, num_bytes: int) -> Window:
        """A segment of its own, and a lock."""
        self._open_channel("window")
        return LocalWindow(self, num_bytes)

    def group(self, ranks: Sequence[int]) -> Communicator | None:
        """The same over a segment of their own."""
        channel = self._open_channel("group")
        signature = layout.signature(f"group({list(ranks)})")
        chosen = self._agreed(channel, signature, arrays.check_ranks, ranks, self.size)
        if len(chosen) == 1:
            return SingleCommunicator() if self.rank == chosen[0] else None
        segment = self._share(segment_bytes(len(chosen)), chosen)
        return None if segment is None else NodeCommunicator(segment, chosen.index(self.rank), len(chosen))

    def _share(self, num_bytes: int, members: Sequence[int]) -> Segment | None:
        """A new segment for the members; every rank must call."""
        maker = members[0]
        role: Literal["maker", "member", "bystander"] = "bystander"
        if self.rank in members:
            role = "maker" if self.rank == maker else "member"
        return share_segment(
            num_bytes,
            role,
            lambda token: self.broadcast_bytes(token if self.rank == maker else None, maker),
            lambda ready: bool(self.allreduce(np.array([ready]), Op.MIN)[0]),
        )

    # -- the end ------------------------------------------------------------------------------------------------------
    def fail(self) -> None:
        """End all waiting in collectives that are called, on all ranks and for good: so a thread leaves that must."""
        if self._channel is not None and self._owner.is_here:
            self._channel.fail(self.rank)

    def abort(self, exit_code: int) -> None:
        """Tell all ranks that wait for this one, then end this process at once; the launcher ends the others."""
        for communicator in list(_OPEN):
            channel = communicator._channel
            if channel is not None and communicator._owner.is_here:
                channel.fail(communicator.rank)
        flush_streams()
        os._exit(exit_code)

    def close(self) -> None:
        """Finish what was started; ranks that still wait for this one get an error."""
        if self._channel is None:
            return
        if self._owner.is_here:
            if self._background is not None:
                self._background.close()
            layout.sign_out(self._control)
        self._channel = None
        self._segment = None
        _OPEN.discard(self)

    # -- agreement ----------------------------------------------------------------------------------------------------
    def _open_channel(self, collective: str) -> Channel:
        if self._channel is None:
            raise CommunicationError(f"{collective} was called on a closed communicator: call it before close()")
        self._owner.check(collective, self.rank)
        return self._channel

    def _agreed(self, channel: Channel, signature: bytes, check: Callable[..., Any], *arguments: Any) -> Any:
        """What ``check`` gives, after all ranks have agreed on the signature."""
        try:
            result = check(*arguments)
        except CommunicationError as error:
            self._refuse(channel, signature, error)
        stranger = channel.barrier(signature)
        if stranger >= 0:
            self.raise_disagreement(channel, stranger)
        return result

    def _refuse(self, channel: Channel, signature: bytes, error: CommunicationError) -> NoReturn:
        refused = layout.signature(f"{signature[8:].decode(errors='replace')}, refused")
        stranger = channel.barrier(refused)
        if stranger >= 0:
            self.raise_disagreement(channel, stranger)
        raise error from None

    def raise_disagreement(self, channel: Channel, stranger: int) -> NoReturn:
        """The signature of rank ``stranger`` differs from that of rank 0."""
        calls = [channel.text(rank).decode(errors="replace") for rank in (0, stranger)]
        raise CommunicationError(
            f"ranks disagree: rank 0 called {calls[0]}, rank {stranger} called {calls[1]} (this is rank {self.rank} of "
            f"{self.size}). Every rank must call the same collectives in the same order, with arrays that fit"
        )


def _lane_bytes(size: int) -> int:
    """Of one channel, in whole pages."""
    return -(-layout.channel_bytes(size) // layout.PAGE_BYTES) * layout.PAGE_BYTES


def _signature(collective: str, facts: tuple[Any, ...]) -> bytes:
    """Of a call, in words that people can read."""
    return layout.signature(f"{collective}({', '.join(map(_fact_text, facts))})")


def _fact_text(fact: Any) -> str:
    if isinstance(fact, np.dtype):
        return dtype_text(fact)
    if isinstance(fact, Op):
        return fact.value
    return f"shape {fact}" if isinstance(fact, tuple) else str(fact)


def dtype_text(dtype: np.dtype[Any]) -> str:
    """A name that tells dtypes apart whose bytes differ."""
    if dtype.names is not None:
        return str(dtype.descr)
    return dtype.name if dtype.isnative else dtype.str


# -- how the ranks of a local job find each other: through a directory of their own that the launcher has made --------
def meet_in_directory(job: str, rank: int, num_bytes: int) -> Segment:
    """The first segment of a job: rank 0 makes it and leaves its token in the directory, the others wait for that."""
    directory = Path(job)
    if not directory.is_dir():
        raise CommunicationError(
            f"RINGLET_JOB names '{job}', which is no directory: the launcher makes it. Start ranks with: ringlet run"
        )
    if rank != 0:
        return attach_segment(_wait_for_token(directory, rank))
    segment = create_segment(num_bytes)
    try:
        with replacing(directory / TOKEN_FILE, durable=False) as draft, open(draft, "xb", opener=_private) as file:
            file.write(segment.token)
    except OSError as error:
        raise CommunicationError(
            f"the ranks cannot meet in {directory}: {error.strerror}; {len(segment.token)} bytes are needed, "
            f"{free_bytes(directory)}. Make room there, or set TMPDIR to a directory that has it"
        ) from error
    return segment


def _wait_for_token(directory: Path, rank: int) -> bytes:
    path, pause = directory / TOKEN_FILE, _FIRST_PAUSE
    deadline = time.monotonic() + SECONDS_TO_MEET
    while True:
        with suppress(FileNotFoundError):
            return path.read_bytes()
        if not _launcher_is_there():
            raise RankFailedError(f"rank {rank} waited for rank 0, but the launcher has ended: start the job again")
        if time.monotonic() > deadline:
            raise RankFailedError(
                f"rank {rank} has waited {SECONDS_TO_MEET:.0f} s for rank 0, which never came. "
                "Every rank must run ringlet.init() (or the same command) at about the same time"
            )
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _launcher_is_there() -> bool:
    """Also true if no one said who it is."""
    text = os.environ.get(LAUNCHER_PID, "")
    return not (text.isascii() and text.isdecimal()) or is_running(int(text))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
