"""Started collectives: one thread per communicator that works them off, in the order of their start.

They run on a *duplicate* of the communicator, a second one of the same ranks, so that they cannot be taken for
collectives that the program calls meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, final

from ringlet.comm.collective import Collective
from ringlet.comm.contract import Communicator
from ringlet.errors import CommunicationError
from ringlet.forks import Owner

SECONDS_TO_FINISH = 10.0
"""How long closing waits for collectives that are under way: another rank may have failed and never come."""


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
    """Runs submitted collectives in one thread on a duplicate communicator.

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
