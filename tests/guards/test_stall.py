"""A rank that hangs is found and named, with the stacks of all ranks; the job ends with exit code 3."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from harness import JobError, run_ranks

import ringlet
from ringlet.comm.environments import VARIABLES
from ringlet.comm.single import SingleCommunicator
from ringlet.errors import EXIT_RANK_DIED, ConfigError
from ringlet.guards.stall import Pace, StallDetector

CHECKS = Path(__file__).with_name("stall_checks.py")
HOST = os.uname().nodename
MARK = "RINGLET_TEST_MARK"


def output_of(name: str, num_ranks: int, communicator: str = "node", machine: str = "", **arguments: object) -> str:
    """What the ranks printed until the job ended, which it must not do well."""
    environment = {"RINGLET_RANKS_PER_NODE": machine} if machine else None
    with pytest.raises(JobError) as caught:
        run_ranks((CHECKS, name), num_ranks, communicator=communicator, arguments=arguments, environment=environment)
    return str(caught.value)


def headline(rank: int, size: int, step: int = 5) -> str:
    return (
        rf"rank {rank} of {size} on {re.escape(HOST)} has made no progress for [\d.]+ s \(limit 1.5 s\) in step {step}"
    )


WAITING = r", waiting in allreduce, called by train \(stall_checks.py:\d+\); behind: "


@pytest.mark.parametrize("bad_rank", [0, 2])
def test_a_stopped_rank_is_named_by_the_others(bad_rank: int) -> None:
    output = output_of("train", 3, bad_rank=bad_rank, how="stop")
    reporter = 1 if bad_rank == 0 else 0
    assert re.search(
        headline(reporter, 3) + WAITING + rf"rank {bad_rank} \(step 5, its process \d+ is stopped\)", output
    )
    assert output.count("has made no progress") == 1


def test_a_hanging_rank_is_named_and_all_show_their_stacks() -> None:
    output = output_of("train", 3, bad_rank=1, how="hang")
    place = r"rank 1 \(step 5, in wait \(threading.py:\d+\)\)\n"
    assert re.search(headline(0, 3) + WAITING + place, output)
    for rank in range(3):
        assert f"--- stacks of rank {rank} (process " in output
    hanging = output.partition("--- stacks of rank 1 ")[2].partition("---")[0]
    assert re.search(r'File ".*stall_checks.py", line \d+ in hang\n', hanging)
    assert output.count("has made no progress") == 1


def test_a_rank_that_hangs_in_a_compiled_library_shows_its_stack_by_a_signal() -> None:
    output = output_of("train", 2, bad_rank=0, how="hold_the_interpreter", limit=3.0)
    assert re.search(r"behind: rank 0 \(step \d+, has not responded for \d+ s\)", output)
    assert "--- stacks of rank 0: on its own error output, by a signal" in output
    assert re.search(r'File ".*stall_checks.py", line \d+ in hold_the_interpreter', output)


def test_a_rank_that_left_is_named() -> None:
    assert "behind: rank 1 (step 3, has left training)" in output_of("leave_early", 2)


@pytest.mark.parametrize(("how", "where"), [("hang", "in wait "), ("stop", "waiting in allreduce")])
def test_under_mpiexec_the_exit_code_is_kept_and_nobody_is_left(how: str, where: str) -> None:
    output = output_of("train", 2, "mpi", bad_rank=1, how=how)
    assert f"process 0 ended with {EXIT_RANK_DIED}" in output
    assert re.search(headline(0, 2) + WAITING + r"rank 1 \(step 5, ", output)


def test_the_machine_of_the_hanging_rank_reports_it() -> None:
    output = output_of("train", 2, "mpi", "1", bad_rank=1, how="hang")
    assert re.search(headline(1, 2) + r", in wait ", output)
    assert output.count("has made no progress") == 1


def test_a_machine_that_cannot_answer_is_found_by_another() -> None:
    output = output_of("train", 2, "mpi", "1", bad_rank=1, how="stop")
    assert re.search(headline(0, 2), output)
    assert "all ranks of this machine wait: the cause is on another machine" in output


def test_who_works_alone_for_long_and_says_so_is_not_stalled() -> None:
    assert run_ranks((CHECKS, "work_alone"), 2) == [0, 0]


def test_ranks_that_are_well_notice_nothing() -> None:
    assert run_ranks((CHECKS, "finish"), 2) == [True, True]


# -- under a launcher of ours -----------------------------------------------------------------------------------------
SCRIPT = """
    import sys
    sys.path.insert(0, {folder!r})
    from stall_checks import train
    from ringlet.comm.world import connect
    train(connect(), {bad_rank}, {how!r})
"""


def launch(tmp_path: Path, num_ranks: int, launcher: str, how: str) -> subprocess.CompletedProcess[str]:
    script, mark = tmp_path / "script.py", uuid.uuid4().hex
    text = SCRIPT.format(folder=str(CHECKS.parent), bad_rank=num_ranks - 1, how=how)
    script.write_text("\n".join(line.strip() for line in text.splitlines()))
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {"PYTHONPATH": str(Path(ringlet.__file__).parents[1]), "OMP_NUM_THREADS": "1", MARK: mark}
    command = [sys.executable, "-m", "ringlet", "run", "-n", str(num_ranks), "--launcher", launcher, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert not processes_with(mark)
    return done


def processes_with(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes():
                found.append(path.parent.name)
    return found


@pytest.mark.parametrize("launcher", ["local", "mpi"])
@pytest.mark.parametrize("how", ["stop", "hang"])
def test_the_launcher_tells_it_first_and_once_and_ends_with_its_code(tmp_path: Path, launcher: str, how: str) -> None:
    done = launch(tmp_path, 3, launcher, how)
    assert done.returncode == EXIT_RANK_DIED, done.stderr
    assert re.search(headline(0, 3) + WAITING + r"rank 2 \(step 5, ", done.stderr)
    assert done.stderr.count("has made no progress") == 1
    assert "--- stacks of rank 1 " in done.stderr


def test_a_rank_alone_is_watched_where_somebody_waits_for_it(tmp_path: Path) -> None:
    done = launch(tmp_path, 1, "local", "hang")
    assert done.returncode == EXIT_RANK_DIED
    assert re.search(headline(0, 1) + r", in wait ", done.stderr)


# -- limits -----------------------------------------------------------------------------------------------------------
def test_the_limit_follows_the_median_of_what_was_usual() -> None:
    pace = Pace()
    assert pace.limit == 30.0
    for step in range(1, 6):
        pace.note(step, 2.0)
    assert pace.limit == 30.0
    for step in range(6, 12):
        pace.note(step, 7.0)
    pace.note(12, 1000.0)
    assert pace.limit == 70.0


def test_several_signs_of_progress_between_two_looks_share_the_time() -> None:
    pace = Pace()
    pace.note(0, 20.0)
    assert pace.idle == 20.0
    pace.note(4, 20.0)
    assert (pace.idle, pace.limit) == (0.0, 100.0)


def test_a_given_limit_stays() -> None:
    pace = Pace(5.0)
    pace.note(1, 100.0)
    assert pace.limit == 5.0


def test_a_suspended_job_has_not_stalled() -> None:
    pace = Pace(5.0)
    pace.longest_gap = 2.0
    pace.note(0, 3600.0)
    assert pace.idle == 2.0


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_limit_that_makes_no_sense_is_refused(limit: float) -> None:
    with pytest.raises(ConfigError, match="expected more than 0"):
        StallDetector(SingleCommunicator(), limit)


@pytest.mark.parametrize("limit", [None, 0])
def test_a_process_alone_or_without_limit_is_not_watched(limit: float | None) -> None:
    with StallDetector(SingleCommunicator(), limit) as detector:
        detector.progress(1)
        assert detector._thread is None
