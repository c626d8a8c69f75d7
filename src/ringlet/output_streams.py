"""Standard output and error that may be lost: a reader that dies, a closed terminal or a full disk ends no work.

What cannot be written is dropped, once and for all where no one reads any more (the stream becomes ``/dev/null``), and
until there is room again in a file. :data:`losses` says what happened to which stream. A program whose whole purpose is
its output asks to be stopped instead (:func:`end_with_output`). What a process has printed reaches its reader before
the process ends the job (:func:`flush_streams`, :func:`drain_streams`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import select
import stat
import struct
import sys
import termios
from collections.abc import Iterator
from time import monotonic, sleep
from typing import IO, Any, NamedTuple, final

STDOUT, STDERR = 1, 2
READ_SECONDS = 2.0
"""How long a reader has for what lies in a pipe: one that is stopped must not keep a failed job alive."""
_LOOK_SECONDS = 0.002
_NAMES = {STDOUT: "stdout", STDERR: "stderr"}


class Loss(NamedTuple):
    """A stream on which something could not be written, and why."""

    stream: str
    reason: str
    is_closed: bool
    """Whether the reader has gone, as ``head`` does when it has seen enough."""


class OutputLostError(Exception):
    """Output that was asked for is lost. No OSError: libraries have ideas about those."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(f"{loss.stream} cannot be written: {loss.reason}")
        self.loss = loss
        self.is_quiet = loss.is_closed and STDOUT in _ends_with
        """Whether that is no news to anyone: the reader of a list has seen enough."""


losses: dict[int, Loss] = {}
"""What was lost in this process, by the number of the stream."""
_ends_with: set[int] = set()


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of ``data``, waiting for a slow reader; what no one takes is dropped."""
    rest = memoryview(data).cast("B")
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
        except OSError as error:
            _lose(descriptor, error)
            return


def _lose(descriptor: int, error: OSError) -> None:
    """Take note of it, once; a stream that is no file is of no use any more."""
    is_known = descriptor in losses
    reason, is_closed = error.strerror or str(error), error.errno == errno.EPIPE
    losses.setdefault(descriptor, Loss(_NAMES.get(descriptor, str(descriptor)), reason, is_closed))
    if not _is_file(descriptor):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)
    if descriptor == STDOUT and not is_known and STDOUT not in _ends_with:
        write_all(STDERR, f"note: stdout cannot be written any more ({reason}): what follows is not shown\n".encode())


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


@final
class _Stream(io.FileIO):
    """The lowest layer of a stream, which never fails but where the program is to end with it."""

    def write(self, data: Any) -> int:
        """Write all of it."""
        write_all(self.fileno(), data)
        if self.fileno() in _ends_with and self.fileno() in losses:
            raise OutputLostError(losses[self.fileno()])
        return memoryview(data).nbytes


def install() -> None:
    """Put this layer under ``sys.stdout`` and ``sys.stderr`` of this process.

    Streams that were closed when it began lead nowhere: otherwise the next file that is opened would take their number,
    and with it all that is printed.
    """
    for descriptor in (0, STDOUT, STDERR):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            continue
        os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(descriptor, True)
    sys.stdout, sys.stderr = _wrapped(sys.stdout, STDOUT), _wrapped(sys.stderr, STDERR)


def _wrapped(stream: Any, descriptor: int) -> Any:
    """The same stream on a layer of ours; one that does not lead to ``descriptor`` (in a test, a notebook) as it is."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123  as long as the process
    if not isinstance(stream, io.TextIOWrapper) or isinstance(getattr(stream.buffer, "raw", stream.buffer), _Stream):
        return stream
    try:
        if stream.fileno() != descriptor:
            return stream
    except (OSError, ValueError):
        return stream
    stream.flush()
    raw = _Stream(descriptor, "w", closefd=False)
    layer: IO[bytes] = raw if isinstance(stream.buffer, io.RawIOBase) else io.BufferedWriter(raw)
    return io.TextIOWrapper(
        layer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


@contextlib.contextmanager
def end_with_output() -> Iterator[None]:
    """Within: a lost standard output raises :class:`OutputLostError`, here or at the end of the block at the latest.

    But not after :func:`outlive_output`.
    """
    _ends_with.add(STDOUT)
    try:
        yield
        if STDOUT in _ends_with:
            check_delivered()
    finally:
        _ends_with.discard(STDOUT)


def outlive_output() -> None:
    """From now on the work of this program counts, not what it prints."""
    _ends_with.discard(STDOUT)


def check_delivered() -> None:
    """Raise :class:`OutputLostError` if anything that was printed to the standard output has been lost."""
    with contextlib.suppress(AttributeError, ValueError):  # no such stream, or a closed one
        sys.stdout.flush()
    if STDOUT in losses:
        raise OutputLostError(losses[STDOUT])


def flush_streams() -> None:
    """Write out what Python holds back of the standard output and error.

    The program may have closed them, or their reader may be gone: the job still ends.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def drain_streams() -> None:
    """Flush, and wait until the readers of pipes have taken everything.

    For a launcher that ends the ranks and forgets what it has not read yet when one of them aborts, as mpiexec does.
    """
    flush_streams()
    deadline = monotonic() + READ_SECONDS
    for descriptor in (STDOUT, STDERR):
        while _num_unread(descriptor) and monotonic() < deadline:
            sleep(_LOOK_SECONDS)


def _num_unread(descriptor: int) -> int:
    """Bytes in a pipe; 0 for anything else."""
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])
    except OSError:
        return 0
