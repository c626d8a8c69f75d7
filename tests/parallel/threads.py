"""Ranks as threads of one process over one segment: channels as between processes, but quick.

The compiled channel lets go of the interpreter lock while it works or waits, the other one sleeps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ringlet import kernels
from ringlet.comm.memory import Segment, create_segment
from ringlet.comm.node import NodeCommunicator, segment_bytes


class Crew:
    """``size`` ranks; ``implementations`` names the channel of each (all the best one by default)."""

    def __init__(self, size: int, implementations: Sequence[str] | None = None) -> None:
        self.size = size
        self.segment = create_segment(segment_bytes(size))
        names = implementations or [kernels.available()[0]] * size
        self.communicators = [self._join(rank, names[rank]) for rank in range(size)]
        self._pool = ThreadPoolExecutor(size)

    def _join(self, rank: int, implementation: str) -> NodeCommunicator:
        before = os.environ.get(kernels.ENVIRONMENT_VARIABLE)
        os.environ[kernels.ENVIRONMENT_VARIABLE] = implementation
        try:
            return NodeCommunicator(Segment(b"", self.segment.buffer), rank, self.size)
        finally:
            del os.environ[kernels.ENVIRONMENT_VARIABLE]
            if before is not None:
                os.environ[kernels.ENVIRONMENT_VARIABLE] = before

    def run(self, function: Callable[[NodeCommunicator], Any]) -> list[Any]:
        """What the function gives, or the exception that it raises, on every rank."""

        def call(communicator: NodeCommunicator) -> Any:
            try:
                return function(communicator)
            except Exception as error:
                return error

        futures = [self._pool.submit(call, communicator) for communicator in self.communicators]
        return [future.result(timeout=60) for future in futures]

    def close(self) -> None:
        """End the threads."""
        for communicator in self.communicators:
            communicator.close()
        self._pool.shutdown(cancel_futures=True)
