"""``python -m ringlet.launch.worker PARENT TARGET…``: what every rank of a launched job runs.

TARGET is a script or ``-m module``, with its arguments, and runs as Python itself would run it. What differs is its
end: an exception that no one catches is reported to the launcher, which tells it once and ends all ranks, instead of
leaving the others to wait for this one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import NoReturn

from ringlet.comm import environments
from ringlet.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommunicationError, RankFailedError, RingletError
from ringlet.forks import Owner
from ringlet.launch import horovod, messages
from ringlet.launch.lifeline import die_with_parent
from ringlet.libraries import remedy
from ringlet.output_streams import flush_streams

EXIT_KEYBOARD = 130
_WAIT_SECONDS = 60.0
"""How long a rank that has reported its failure waits for the launcher to end it."""
_OWN_FILES = (__file__, runpy.__file__, "<frozen runpy>")


def main() -> int:
    """The exit code of the rank."""
    die_with_parent(int(sys.argv[1]))
    atexit.register(gc.freeze)  # the last one called: the end need not look for garbage in all of a framework's objects
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    messages.connect_launcher()
    messages.report(messages.started(os.getpid(), os.uname().nodename))
    return run(sys.argv[2:])


def run(target: Sequence[str]) -> int:
    """Run a script or module in this process, a rank; its exit code. Failures end all ranks and do not return."""
    rank, world = Owner(), environments.detect()
    horovod.tell_place(world)
    if world is not None:
        environments.tell_as_torchrun(world)
    try:
        _execute(target)
        if not rank.is_here:
            _end_copy(None)
    except BaseException as error:
        if not rank.is_here:
            _end_copy(error)
        return _end(error)
    return 0


def _end(error: BaseException) -> int:
    """The exit code of a rank that ``error`` has ended, unless that ends all ranks."""
    if isinstance(error, SystemExit):
        return _leave(_exit_code(error))
    if isinstance(error, KeyboardInterrupt):
        return _leave(EXIT_KEYBOARD)
    if isinstance(error, RingletError) and error.exit_code == EXIT_INTERRUPTED:
        return _leave_interrupted(error)
    return _fail(error)


def _end_copy(error: BaseException | None) -> NoReturn:
    """End a process that was forked from the rank and came to the end of the script: as Python would, to begin with.

    But destructors of libraries, MPI's among them, would end in its name what belongs to the rank: no exit of C.
    """
    code = 0
    if isinstance(error, SystemExit):
        code = _exit_code(error)
    elif error is not None:
        sys.__excepthook__(type(error), error, _own_frames_removed(error.__traceback__))
        code = EXIT_KEYBOARD if isinstance(error, KeyboardInterrupt) else EXIT_FAILED
    for thread in threading.enumerate():
        if not thread.daemon and thread is not threading.current_thread():
            thread.join()
    atexit._run_exitfuncs()
    flush_streams()
    os._exit(code)


def _execute(target: Sequence[str]) -> None:
    if target[0] == "-m":
        sys.argv[:] = target[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(target[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = target
        sys.path.insert(0, str(Path(target[0]).resolve().parent))
        runpy.run_path(target[0], run_name="__main__")


def _exit_code(leave: SystemExit) -> int:
    """As Python has it: nothing is 0, a number itself, and anything else is printed and 1."""
    if leave.code is None or isinstance(leave.code, int):
        return (leave.code or 0) & 0xFF
    sys.stderr.write(f"{leave.code}\n")
    return EXIT_FAILED


def _leave(code: int) -> int:
    """Leave on purpose: other ranks may have to be ended, and until then the end of MPI may wait for them."""
    if code:
        messages.report(messages.leaving(code))
    return code


def _leave_interrupted(error: RingletError) -> int:
    world = environments.detect()
    if world is None or world.rank == 0:
        sys.stderr.write(f"interrupted: {error}\n")
    return _leave(error.exit_code)


def _fail(error: BaseException) -> NoReturn:
    text = failure_text(error)
    code = error.exit_code if isinstance(error, RingletError) else EXIT_FAILED
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    consequence = isinstance(error, RankFailedError | CommunicationError)
    if messages.report(messages.failed(text, code, secondary=consequence)):
        Event().wait(_WAIT_SECONDS)
    else:
        world = environments.detect() or environments.World("none", 0, 1)
        sys.stderr.write(f"rank {world.rank} of {world.size} on {os.uname().nodename} failed:\n{text}\n")
        sys.stderr.flush()
        _abort(code)
    os._exit(code)


def failure_text(error: BaseException) -> str:
    """The message of an error that a user can fix; of any other the traceback, without the frames of this module."""
    if isinstance(error, RingletError):
        return str(error)
    text = "".join(traceback.format_exception(type(error), error, _own_frames_removed(error.__traceback__))).rstrip()
    return f"{text}\n{remedy(error)}".rstrip()


def _own_frames_removed(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN_FILES:
        trace = trace.tb_next
    return trace


def _abort(code: int) -> None:
    """Without a launcher of ours: end all ranks by the communicator or MPI, if the script has used any."""
    world = sys.modules.get("ringlet.comm.world")
    if world is not None and world.is_initialized():
        world.communicator().abort(code)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.COMM_WORLD.Abort(code)


if __name__ == "__main__":
    sys.exit(main())
