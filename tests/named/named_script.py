"""A user's script: sessions that begin and end in every way.

    named_script.py FOLDER SCENE

plays one scene and leaves its result in the folder.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np

from ringlet.comm import world
from ringlet.named import ProcessSet, Reduction, Submission, rounds, session

LONG = 60.0
"""Seconds; nothing here takes so long unless it is broken."""


def total(value: Any = None, name: str = "total", process_set: ProcessSet | None = None) -> list[float]:
    own = np.atleast_1d(np.asarray(world.rank() + 1.0 if value is None else value))
    [result] = session.collectives(process_set).run(Submission("allreduce", name, (own,), op=Reduction.SUM))
    return list(result.tolist())


def error_of(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def begins_and_ends() -> Any:
    """Before init everything raises; init and shutdown may be repeated, alone or after each other."""
    before = [
        error_of(call) for call in (session.collectives, session.process_sets, lambda: session.add_process_set([0]))
    ]
    before += [error_of(call) for call in (world.rank, session.global_process_set.rank, session.stop_timeline)]
    session.shutdown()
    session.init()
    session.init()
    first = [session.is_initialized(), world.rank(), world.size(), session.global_process_set.size(), total()]
    plain = world.allreduce(1.0, "sum")
    session.shutdown()
    session.shutdown()
    between = [session.is_initialized(), world.is_initialized(), error_of(session.collectives)]
    session.init(process_sets="dynamic")
    return {"before": before, "first": first, "plain": plain, "between": between, "again": total()}


def one_leaves_while_others_wait() -> Any:
    session.init()
    group = session.collectives()
    if world.rank() == 0:
        total()
        session.shutdown()
        return None
    total()
    waits = group.submit(Submission("allreduce", "unfinished", (np.ones(2),)))
    return [error_of(waits.wait), error_of(lambda: total(1.0, "later")), error_of(lambda: session.add_process_set([0]))]


def all_begin_again_after_one_has_left() -> Any:
    session.init()
    total()
    if world.rank() == 0:
        session.shutdown()
    else:
        error_of(lambda: total(1.0, "unfinished"))
        session.shutdown()
    session.init()
    return total()


def one_dies() -> Any:
    session.init()
    total()
    if world.rank() == 1:
        os._exit(0)
    first = error_of(lambda: total(1.0, "without rank 1"))
    return [first, error_of(lambda: total(1.0, "later"))]


def one_ends_with_unfinished_requests() -> Any:
    """The end of the process tells the others, and does not wait for them."""
    session.init()
    group = session.collectives()
    if world.rank() == 0:
        group.submit(Submission("allreduce", "no one else does", (np.ones(2),)))
        group.submit(Submission("allreduce", "nor this", (np.ones(2),)), background=False)
        return None
    return error_of(lambda: total(1.0, "nobody answers"))


def one_is_interrupted() -> Any:
    session.init()
    total()
    if world.rank() != 0:
        return [error_of(lambda: total(1.0, "not to be"))]

    def interrupt(*_: object) -> None:
        raise ArithmeticError("enough")

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    return [error_of(lambda: total(1.0, "too long")), error_of(lambda: total(1.0, "later"))]


def a_forked_process_is_refused() -> Any:
    session.init()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = error_of(lambda: total(1.0, "child"))
        os.write(writer, text.encode())
        session.shutdown()  # as the end of a process does
        os._exit(0)
    os.waitpid(child, 0)
    return [os.read(reader, 10_000).decode(), total()]


def some_ranks_form_a_world() -> Any:
    """Ranks 0 and 2, rank 1 alone, rank 3 in none."""
    job_rank = int(os.environ["RINGLET_RANK"])
    lists = {0: [0, 2], 1: [1], 2: [2, 0], 3: [0, 2]}
    session.init(comm=lists[job_rank])
    session.init(comm=lists[job_rank])
    if job_rank == 3:
        found = [session.is_initialized(), error_of(session.collectives), error_of(world.rank)]
    else:
        found = [world.rank(), world.size(), total(job_rank + 1.0), session.global_process_set.ranks]
    session.shutdown()
    session.init()
    return [found, total(), error_of(lambda: session.init(comm=5))]


def lists_that_do_not_fit() -> Any:
    job_rank = int(os.environ["RINGLET_RANK"])
    wrong = error_of(lambda: session.init(comm=[0, 1] if job_rank == 0 else [1]))
    beyond = error_of(lambda: session.init(comm=[0, 7]))
    kind = error_of(lambda: session.init(comm="all"))
    session.init()
    return [wrong, beyond, kind, total()]


def an_mpi_communicator_is_the_world() -> Any:
    from mpi4py import MPI

    whole = MPI.COMM_WORLD
    half = whole.Split(whole.Get_rank() % 2, -whole.Get_rank())
    session.init(comm=half)
    found = [world.rank(), world.size(), total(whole.Get_rank())]
    session.shutdown()
    session.init()
    return [found, total()]


def requests_that_nobody_answers_are_reported() -> Any:
    """Ranks 0 and 1 submit what rank 2 never does, which waits elsewhere. The environment says how patient they are."""
    sys.stderr, heard = io.StringIO(), sys.stderr
    session.init()
    group = session.collectives()
    alone = ""
    if world.rank() < 2:
        alone = error_of(group.submit(Submission("allreduce", "step.7", (np.ones(2),))).wait)
    world.barrier()
    said, sys.stderr = sys.stderr.getvalue(), heard
    after = total()
    return {"error": alone, "after": after, "said": said}


def a_silent_rank_is_reported() -> Any:
    """Rank 1's process is stopped, so that it does not even say that it has nothing."""
    session.init()
    total()
    others = world.communicator().allgather(np.array([os.getpid()]))
    if world.rank() == 1:
        return total(1.0, "late")
    os.kill(int(others[1]), signal.SIGSTOP)
    said = io.StringIO()
    sys.stderr, heard = said, sys.stderr
    waits = session.collectives().submit(Submission("allreduce", "late", (np.ones(1),), op=Reduction.SUM))
    waiting = threading.Thread(target=waits.wait)
    waiting.start()
    patience = threading.Event()
    while "silent" not in said.getvalue():
        patience.wait(0.01)
    os.kill(int(others[1]), signal.SIGCONT)
    waiting.join(LONG)
    sys.stderr = heard
    return [waits.wait()[0].tolist(), said.getvalue()]


def one_ends_while_another_is_stopped() -> Any:
    """The end does not wait for long, and the thread does not keep the process."""
    session.init()
    total()
    others = world.communicator().allgather(np.array([os.getpid()]))
    if world.rank() == 1:
        return error_of(lambda: total(1.0, "nobody is left"))
    os.kill(int(others[1]), signal.SIGSTOP)
    rounds.SECONDS_TO_LEAVE = 0.2
    session.shutdown()
    left = [thread.name for thread in threading.enumerate() if thread.name == "ringlet-named"]
    os.kill(int(others[1]), signal.SIGCONT)
    return left


def main() -> None:
    folder, scene = sys.argv[1:]
    signal.alarm(int(LONG))
    result = globals()[scene]()
    rank = os.environ.get("RINGLET_RANK") or os.environ.get("PMI_RANK") or os.environ.get("RANK") or "0"
    (Path(folder) / f"scene-{rank}.json").write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
