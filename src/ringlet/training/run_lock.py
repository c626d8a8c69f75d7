"""One job at a time in a run directory: a lock that ends with its process, and a note of who has it.

The system drops the lock however a process ends, so a killed run leaves nothing but its note. Other machines may not
see each other's locks (that depends on the file system): a note left by a process of another machine is believed until
the user, Ringlet's launcher or Slurm says that it has ended.
"""

from __future__ import annotations

import json
import os
import socket
import time
import weakref
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, final

from ringlet.errors import UsageError
from ringlet.forks import Owner
from ringlet.io.disk import try_lock

LOCK = "run.lock"
_GLANCE_SECONDS = 0.1
"""A watcher that looks has the lock for an instant; for this long it is asked for again."""
_PAUSE_SECONDS = 0.01
_MAX_NOTE = 4096


@dataclass(frozen=True)
class Holder:
    """The process that writes a run directory, by what it noted of itself."""

    pid: int
    host: str
    since: str
    boot: str = ""
    """Which start of which machine; containers of one machine have different names and the same start."""
    birth: str = ""
    """When the process began, which tells it from a later one with its number."""
    job: str = ""
    """The number of its Slurm job, if it has one, …"""
    restart: str = ""
    """… and how often Slurm has queued that again: the earlier ones have ended then."""

    @classmethod
    def this_process(cls) -> Self:
        """The note of the process that asks."""
        pid, now = os.getpid(), time.strftime("%Y-%m-%d %H:%M:%S %z")
        slurm = (os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"))
        return cls(pid, socket.gethostname(), now, _boot(), _birth(pid), *slurm)

    def __str__(self) -> str:
        return f"pid {self.pid} on host {self.host} since {self.since}"

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is on another machine, so that nothing here can say how it is."""
        return self.host != socket.gethostname() and (not self.boot or self.boot != _boot())

    def is_before(self, other: Holder) -> bool:
        """Whether Slurm has queued this one's job again as that of ``other``, so that this one has ended."""
        counts = [int(text) if text.isdecimal() else 0 for text in (self.restart, other.restart)]
        return bool(self.job) and self.job == other.job and counts[0] < counts[1]

    @property
    def is_alive(self) -> bool:
        """Whether a process of this machine is the one that made the note."""
        return self.boot == _boot() and bool(self.birth) and self.birth == _birth(self.pid)


@final
class RunLock:
    """The right to write into a run directory, until :meth:`release`, the end of the process or of this object."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._finalizer = weakref.finalize(self, _release, path, descriptor, Owner())

    @classmethod
    def acquire(
        cls, directory: Path, *, break_lock: bool = False, patience: float = 0.0, later_name: Path | None = None
    ) -> Self:
        """Lock ``directory``, or raise UsageError with who has it; nothing in it is changed then.

        ``patience`` is how many seconds a process may still take to end. ``break_lock`` takes over what a process of
        another machine has left; a lock that is seen to be held is never broken. ``later_name`` is what ``directory``
        is renamed to while it is locked.
        """
        path, later_path = (directory / LOCK).absolute(), ((later_name or directory) / LOCK).absolute()
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise _cannot_lock(directory, error) from None
            try:
                _take(descriptor, directory, break_lock=break_lock, patience=patience)
            except BaseException:
                os.close(descriptor)
                raise
            if _is_at(path, descriptor):
                return cls(later_path, descriptor)
            os.close(descriptor)  # its holder has ended and removed it since we opened it

    def release(self) -> None:
        """Let others in; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def is_held(directory: Path) -> bool | None:
    """Whether a process writes this run directory; None if that cannot be found out from here."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        free = try_lock(descriptor, shared=True)
        holder = _read(descriptor)
        if free is False:
            return True
        if holder is None:
            return False
        if holder.is_elsewhere:
            return None
        return False if free else holder.is_alive
    finally:
        os.close(descriptor)


def _take(descriptor: int, directory: Path, *, break_lock: bool, patience: float) -> None:
    free = _try_for(descriptor, max(patience, _GLANCE_SECONDS))
    holder = _read(descriptor)
    if free is False or (free is None and holder is not None and not holder.is_elsewhere and holder.is_alive):
        raise UsageError(
            f"run directory '{directory}' is in use by {holder or 'another process'}: wait for its end, or choose "
            "another --run-dir"
        )
    this = Holder.this_process()
    if holder is not None and holder.is_elsewhere and not (break_lock or holder.is_before(this)):
        raise UsageError(
            f"run directory '{directory}' is in use by {holder}, and it cannot be seen from {socket.gethostname()} "
            "whether that process has ended. If it has, give --break-lock"
        )
    try:
        _write(descriptor, this)
    except OSError as error:
        if free is None:  # the note is all there is
            raise _cannot_lock(directory, error) from None


def _cannot_lock(directory: Path, error: OSError) -> UsageError:
    return UsageError(f"run directory '{directory}' cannot be locked: {LOCK}: {error.strerror}")


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one under this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _try_for(descriptor: int, seconds: float) -> bool | None:
    end = time.monotonic() + seconds
    while (free := try_lock(descriptor)) is False and time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
    return free


def _write(descriptor: int, holder: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(holder)).encode() + b"\n", 0)


def _read(descriptor: int) -> Holder | None:
    """Who has the lock, or had it and could not remove it; None if the file does not say."""
    try:
        note: Any = json.loads(os.pread(descriptor, _MAX_NOTE, 0) or b"null")
        if note is None:
            return None
        texts = {key: str(note[key])[:200] for key in ("host", "since", "boot", "birth", "job", "restart")}
        return Holder(int(note["pid"]), **texts)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _release(path: Path, descriptor: int, owner: Owner) -> None:
    """Remove the file and unlock; a forked child has the descriptor, but not the lock."""
    with suppress(OSError):
        if owner.is_here and _is_at(path, descriptor):
            path.unlink()
    os.close(descriptor)


def _boot() -> str:
    """A text that is new with every start of the machine; empty where the kernel has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _birth(pid: int) -> str:
    """When a process began, as the kernel counts; empty where it does not say, or if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
