"""Who owns what ranks share, when a rank is forked: the rank, never its copy.

A process that was forked from a rank (a worker of a data loader, ``multiprocessing``, ``os.fork``) has a copy of every
object of that rank, and maps the same shared memory. It ends sooner or later, and then finalizers, exit functions and
``with`` blocks of the copy run: what they would close or announce belongs to a rank that goes on. So all that touches
other processes keeps its :class:`Owner`. In a copy it lets go of nothing, and collectives are an error.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, final
from weakref import WeakSet

from ringlet.errors import CommunicationError

here = os.getpid()
"""This process. Collectives ask for it: a variable takes a tenth of the time of a system call."""


@final
class Owner:
    """The process that made something."""

    __slots__ = ("process",)

    def __init__(self) -> None:
        self.process = here

    @property
    def is_here(self) -> bool:
        """Whether this process is the owner, and no copy of it."""
        return here == self.process

    def check(self, what: str, rank: int | None = None) -> None:
        """Raise :class:`CommunicationError` if a copy of ``rank`` calls ``what``."""
        if here != self.process:
            raise CommunicationError(self.explain(what, rank))

    def explain(self, what: str, rank: int | None = None) -> str:
        """What is wrong if a copy of ``rank`` calls ``what``."""
        origin = "a rank" if rank is None else f"rank {rank}"
        return (
            f"{what} was called in process {here}: this process was forked from {origin} (process "
            f"{self.process}), and a copy of a rank has no place among the ranks. Call it in the rank itself"
        )


_never_destroyed: WeakSet[Any] = WeakSet()


def never_destroy_in_copies(thing: Any) -> None:
    """Let no copy of this process run the destructor of ``thing``: it would wait for threads that copies do not have.

    For objects of C++ libraries, which know nothing of :class:`Owner`.
    """
    _never_destroyed.add(thing)


def _begin_copy() -> None:
    """The first thing that a forked process does."""
    global here
    here = os.getpid()
    for thing in list(_never_destroyed):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_copy)

_last: list[tuple[Owner, Callable[[], object]]] = []


def call_last(function: Callable[[], object]) -> None:
    """At the end of this process, and not of its copies, call ``function`` after all exit functions of this package."""
    _last.append((Owner(), function))


@atexit.register  # as early as possible, since they are called in reverse order
def _call_last() -> None:
    for owner, function in reversed(_last):
        if owner.is_here:
            with suppress(Exception):
                function()
