"""The node communicator between real processes: crowding, memory, groups, and what happens if a rank goes away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from harness import run_ranks

from ringlet.comm import node
from ringlet.comm.channel.layout import is_running
from ringlet.comm.node import join_node
from ringlet.errors import CommunicationError, RankFailedError
from ringlet.kernels import available

CHECKS = Path(__file__).with_name("node_checks.py")
PROGRAM = """
import os, sys
import numpy as np
from ringlet.comm.node import join_node
from ringlet.errors import CommunicationError, RankFailedError
communicator = join_node(os.environ["RINGLET_JOB"], int(os.environ["RINGLET_RANK"]), int(os.environ["RINGLET_SIZE"]))
rank, size = communicator.rank, communicator.size
print(os.getpid(), flush=True)
"""


@contextmanager
def ranks_of(program: str, size: int, folder: Path, **environment: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Plain processes, for jobs whose ranks do not all end well. Whatever is left of them is killed."""
    folder.mkdir(mode=0o700, exist_ok=True)
    common = {
        **os.environ,
        "RINGLET_JOB": str(folder),
        "RINGLET_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM + program],
            env={**common, "RINGLET_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.parametrize("kernels", available())
def test_more_ranks_than_processors(kernels):
    results = run_ranks((CHECKS, "crowded"), 4, timeout=100, environment={"RINGLET_KERNELS": kernels})
    expected = []
    for number in range(60):
        ranks = np.arange(4.0) + number
        gathered = sum((rank + 1) * value for rank, value in enumerate(ranks) if rank < 1 + number * number * 50)
        if number == 0:
            gathered = float(ranks.sum())  # one element each
        expected += [float(ranks.sum()), float(ranks.max()), float(ranks[number % 4]), float(gathered)]
    assert results == [expected] * 4


@pytest.mark.parametrize("size", [1, 2, 4])
def test_shared_arrays_are_one_memory(size):
    assert run_ranks((CHECKS, "shares_memory"), size) == [list(range(1, size + 1))] * size


@pytest.mark.parametrize("size", [2, 3])
def test_arrays_and_groups_leave_no_descriptor_and_no_file(size):
    for result in run_ranks((CHECKS, "leaves_nothing"), size):
        assert result["after"] == result["before"]
        assert result["files"] == []


def test_groups_have_the_order_they_were_given():
    results = run_ranks((CHECKS, "groups"), 4)
    for rank, (order, odd_sum, alone) in enumerate(results):
        assert order == [3, 2, 1, 0]
        assert odd_sum == (4 if rank in (1, 3) else None)
        assert alone == (1 if rank == 3 else None)


def test_an_interrupted_wait_ends_the_waiting_of_all(tmp_path):
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
if rank == 1:
    sys.stdin.readline()
try:
    print("waiting", flush=True)
    communicator.barrier()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.readline()
except RankFailedError as error:
    print(error)
"""
    with ranks_of(program, 2, tmp_path / "job") as (first, second):
        process = int(first.stdout.readline())
        second.stdout.readline()
        assert first.stdout.readline() == "waiting\n"
        os.kill(process, signal.SIGINT)
        assert first.stdout.readline() == "interrupted\n"
        second.stdin.write("now\n")
        second.stdin.flush()
        assert second.stdout.readline() == "waiting\n"
        first.stdin.close()  # it ends now, if it was interrupted before it waited
        first.stdin = None
        assert "rank 0 of 2" in second.stdout.readline()


@pytest.mark.parametrize("kernels", available())
def test_a_killed_rank_is_named_by_the_others(tmp_path, kernels):
    program = """
if rank == 1:
    sys.stdin.read()  # until it is killed
try:
    communicator.barrier()
except RankFailedError as error:
    print(error)
"""
    with ranks_of(program, 3, tmp_path / "job", RINGLET_KERNELS=kernels) as processes:
        pids = [int(process.stdout.readline()) for process in processes]
        os.kill(pids[1], signal.SIGKILL)
        for rank in (0, 2):
            message = processes[rank].stdout.read()
            assert "rank 1 of 3" in message
            assert processes[rank].wait() == 0
        assert processes[1].wait() == -signal.SIGKILL


def test_abort_ends_the_waiting_of_the_others_with_its_rank(tmp_path):
    program = """
group = communicator.group([0, 1])
if rank == 1:
    communicator.abort(7)
try:
    (group if rank == 0 else communicator).barrier()
except RankFailedError as error:
    print(error)
"""
    with ranks_of(program, 3, tmp_path / "job") as processes:
        for process in processes:
            process.stdin.close()
            process.stdin = None
        outputs = [process.communicate(timeout=60)[0] for process in processes]
        assert [process.returncode for process in processes] == [0, 7, 0]
        assert "rank 1 of 2" in outputs[0]
        assert "rank 1 of 3" in outputs[2]


def test_waiting_for_a_rank_that_has_closed_is_an_error(tmp_path):
    program = """
if rank == 0:
    communicator.close()
    communicator.close()
    sys.stdin.read()
try:
    communicator.barrier()
except CommunicationError as error:
    print(error)
"""
    with ranks_of(program, 2, tmp_path / "job") as processes:
        processes[1].stdout.readline()
        assert "rank 0 of 2" in (message := processes[1].stdout.readline())
        assert "closed" in message
        outputs = processes[0].communicate(timeout=60)[0]
        assert "closed communicator" in outputs


def test_a_missing_job_directory_is_explained(tmp_path):
    with pytest.raises(CommunicationError, match=r"RINGLET_JOB names .*ringlet run"):
        join_node(str(tmp_path / "nowhere"), 0, 2)


def test_a_rank_does_not_wait_for_rank_0_without_a_launcher(tmp_path, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setenv("RINGLET_LAUNCHER_PID", str(ended.pid))
    with pytest.raises(RankFailedError, match="launcher has ended"):
        join_node(str(tmp_path), 1, 2)


def test_a_rank_does_not_wait_for_rank_0_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(node, "SECONDS_TO_MEET", 0.0)
    with pytest.raises(RankFailedError, match="rank 1 has waited 0 s for rank 0"):
        join_node(str(tmp_path), 1, 2)


def test_a_process_that_has_ended_is_not_running_even_if_nobody_has_read_its_code():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert is_running(process.pid)
    process.stdin.close()
    process.stdout.read()  # until it has let go of everything
    while is_running(process.pid):
        pass
    assert process.poll() is not None
    process.stdout.close()
    assert is_running(os.getpid())


def test_the_segment_of_a_job_has_room_for_both_channels():
    assert node.segment_bytes(3) % 4096 == 0
    assert node.segment_bytes(600) > 600 * 600
