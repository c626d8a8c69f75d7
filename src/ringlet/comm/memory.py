"""Memory that the processes of one machine share: made by one of them, found by the others through a token.

On Linux a segment has no name in any file system (``memfd``): it is not limited by the size of ``/dev/shm`` and is gone
with the last process that maps it, however that ended. Where others cannot open it (no ``/proc``, another process
namespace) a private file in ``/dev/shm`` or the directory for temporary files serves; its name is removed as soon as
all have attached. A mapping lives as long as the arrays made from it.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import CommunicationError
from ringlet.forks import Owner
from ringlet.io.disk import free_bytes, reserve

Kind = Literal["anonymous", "file"]
KINDS: tuple[Kind, ...] = ("anonymous", "file")
"""Ways to share memory, the preferred one first."""

_MAGIC = "ringlet segment 1"
_MAX_TOKEN_BYTES = 4096
_FIELDS = {"magic": str, "kind": str, "path": str, "bytes": int, "device": int, "inode": int, "machine": str}


@final
class Segment:
    """Shared bytes, zero when new. :attr:`token` lets another process of this machine :func:`attach_segment`."""

    def __init__(self, token: bytes, buffer: NDArray[np.uint8], release: Callable[[], None] | None = None) -> None:
        self.token = token
        self.buffer = buffer
        """All bytes, writable, aligned to a page."""
        self._release = release
        self._owner = Owner()

    def seal(self) -> None:
        """Make the token useless, when all have attached: nothing but the mappings keeps the memory from now on."""
        release, self._release = self._release, None
        if release is not None and self._owner.is_here:
            release()

    def __del__(self) -> None:
        with suppress(OSError):
            self.seal()


def create_segment(num_bytes: int, kind: Kind | None = None) -> Segment:
    """A new segment of ``num_bytes`` zeros; ``kind`` defaults to the best one that this process can offer."""
    if num_bytes < 0:
        raise CommunicationError(f"cannot share {num_bytes} bytes of memory: expected a number >= 0")
    wanted = kind if kind is not None else KINDS[0] if _anonymous_works() else KINDS[1]
    return _create_anonymous(num_bytes) if wanted == "anonymous" else _create_file(num_bytes)


def attach_segment(token: bytes) -> Segment:
    """The segment that another process of this machine made; ``CommunicationError`` if it cannot be reached."""
    fields = _parse_token(token)
    if fields["machine"] != machine_id():
        raise CommunicationError(
            f"memory of machine {fields['machine']} cannot be shared with this machine ({machine_id()}): "
            "only ranks of one machine can attach to it"
        )
    with _descriptor(Path(fields["path"]), os.O_RDWR | os.O_CLOEXEC | _no_follow(fields["kind"])) as descriptor:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != (fields["device"], fields["inode"]) or not stat.S_ISREG(status.st_mode):
            raise CommunicationError(
                f"{fields['path']} is not the shared memory that was announced there: its maker has ended, or lives in "
                "another process namespace. Start all ranks of a machine in one container"
            )
        if status.st_size < fields["bytes"]:
            raise CommunicationError(
                f"shared memory {fields['path']} has {status.st_size} bytes, expected at least {fields['bytes']}"
            )
        return Segment(token, _map(descriptor, fields["bytes"]))


def share_segment(
    num_bytes: int,
    role: Literal["maker", "member", "bystander"],
    broadcast: Callable[[bytes], bytes],
    agree: Callable[[bool], bool],
) -> Segment | None:
    """A new segment for some ranks of a machine; every rank that ``broadcast`` and ``agree`` speak to must call.

    ``broadcast`` gives all ranks the bytes of the one maker; ``agree`` tells whether its argument was true on all.
    Tries every kind in turn until all members have attached. Bystanders get None.
    """
    problem = "no rank could make it"
    for kind in KINDS:
        segment, failure = _make_or_attach(num_bytes, kind, role, broadcast)
        all_ready = agree(role == "bystander" or segment is not None)
        if segment is not None:
            segment.seal()
        if all_ready:
            return segment
        problem = failure or "another rank could not attach"
    raise CommunicationError(
        f"the ranks of this machine cannot share {num_bytes} bytes of memory ({problem}). Start them in one container, "
        "or with a /dev/shm that all of them see and that is large enough"
    )


@cache
def machine_id() -> str:
    """Tells this machine, since its last start, from all others."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return os.uname().nodename


def _make_or_attach(
    num_bytes: int, kind: Kind, role: str, broadcast: Callable[[bytes], bytes]
) -> tuple[Segment | None, str | None]:
    """This rank's segment or why it has none; the maker always broadcasts, if only nothing."""
    segment, failure = None, None
    if role == "maker":
        try:
            segment = create_segment(num_bytes, kind)
        except (CommunicationError, OSError) as error:
            failure = str(error)
        broadcast(segment.token if segment is not None else b"")
        return segment, failure
    token = broadcast(b"")
    try:
        segment = attach_segment(token) if token and role == "member" else None
    except CommunicationError as error:
        failure = str(error)
    return segment, failure


@cache
def _anonymous_works() -> bool:
    """Whether other processes could open anonymous memory of this one."""
    try:
        segment = _create_anonymous(mmap.PAGESIZE)
        attach_segment(segment.token)
    except (CommunicationError, OSError):
        return False
    segment.seal()
    return True


def _create_anonymous(num_bytes: int) -> Segment:
    if not hasattr(os, "memfd_create"):
        raise CommunicationError("this system has no anonymous shared memory (memfd_create)")
    descriptor = os.memfd_create("ringlet", os.MFD_CLOEXEC)
    try:
        _size_anonymous(descriptor, num_bytes)
        buffer = _map(descriptor, num_bytes)
        token = _make_token("anonymous", Path(f"/proc/{os.getpid()}/fd/{descriptor}"), num_bytes, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return Segment(token, buffer, lambda: os.close(descriptor))


def _size_anonymous(descriptor: int, num_bytes: int) -> None:
    """Pages are found when they are first touched: on the memory node of that rank, and none for what is never used.

    Where the system commits no more memory than it has (``vm.overcommit_memory`` 2), to find none kills; so there all
    of them are found now.
    """
    if not _commits_strictly():
        os.ftruncate(descriptor, max(num_bytes, 1))
        return
    try:
        reserve(descriptor, num_bytes)
    except OSError as error:
        raise CommunicationError(
            f"cannot reserve {num_bytes:,} bytes of shared memory ({error.strerror}): {_uncommitted()}, and the system "
            "lends no more (vm.overcommit_memory = 2). Use fewer workers or a smaller model, or let the administrator "
            "raise vm.overcommit_ratio"
        ) from error


@cache
def _commits_strictly() -> bool:
    with suppress(OSError):
        return Path("/proc/sys/vm/overcommit_memory").read_text(encoding="ascii").strip() == "2"
    return False


def _uncommitted() -> str:
    """How much memory the system would still lend."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return f"{max(0, fields['CommitLimit'] - fields['Committed_AS']) * 1024:,} bytes are free"
    return "how much is free is unknown"


def _create_file(num_bytes: int) -> Segment:
    problems = []
    for directory in dict.fromkeys((Path("/dev/shm"), Path(tempfile.gettempdir()))):  # noqa: S108 (names are unguessable)
        if not os.access(directory, os.W_OK | os.X_OK):
            continue
        try:
            return _create_file_in(directory, num_bytes)
        except OSError as error:
            problems.append(f"{directory}: {error.strerror}, {free_bytes(directory)}")
    raise CommunicationError(
        f"cannot make a file of {num_bytes:,} bytes to share memory ({'; '.join(problems) or 'no directory for it'}). "
        "Make room there (containers: a larger --shm-size) or set TMPDIR to a directory that has it"
    )


def _create_file_in(directory: Path, num_bytes: int) -> Segment:
    path = directory / f"ringlet-{secrets.token_hex(16)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        reserve(descriptor, num_bytes)
        buffer = _map(descriptor, num_bytes)
        token = _make_token("file", path, num_bytes, os.fstat(descriptor))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return Segment(token, buffer, lambda: path.unlink(missing_ok=True))


def _map(descriptor: int, num_bytes: int) -> NDArray[np.uint8]:
    mapping = mmap.mmap(descriptor, max(num_bytes, 1))
    if num_bytes >= 1 << 21:
        with suppress(AttributeError, OSError):  # fewer address translations, where the system allows it
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(mapping, np.uint8, num_bytes)


def _make_token(kind: Kind, path: Path, num_bytes: int, status: os.stat_result) -> bytes:
    fields = {
        "magic": _MAGIC,
        "kind": kind,
        "path": str(path),
        "bytes": num_bytes,
        "device": status.st_dev,
        "inode": status.st_ino,
        "machine": machine_id(),
    }
    return json.dumps(fields).encode()


def _parse_token(token: bytes) -> dict[str, Any]:
    """The fields of a token; anything else than what :func:`_make_token` writes is refused."""
    fields: Any = None
    if len(token) <= _MAX_TOKEN_BYTES:
        with suppress(ValueError, RecursionError):
            fields = json.loads(token)
    sound = (
        isinstance(fields, dict)
        and fields.keys() == _FIELDS.keys()
        and all(type(fields[name]) is expected for name, expected in _FIELDS.items())
        and fields["magic"] == _MAGIC
        and fields["kind"] in KINDS
        and fields["bytes"] >= 0
        and "\0" not in fields["path"]
    )
    if not sound:
        raise CommunicationError(
            f"expected the token of a shared memory segment, got {token[:60]!r}: "
            "do all ranks run one version of Ringlet?"
        )
    return dict(fields)


def _no_follow(kind: str) -> int:
    return os.O_NOFOLLOW if kind == "file" else 0  # what /proc shows as open files are links


@contextmanager
def _descriptor(path: Path, flags: int) -> Iterator[int]:
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise CommunicationError(
            f"cannot open the shared memory {path} ({error.strerror}): its maker has ended, or others may not open it. "
            "Start all ranks of a machine as one user in one container"
        ) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
