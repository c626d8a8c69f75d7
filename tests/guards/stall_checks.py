"""What ranks do in tests of the stall detector: steps that meet in a barrier, and something that goes wrong."""

from __future__ import annotations

import ctypes
import os
import signal
from threading import Event
from time import monotonic

import numpy as np

from ringlet.comm.contract import Communicator
from ringlet.guards.stall import StallDetector

BAD_STEP = 5


def train(comm: Communicator, bad_rank: int, how: str, limit: float = 1.5) -> int:
    """Ten steps; in the fifth a rank does ``how`` instead of meeting the others."""
    with StallDetector(comm, limit) as detector:
        for step in range(1, 11):
            detector.progress(step)
            if step == BAD_STEP and comm.rank == bad_rank:
                globals()[how]()
            comm.allreduce(np.ones(3))
    return step


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang() -> None:
    Event().wait()


def hold_the_interpreter() -> None:
    """As a compiled library that never returns: no other thread of this process can run."""
    while True:
        ctypes.PyDLL(None).sleep(100)


def leave_early(comm: Communicator, limit: float = 1.5) -> None:
    """Rank 1 is done, the others are not."""
    with StallDetector(comm, limit) as detector:
        detector.progress(3)
        if comm.rank != 1:
            comm.barrier()
    hang()


def work_alone(comm: Communicator, limit: float = 1.0) -> int:
    """Rank 0 works much longer than the limit while the others wait for it, and says so."""
    with StallDetector(comm, limit) as detector:
        detector.progress(1)
        if comm.rank == 0:
            end = monotonic() + 2.5 * limit
            while monotonic() < end:
                detector.progress("validation")
                Event().wait(0.02)
        detector.progress("meeting")
        comm.barrier()
    return 0


def finish(comm: Communicator) -> bool:
    """All is well; afterwards the signal that shows stacks is as it was."""
    with StallDetector(comm) as detector:
        for step in range(1, 100):
            detector.progress(step)
            comm.barrier()
    return signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
