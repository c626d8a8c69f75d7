"""Order between what a rank writes and the number by which others learn of it, for the channel without C++.

x86 shows the writes of one processor to all others in their order. Others (arm64, POWER, RISC-V) do not, and to take
and release a lock of Python is no fence there: the write before it and the write after it may both move into the locked
section, and change places. What orders everything before it and everything after it is one of these:

- a fence of the compiled module, where it is there and the NumPy kernels were asked for;
- ``atomic_thread_fence`` of libatomic, called through ctypes: one instruction of the processor;
- the system call ``membarrier`` (Linux 4.16): processes that have registered get a full barrier on each processor they
  run on before it returns, the caller's own included. It costs microseconds.

Both sides of an exchange use their fence: the writer between data and number, the reader between number and data.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from ringlet.errors import CommunicationError

Fence = Callable[[], object]

ORDERED = frozenset({"x86_64", "amd64", "i386", "i486", "i586", "i686"})
"""Processors whose locks are full fences."""
_SYSTEM_CALL = {
    "aarch64": 283, "riscv64": 283, "loongarch64": 283, "arm": 389, "armv7l": 389, "ppc64": 365, "ppc64le": 365,
    "s390x": 356, "x86_64": 324,
}  # fmt: skip
_GLOBAL_EXPEDITED, _REGISTER_GLOBAL_EXPEDITED = 1 << 1, 1 << 2
_SEQUENTIALLY_CONSISTENT = 5


def memory_fence(machine: str | None = None) -> Fence:
    """A function that orders all reads and writes before it and after it; ``CommunicationError`` if there is none."""
    kind = (machine or platform.machine()).lower()
    fence = lock_fence() if kind in ORDERED else native_fence() or library_fence() or system_fence(kind)
    if fence is None:
        raise CommunicationError(
            f"ranks of this machine cannot exchange through shared memory: its processor ({kind}) shows writes to "
            "other processors in any order, and without the compiled kernels no memory fence was found (libatomic, or "
            "the system call membarrier). Install Ringlet where a C++20 compiler is there, or install libatomic"
        )
    return fence


def lock_fence() -> Fence:
    """On x86 to take a lock is a locked instruction, which nothing passes."""
    lock = threading.Lock()

    def order() -> None:
        with lock:
            pass

    return order


def native_fence() -> Fence | None:
    """Of the compiled module, if it was built."""
    try:
        from ringlet.kernels import _native
    except ImportError:
        return None
    fence: Fence | None = getattr(_native, "memory_fence", None)
    return fence


def library_fence() -> Fence | None:
    """Of libatomic, which comes with GCC's libraries."""
    for name in ("libatomic.so.1", ctypes.util.find_library("atomic")):
        with suppress(OSError, AttributeError):
            function = ctypes.CDLL(name).atomic_thread_fence if name else None
            if function is not None:
                function.argtypes, function.restype = [ctypes.c_int], None
                return lambda function=function: function(_SEQUENTIALLY_CONSISTENT)  # type: ignore[misc]
    return None


def system_fence(machine: str) -> Fence | None:
    """Of Linux; this process registers for it."""
    number = _SYSTEM_CALL.get(machine)
    if sys.platform != "linux" or number is None:
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes, call.restype = [ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long], ctypes.c_long

    def membarrier(command: int) -> bool:
        return bool(call(number, command, 0, 0) == 0)

    if not (membarrier(_REGISTER_GLOBAL_EXPEDITED) and membarrier(_GLOBAL_EXPEDITED)):
        return None

    def order() -> None:
        if not membarrier(_GLOBAL_EXPEDITED):
            raise CommunicationError("the system has refused a memory fence (membarrier) that it gave before")

    return order
