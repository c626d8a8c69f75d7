"""Files that the disk may refuse at any moment, and the one way in which a run takes that.

It is said, with needed and free bytes where they are known; the file that was there before stays as it was; the work
goes on, and the next write is tried as planned (:class:`Saving`). What is replaced is written beside its name and
renamed (:func:`replacing`, :func:`write_whole`), what grows does so by whole records (:class:`Appender`), what is
mapped into memory gets its room first (:func:`reserve`), and a file in use may be locked (:func:`try_lock`).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, final

from ringlet.errors import FileWriteError, RingletError

_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Say = Callable[[str], None]


def explain(error: BaseException, near: Path, num_bytes: int | None = None) -> str:
    """Why something could not be written at or below ``near``; of a full disk with needed and free bytes."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    if not isinstance(error, OSError) or error.errno not in FULL:
        return reason
    needed = "" if num_bytes is None else f"about {num_bytes:,} bytes are needed, "
    return f"the disk or quota is full ({reason}): {needed}{free_bytes(near)}"


def free_bytes(near: Path) -> str:
    """How much room there is at or above ``near``, in words for a message."""
    try:
        folder = next(folder for folder in (near, *near.absolute().parents) if folder.exists())
        return f"{shutil.disk_usage(folder).free:,} bytes are free"
    except OSError:
        return "how much is free is unknown"


@contextlib.contextmanager
def replacing(target: Path, *, durable: bool = True) -> Iterator[Path]:
    """Within: a path to write to, which then takes the place of ``target``; after an error all is as it was.

    ``durable`` waits for the disk, so that the file is whole after a power loss too.
    """
    draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.partial")
    try:
        yield draft
        if durable:
            synchronise(draft)
        draft.replace(target)
        if durable:
            synchronise(target.parent)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def synchronise(path: Path) -> None:
    """Wait until a file, or the list of names in a directory, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(target: Path, content: bytes | Callable[[BinaryIO], object], *, durable: bool = True) -> None:
    """Write or replace a file, which then has all of ``content`` or is as it was; otherwise FileWriteError."""
    try:
        with replacing(target, durable=durable) as draft, draft.open("xb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
    except OSError as error:
        size = len(content) if isinstance(content, bytes) else None
        raise FileWriteError(f"cannot write {target}: {explain(error, target, size)}") from error


@final
class Appender:
    """Appends whole records to a file. One that the disk does not take leaves no trace, whenever that can be wiped."""

    def __init__(self, path: Path, *, afresh: bool = False) -> None:
        """``afresh`` begins with an empty file."""
        self.path = path
        self._is_torn = self._is_stale = False
        self._descriptor = os.open(path, _APPEND | (os.O_TRUNC if afresh else 0), 0o666)
        self._size = os.fstat(self._descriptor).st_size

    @property
    def size(self) -> int:
        """Bytes of whole records; someone else may have shortened the file."""
        try:
            return min(self._size, os.fstat(self._descriptor).st_size)
        except OSError:
            return self._size

    def append(self, record: bytes) -> None:
        """Write all of it, or nothing and raise FileWriteError."""
        rest = memoryview(record)
        try:
            if self._is_torn:
                self._restore()
            self._is_torn = True
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            self._is_stale = error.errno == errno.ESTALE
            with contextlib.suppress(OSError):  # tried again before the next record
                self._restore()
            raise FileWriteError(f"cannot write {self.path}: {explain(error, self.path, len(record))}") from error
        self._size += len(record)
        self._is_torn = False

    def cut(self, size: int) -> None:
        """Keep the first ``size`` bytes, at most."""
        if size < os.fstat(self._descriptor).st_size:
            os.ftruncate(self._descriptor, size)
        self._size = min(size, self._size)

    def _restore(self) -> None:
        """Wipe what there is of a record that was not finished."""
        if self._is_stale:
            again = os.open(self.path, _APPEND, 0o666)
            os.dup2(again, self._descriptor, inheritable=False)
            os.close(again)
            self._is_stale = False
        self.cut(self._size)
        self._is_torn = False

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def is_refusal(error: Exception) -> bool:
    """Whether this is about a file that the system would not write, also in the words of another error."""
    return isinstance(error, OSError) or isinstance(error.__cause__, OSError)


@final
class Saving:
    """Lets work go on when one of its files cannot be written: that is said, once until it works again."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self._failed: dict[str, Exception] = {}
        self._needed: set[str] = set()

    def attempt(
        self,
        name: str,
        write: Callable[[], object],
        *,
        is_needed: bool = False,
        is_refusal: Callable[[Exception], bool] = is_refusal,
    ) -> bool:
        """Write; whether that worked. Without what ``is_needed`` the work has failed in the end (:meth:`check`)."""
        if is_needed:
            self._needed.add(name)
        try:
            write()
        except Exception as error:
            if not is_refusal(error):
                raise
            if name not in self._failed:
                self.say(f"{error}. The run goes on; the next {name} is tried as planned")
            self._failed[name] = error
            return False
        if self._failed.pop(name, None) is not None:
            self.say(f"the {name} can be written again")
        return True

    def check(self) -> None:
        """Raise what went wrong if the last attempt to write something that is needed has failed."""
        errors = [error for name, error in self._failed.items() if name in self._needed]
        if len(errors) == 1 and isinstance(errors[0], RingletError):
            raise errors[0]
        if errors:
            raise FileWriteError("\n".join(map(str, errors)))


# -- room for what is mapped into memory ------------------------------------------------------------------------------
_CHUNK = 1 << 20


def reserve(descriptor: int, num_bytes: int) -> None:
    """Make a new file ``num_bytes`` long, with room for all of them; ``OSError`` if there is not enough.

    A file that is only *made long* has no place for its content yet. A process that writes to its mapping where there
    is none left gets no error: it is killed (SIGBUS).
    """
    try:
        os.posix_fallocate(descriptor, 0, max(num_bytes, 1))
    except AttributeError:
        _write_zeros(descriptor, num_bytes)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
        _write_zeros(descriptor, num_bytes)
    os.ftruncate(descriptor, max(num_bytes, 1))


def _write_zeros(descriptor: int, num_bytes: int) -> None:
    """Where the file system cannot reserve: what has been written has its place."""
    zeros = bytes(min(_CHUNK, max(num_bytes, 1)))
    position = 0
    while position < num_bytes:
        position += os.pwrite(descriptor, zeros[: num_bytes - position], position)


# -- locks ------------------------------------------------------------------------------------------------------------
def try_lock(descriptor: int, *, shared: bool = False) -> bool | None:
    """Whether the lock was free, and is ours now until the file is closed; None where the file system has no locks.

    It ends with the process that has it, however that ends: a mark that someone is at work.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
