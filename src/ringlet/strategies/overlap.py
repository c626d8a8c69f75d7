"""Exchange during the backward pass: a thread reduces every bucket as soon as it is final on all ranks.

Layers finish from the last to the first, so buckets are exchanged from the back of the flat buffer to its front. The
sums are the same as without overlap, to the bit. It pays where machines wait for their network; on one machine the
thread takes time from the backward pass. ``auto`` therefore measures both over the first steps and keeps the faster.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from statistics import median
from time import perf_counter
from typing import final

import numpy as np

from ringlet.comm.contract import Communicator, Op
from ringlet.strategies.contract import OnReady
from ringlet.strategies.ownership import OwnedRange, Range
from ringlet.strategies.reduction import Reduction
from ringlet.timeline import NO_TIMELINE, Timeline

NUM_SETTLING = 2
NUM_MEASURED = 6
"""Steps of each kind, taken in turn."""


@final
class Exchanger:
    """The thread of one rank. Every rank must have one and give it every step the same buckets."""

    def __init__(self, reduction: Reduction, owned: Sequence[OwnedRange], whole: Sequence[Range], comm: Communicator):
        everybody = range(comm.local_size)
        local, cross = comm.local.group(everybody), comm.cross.group(range(comm.cross.size))
        assert local is not None
        assert cross is not None
        self._local, self._cross, self._reduction = local, cross, reduction
        self._buckets = tuple(reversed(whole))
        self._own = {part.bucket: part.elements for part in owned}
        self._final: list[threading.Event] = []
        self._remaining: list[int] = []
        self._begun, self._finished = threading.Semaphore(0), threading.Event()
        self._finished.set()
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="ringlet-exchange", daemon=True).start()

    def begin(self) -> None:
        """A backward pass is about to begin."""
        self.wait()
        self._remaining = [bucket.size for bucket in self._buckets]
        self._final = [threading.Event() for _ in self._buckets]
        self._finished.clear()
        self._begun.release()

    def on_ready(self, start: int, stop: int) -> None:
        """Elements ``start:stop`` are final."""
        for place, bucket in enumerate(self._buckets):
            common = min(stop, bucket.stop) - max(start, bucket.start)
            if common > 0:
                self._remaining[place] -= common
                if self._remaining[place] == 0:
                    self._final[place].set()

    def wait(self) -> None:
        """Until all buckets are reduced; raises what went wrong in the thread."""
        self._finished.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while self._error is None:
            self._begun.acquire()
            try:
                for bucket, final_ in zip(self._buckets, self._final, strict=True):
                    final_.wait()
                    self._local.barrier()
                    if bucket in self._own:
                        self._reduction.run(self._own[bucket], NO_TIMELINE, cross=self._cross)
            except BaseException as error:
                self._error = error
            self._finished.set()


@final
class Overlap:
    """Whether and how a step exchanges during its backward pass; see the module for ``mode``."""

    def __init__(
        self,
        reduction: Reduction,
        owned: Sequence[OwnedRange],
        whole: Sequence[Range],
        comm: Communicator,
        mode: str,
    ) -> None:
        self._comm = comm
        self._exchanger = None if mode == "off" else Exchanger(reduction, owned, whole, comm)
        self._active = mode == "on"
        self._measuring = mode == "auto"
        self._seconds: dict[bool, list[float]] = {False: [], True: []}
        self._step, self._start = 0, 0.0
        self.remarks: list[str] = []

    @property
    def on_ready(self) -> OnReady | None:
        """For the replica, in a step that overlaps."""
        return self._exchanger.on_ready if self._exchanger is not None and self._active else None

    @property
    def has_reduced(self) -> bool:
        """Whether the thread has added up the gradients of this step."""
        return self._active

    def begin(self) -> None:
        """A step begins."""
        self._start = perf_counter()
        if self._measuring:
            self._active = self._step >= NUM_SETTLING and self._step % 2 == 1
        if self._exchanger is not None and self._active:
            self._exchanger.begin()

    def finish(self, timeline: Timeline) -> None:
        """The backward pass is over: wait for the rest of the exchange."""
        if self._exchanger is not None and self._active:
            timeline.mark("exchange")
            self._exchanger.wait()

    def end(self) -> None:
        """A step is over."""
        self._step += 1
        if self._measuring:
            if self._step > NUM_SETTLING:
                self._seconds[self._active].append(perf_counter() - self._start)
            if self._step == NUM_SETTLING + 2 * NUM_MEASURED:
                self._decide()

    def _decide(self) -> None:
        own = np.array([median(self._seconds[active]) for active in (False, True)])
        after, during = self._comm.allreduce(own, Op.MAX).tolist()
        self._measuring, self._active = False, during < after
        choice = "during" if self._active else "after"
        self.remarks.append(
            f"overlap: exchange {choice} the backward pass (a step takes {1e3 * during:.2f} ms with overlap, "
            f"{1e3 * after:.2f} ms without)"
        )
