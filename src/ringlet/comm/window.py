"""Memory that every rank reads and writes by itself, without the others' doing: a window with one lock.

Among ranks of one machine it is shared memory, and the lock is the kernel's lock of a file that has no name any more:
a rank that ends, however it ends, lets go of it. The kernel guards the locks of a file by one of its own; what a rank
has written before it lets go is seen by the next one that holds it, on every processor. Between machines see
:class:`ringlet.comm.mpi.MpiWindow`.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import CommunicationError
from ringlet.forks import Owner

if TYPE_CHECKING:
    from ringlet.comm.contract import Communicator

Bytes = NDArray[np.uint8]


class Window(ABC):
    """``num_bytes`` bytes, at first zero, that are the same for all ranks of a communicator."""

    num_bytes: int

    @abstractmethod
    def locked(self, num_bytes: int | None = None) -> AbstractContextManager[Bytes]:
        """Within: no other rank is; gives the first ``num_bytes`` (default: all), changes of which others will see."""


@final
class LocalWindow(Window):
    """A window of the ranks of one machine; every rank of ``comm`` must call the constructor."""

    def __init__(self, comm: Communicator, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self._owner = Owner()
        self._rank = comm.rank
        self._memory: Bytes = comm.shared_array(num_bytes, np.uint8)
        self._descriptor = -1
        if comm.size > 1:
            self._descriptor = _open_lock(comm)

    @contextmanager
    def locked(self, num_bytes: int | None = None) -> Iterator[Bytes]:
        """The shared memory itself."""
        if self._descriptor < 0:
            yield self._memory[:num_bytes]
            return
        self._owner.check("the lock of a window", self._rank)
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield self._memory[:num_bytes]
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0 and self._owner.is_here:
            with suppress(OSError):
                os.close(self._descriptor)


def _open_lock(comm: Communicator) -> int:
    """A file that all ranks of a machine have open and no one can find; every rank must call."""
    path, descriptor, problem = b"", -1, ""
    try:
        if comm.rank == 0:
            descriptor, path = _create_file()
    except OSError as error:
        problem = str(error)
    path = comm.broadcast_bytes(path if comm.rank == 0 else None)
    if comm.rank != 0 and path:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            problem = str(error)
    problems = [text.decode() for text in comm.allgather_bytes(problem.encode()) if text]
    if comm.rank == 0 and path:
        Path(os.fsdecode(path)).unlink()
    if problems:
        if descriptor >= 0:
            os.close(descriptor)
        raise CommunicationError(
            f"the ranks of this machine cannot lock a file together ({problems[0]}). Start them as one user in one "
            "container, with a /dev/shm or TMPDIR that all of them see"
        )
    return descriptor


def _create_file() -> tuple[int, bytes]:
    folders = [path for path in (Path("/dev/shm"), Path(tempfile.gettempdir())) if os.access(path, os.W_OK | os.X_OK)]  # noqa: S108 (names are unguessable)
    if not folders:
        raise OSError("no directory for it")
    path = folders[0] / f"ringlet-{secrets.token_hex(16)}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), os.fsencode(path)
