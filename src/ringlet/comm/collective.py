"""A collective, described once: what it takes, what ranks must agree on, and how each kind of communicator does it.

Those that come with Ringlet are in :mod:`~ringlet.comm.reductions` and :mod:`~ringlet.comm.transfers`. Another package
adds one by :func:`register`; from then on ``communicator.call(name, …)``, ``communicator.start(name, …)`` and ``ringlet
bench`` know it. The least it needs is a composition of other collectives::

    def compose(comm, array):
        rows = comm.allgather(array[np.newaxis])
        return rows[: comm.rank + 1].sum(axis=0)


    register(Collective("scan", bind=lambda array: (array,), composed=compose))

What is worth it gets a function of its own for a kind of communicator. Collectives that are started are worked off by a
thread of the communicator, in the order of their start (:class:`Background`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from ringlet.errors import CommunicationError
from ringlet.forks import Owner

if TYPE_CHECKING:
    from ringlet.comm.contract import Communicator

SECONDS_TO_FINISH = 10.0
"""How long closing waits for collectives that are under way: another rank may have failed and never come."""

Array = NDArray[Any]
Result = TypeVar("Result")


class Op(Enum):
    """How values of ranks are combined, element by element.

    float16 and bfloat16 are accumulated in float32 and rounded once. Of booleans the sum is *or*, the product *and*. An
    average needs a floating or complex dtype.
    """

    SUM = "sum"
    AVERAGE = "average"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"

    __hash__ = object.__hash__  # members are unique, and every collective looks one up


@final
@dataclass(frozen=True)
class Collective(Generic[Result]):
    """A collective; ``Result`` is what it gives.

    ``bind`` has its signature. ``facts`` and ``prepare`` get the arguments that ``bind`` gives; functions for kinds of
    communicators get the communicator and what ``prepare`` gives. A kind that has no function uses ``composed``.
    Ranks of one machine keep what depends on facts alone, so it costs a lookup.
    """

    name: str
    bind: Callable[..., tuple[Any, ...]]
    """Takes arguments as callers write them; gives all of them in their order, defaults included."""
    composed: Callable[..., Result] | None = None
    """Made of other collectives of the communicator."""
    facts: Callable[..., tuple[Any, ...]] | None = None
    """What must be equal on all ranks: dtypes, shapes, operations, texts. Ranks of one machine compare it."""
    check: Callable[..., None] | None = None
    """``check(*facts)`` refuses what can never work."""
    plan: Callable[..., Any] | None = None
    """``plan(*facts)``: what ``node`` needs to know about them."""
    prepare: Callable[..., tuple[Any, ...]] | None = None
    """``prepare(size, …)`` refuses other arguments of a rank among ``size``; gives what the functions below get."""
    single: Callable[..., Result] | None = None
    """For a rank alone."""
    node: Callable[..., Result] | None = None
    """For ranks of one machine; after the communicator it gets the ``Channel`` and the ``Call`` with its plan."""
    wired: Callable[..., Result] | None = None
    """For ranks that share no memory, by what a ``Wire`` can do: MPI and torch.distributed."""
    layered: Callable[..., Result] | None = None
    """For several machines with several ranks, by ``local`` and ``cross``; default: ``wired`` between all ranks."""
    example: Callable[[NDArray[np.float32], int], tuple[Any, ...]] | None = None
    """``example(values, size)``: bound arguments of a call that moves these float32 numbers; for benchmarks."""

    def __post_init__(self) -> None:
        if self.composed is None and None in (self.single, self.node, self.wired):
            raise ValueError(f"collective '{self.name}' needs functions for single, node and wired, or a composition")

    def checked(self, size: int, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The prepared arguments of a call among ``size`` ranks; raises :class:`CommunicationError`."""
        if self.check is not None and self.facts is not None:
            self.check(*self.facts(*arguments))
        return arguments if self.prepare is None else self.prepare(size, *arguments)


COLLECTIVES: dict[str, Collective[Any]] = {}
"""All collectives by their names."""


def register(collective: Collective[Result]) -> Collective[Result]:
    """Add a collective to :data:`COLLECTIVES`; every rank must do so before it is used."""
    if collective.name in COLLECTIVES:
        raise ValueError(f"there is a collective '{collective.name}' already")
    COLLECTIVES[collective.name] = collective
    return collective


def find(name: str, verb: str = "called") -> Collective[Any]:
    """The collective of this name; an error says that it cannot be ``verb``."""
    if name not in COLLECTIVES:
        raise CommunicationError(f"'{name}' cannot be {verb}: expected one of {', '.join(sorted(COLLECTIVES))}")
    return COLLECTIVES[name]


@final
class BackgroundHandle:
    """A collective that runs in another thread, or has already run."""

    def __init__(self) -> None:
        self._owner = Owner()
        self._finished = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self, work: Callable[[], Any]) -> None:
        """Do the work and keep its result or its error."""
        try:
            self._result = work()
        except BaseException as error:
            self._error = error
        self._finished.set()

    def done(self) -> bool:
        """Whether :meth:`wait` would return at once."""
        return self._finished.is_set()

    def wait(self) -> Any:
        """The result of the collective; raises what it raised."""
        if not self._finished.is_set():
            self._owner.check("wait")  # the thread that does the work is not in a copy of the rank
            self._finished.wait()
        if self._error is not None:
            raise self._error
        return self._result


@final
class Background:
    """Runs submitted collectives in one thread, in their order, on a *duplicate* of the communicator.

    That is a second one of the same ranks, so that they cannot be taken for collectives that are called meanwhile.
    ``duplicate`` makes the duplicate. It is called once, *in that thread*, for the first collective, while the program
    may be inside any other collective. So it must not use the communicator itself: whatever the ranks need to find
    each other again (a second wire, a second segment) must have been laid down when the communicator was made.
    """

    def __init__(self, duplicate: Callable[[], Communicator]) -> None:
        self._duplicate = duplicate
        self._jobs: SimpleQueue[tuple[BackgroundHandle, Callable[[Communicator], Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, collective: Collective[Any], *arguments: Any) -> BackgroundHandle:
        """Queue a collective; every rank must submit the same ones in the same order."""
        if self._closed:
            raise CommunicationError(
                f"'{collective.name}' was started on a communicator that is closed: start it before close()"
            )
        if self._thread is None:
            # A daemon: a rank that ends early is not kept alive by a collective whose other ranks never come.
            self._thread = threading.Thread(target=self._work, name="ringlet-collectives", daemon=True)
            self._thread.start()
        handle = BackgroundHandle()
        self._jobs.put((handle, lambda communicator: communicator.run(collective, *arguments)))
        return handle

    def close(self) -> None:
        """Finish what was started and end the thread; gives up waiting after :data:`SECONDS_TO_FINISH`."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            if self._thread is not threading.current_thread():
                self._thread.join(SECONDS_TO_FINISH)

    def _work(self) -> None:
        communicator: Communicator | None = None
        while (job := self._jobs.get()) is not None:
            handle, collective = job

            def work(collective: Callable[[Communicator], Any] = collective) -> Any:
                nonlocal communicator
                if communicator is None:
                    communicator = self._duplicate()
                return collective(communicator)

            handle.run(work)
            del job, handle, collective, work  # let go of the caller's arrays while idle
        if communicator is not None:
            communicator.close()
