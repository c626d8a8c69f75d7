"""What ranks do with processes that are forked from them: children end in every way, then the ranks go on."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ringlet.comm.contract import Communicator, Op
from ringlet.errors import CommunicationError

SOON = 30.0


def fork(child: Callable[[], object]) -> int:
    """Run ``child`` in a forked process, which then ends as Python ends, exit functions included; its exit code."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            child()
            code = 0
        except SystemExit as leave:
            code = int(leave.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            gc.collect()
            _exit_functions()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _exit_functions() -> None:
    import atexit

    atexit._run_exitfuncs()


def _total(comm: Communicator) -> float:
    return float(comm.allreduce(np.array([comm.rank + 1.0]))[0])


def children_of_all_kinds(comm: Communicator) -> dict[str, Any]:
    """After each kind of child the ranks compute a sum together; with what the children have said."""
    codes, totals = {}, {}
    keep = [comm.shared_array(8, np.float64), comm.window(64) if comm.name in ("node", "single") else None]
    handle = comm.start("allreduce", np.ones(4), Op.SUM)
    handle.wait()

    def note(kind: str, code: int) -> None:
        codes[kind] = code
        totals[kind] = _total(comm)

    note("ends", fork(lambda: None))
    note("leaves", fork(lambda: sys.exit(0)))
    note("closes", fork(comm.close))
    note("forgets", fork(lambda: (keep.clear(), gc.collect())))
    note("aborts", fork(lambda: comm.abort(9)))
    note("calls", fork(lambda: _expect_refusal(comm)))
    note("from a thread", _in_thread(lambda: fork(lambda: sys.exit(0))))
    process = multiprocessing.get_context("fork").Process(target=_child, args=(comm,))
    process.start()
    process.join(SOON)
    note("multiprocessing", process.exitcode if process.exitcode is not None else -1)
    done = subprocess.run([sys.executable, "-c", ""], preexec_fn=gc.collect, check=False)
    note("subprocess", done.returncode)
    return {"codes": codes, "totals": totals}


def _expect_refusal(comm: Communicator) -> None:
    for call in (comm.barrier, lambda: comm.allreduce(np.ones(2)), lambda: comm.start("barrier")):
        with pytest.raises(CommunicationError, match=f"this process was forked from rank {comm.rank} "):
            call()


def _child(comm: Communicator) -> None:
    _expect_refusal(comm)
    comm.close()


def _in_thread(work: Callable[[], int]) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join(SOON)
    return found[0] if found else -1


def stalls_and_windows(comm: Communicator) -> dict[str, Any]:
    """A child leaves the blocks in which its rank is: the rank stays, and so do its locks."""
    from ringlet.guards.stall import StallDetector

    window = comm.window(8)
    with StallDetector(comm, 60.0) as detector:

        def leave() -> None:
            detector.__exit__(None, None, None)

        code = fork(leave)
        comm.barrier()
        present = [status.presence for status in detector._board.statuses(0.0)]
        comm.barrier()

    def lock() -> None:
        with pytest.raises(CommunicationError, match="forked"), window.locked():
            pass

    locked = fork(lock)
    with window.locked() as memory:
        memory[0] += 1
    comm.barrier()
    with window.locked() as memory:
        count = int(memory[0])
    comm.barrier()
    return {"codes": [code, locked], "present": present, "count": count}
