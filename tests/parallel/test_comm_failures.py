"""One rank fails while the others wait for it: all end, with its report and its exit code."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from harness import JobError, run_job

SCRIPT = Path(__file__).with_name("failing_script.py")
KINDS = ("node", "mpi", "torch")


def output_of_failure(communicator: str, how: str, folder: Path) -> str:
    program = [sys.executable, str(SCRIPT), how]
    with pytest.raises(JobError) as caught:
        run_job(program, 3, communicator, folder, 60, {"RINGLET_RANKS_PER_NODE": "2"})
    text = str(caught.value)
    assert "not finished in time" not in text
    assert "went on without rank 1" not in text
    return text


@pytest.mark.parametrize("communicator", KINDS)
def test_a_defect_on_one_rank_ends_all_with_its_trace(communicator: str, tmp_path: Path) -> None:
    text = output_of_failure(communicator, "defect", tmp_path)
    assert "rank 1 of 3 on " in text
    assert "Traceback" in text
    assert "KeyError: 'no such thing'" in text


def test_a_users_mistake_is_reported_without_a_trace(tmp_path: Path) -> None:
    text = output_of_failure("mpi", "mistake", tmp_path)
    assert "failed:\nthe file is not there\n" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("communicator", ["mpi"])
def test_abort_ends_all_with_its_code(communicator: str, tmp_path: Path) -> None:
    assert "process 0 ended with 7" in output_of_failure(communicator, "abort", tmp_path)
