"""Faults happen where they were asked for, once if so wished, and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ringlet.errors import ConfigError, UnknownNameError
from ringlet.guards import faults

REACH = """
from ringlet.guards import faults
for rank in range(2):
    for step in range(3):
        for phase in faults.PHASES:
            faults.reach(phase, rank, step)
            print(rank, step, phase, flush=True)
"""


def reach_all(fault: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {faults.VARIABLE: fault}
    return subprocess.run(
        [sys.executable, "-c", REACH], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stdout.splitlines() or [""])[-1]


def test_without_the_variable_nothing_is_armed() -> None:
    assert faults.armed(faults.parse("")) is faults.armed(())
    faults.armed(())("update", 0, 1, np.zeros(3))


def test_kill_ends_the_process_by_the_signal_at_that_place() -> None:
    done = reach_all("kill@rank=1,step=2,phase=update")
    assert done.returncode == -signal.SIGKILL
    assert last_line(done) == "1 2 reduce"


def test_exit_leaves_with_its_code() -> None:
    done = reach_all("exit@step=1,phase=start,code=7")
    assert (done.returncode, last_line(done)) == (7, "0 0 exit")


def test_raise_is_no_error_that_a_user_can_mend() -> None:
    done = reach_all("raise@rank=0,step=1,phase=save")
    assert done.returncode == 1
    assert "InjectedFault: a fault that RINGLET_FAULT asked for, on rank 0 in phase 'save' of step 1" in done.stderr


def test_stop_stops_the_process_until_it_is_continued() -> None:
    environment = os.environ | {faults.VARIABLE: "stop@rank=0,step=0,phase=load"}
    process = subprocess.Popen([sys.executable, "-c", REACH], env=environment, stdout=subprocess.PIPE)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, output.decode().splitlines()[-1]) == (0, "1 2 exit")


def test_several_faults_can_be_asked_for() -> None:
    done = reach_all("exit@rank=1,step=9; kill@rank=0,step=2,phase=forward")
    assert (done.returncode, last_line(done)) == (-signal.SIGKILL, "0 2 load")


def test_once_means_once_for_all_processes(tmp_path: Path) -> None:
    fault = f"kill@step=1,phase=load,once={tmp_path / 'happened'}"
    assert reach_all(fault).returncode == -signal.SIGKILL
    assert reach_all(fault).returncode == 0


def test_nan_spoils_the_element_that_was_named() -> None:
    reach, values = faults.armed(faults.parse("nan@rank=0,step=3,phase=reduce,element=2")), np.zeros((2, 2))
    reach("reduce", 0, 3)  # no array here: the fault waits for one
    reach("reduce", 0, 2, values)
    assert np.isfinite(values).all()
    reach("reduce", 0, 3, values)
    assert np.isnan(values).tolist() == [[False, False], [True, False]]


@pytest.mark.parametrize("bit", [0, 9, 31])
def test_flip_changes_exactly_one_bit(bit: int) -> None:
    values = np.arange(5, dtype=np.float32)
    before = values.view(np.uint32).copy()
    faults.armed(faults.parse(f"flip@step=1,element=3,bit={bit}"))("update", 0, 1, values)
    assert (values.view(np.uint32) ^ before).tolist() == [0, 0, 0, 1 << bit, 0]


def test_a_fault_that_is_not_known_is_refused() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown fault in RINGLET_FAULT 'kil'. Did you mean 'kill'"):
        faults.parse("kil@rank=1")


@pytest.mark.parametrize("text", ["kill@rank", "kill@rank=x", "kill@phase=later", "kill@colour=2", "kill@once="])
def test_conditions_that_are_not_understood_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not understood. Expected rank, step"):
        faults.parse(text)
