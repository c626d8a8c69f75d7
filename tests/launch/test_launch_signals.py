"""Signals to the launcher, its sudden death, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

POLITE = r"""
    import os, signal, sys
    woken, wake = os.pipe()  # an Event would not do: its lock may be held by the very code that the signal interrupts
    def leave(number, frame):
        os.write(1, b"asked %d\n" % number)
        os.write(wake, b"!")
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGTERM, leave)
    print("ready", flush=True)
    os.read(woken, 1)
    sys.exit(5)
"""
STUBBORN = r"""
    import os, signal
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"heard\n"))
    signal.signal(signal.SIGTERM, lambda *_: os.write(1, b"heard\n"))
    print("ready", flush=True)
    while True:
        signal.pause()
"""
PLAIN = """
    import signal
    print("ready", flush=True)
    while True:
        signal.pause()
"""


def started(begin, script, launcher, text, size=2):
    command = [sys.executable, "-m", "ringlet", "run", "-n", str(size), "--launcher", launcher, str(script(text))]
    job = begin(command)
    job.wait_for("ready", times=size)
    return job


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_every_rank_once_and_its_code_comes_back(begin, script, launcher, number):
    job = started(begin, script, launcher, POLITE)
    job.process.send_signal(number)
    done = job.finish()
    assert done.returncode == 5
    assert done.stdout.count(f"asked {int(number)}") == 2
    assert done.stderr == ""


def test_a_second_signal_ends_ranks_that_do_not_listen(begin, script, launcher):
    job = started(begin, script, launcher, STUBBORN)
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("heard", times=2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish().returncode == 128 + signal.SIGTERM


def test_a_keyboard_interrupt_is_no_failure(begin, script, launcher):
    job = started(begin, script, launcher, PLAIN)
    job.process.send_signal(signal.SIGINT)
    done = job.finish()
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "interrupted: all workers have ended\n")


def test_ranks_that_do_not_handle_sigterm_end_by_it(begin, script, launcher):
    job = started(begin, script, launcher, PLAIN)
    job.process.send_signal(signal.SIGTERM)
    done = job.finish()
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


def test_a_closed_terminal_asks_ranks_to_leave(begin, script, launcher):
    job = started(begin, script, launcher, POLITE)
    job.process.send_signal(signal.SIGHUP)
    assert job.finish().returncode == 5


@pytest.mark.parametrize("size", [1, 4])
def test_no_rank_survives_a_killed_launcher(begin, script, launcher, size):
    job = started(begin, script, launcher, STUBBORN, size)
    job.process.kill()
    job.process.wait()
    job.wait_until_all_gone()


def test_a_killed_mpiexec_ends_all_and_is_named(begin, script):
    pytest.importorskip("mpi4py")
    job = started(begin, script, "mpi", STUBBORN)
    [mpiexec] = [pid for pid in children(job.process.pid) if "mpiexec" in command_of(pid)]
    os.kill(mpiexec, signal.SIGKILL)
    done = job.finish()
    assert done.returncode == 3
    assert "mpiexec was killed by signal 9" in done.stderr
    job.wait_until_all_gone()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


LOUD = r"""
    import os, sys
    from pathlib import Path
    from ringlet.comm.environments import detect
    rank = str(detect().rank)
    open(sys.argv[1] + "gate" + rank).close()
    for _ in range(500):
        print("x" * 1000)
        print("y" * 1000, file=sys.stderr)
    Path(sys.argv[1] + "done" + rank).touch()
    sys.exit(7)
"""


@pytest.mark.parametrize("output", ["plain", "prefix"])
def test_output_that_nobody_reads_neither_ends_nor_blocks_the_ranks(begin, script, launcher, tmp_path, output):
    """Far more than a pipe holds is printed after the reader has died; no rank notices."""
    gates = [tmp_path / f"gate{rank}" for rank in range(2)]
    for gate in gates:
        os.mkfifo(gate)
    words = ["-n", "2", "--launcher", launcher, "--output", output, str(script(LOUD)), f"{tmp_path}/"]
    job = begin([sys.executable, "-m", "ringlet", "run", *words])
    for pipe in (job.process.stdout, job.process.stderr):
        pipe.close()
    job.process.stdout = job.process.stderr = None
    for gate in gates:
        gate.open("w").close()
    assert job.finish().returncode == 7
    assert sorted(path.name for path in tmp_path.glob("done*")) == ["done0", "done1"]
    job.wait_until_all_gone()


def test_a_lost_output_is_told_on_the_other_one(begin, script, launcher, tmp_path):
    text = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n"
    words = ["run", "-n", "1", "--launcher", launcher, str(script(text))]
    done = begin(["sh", "-c", 'exec "$0" "$@" >/dev/full', sys.executable, "-m", "ringlet", *words]).finish()
    assert done.returncode == 0
    assert sorted(done.stderr.splitlines()) == [
        "err",
        "note: stdout cannot be written any more (No space left on device): what follows is not shown",
    ]


def test_a_closed_terminal_is_told_once_however_often_it_comes(begin, script, launcher):
    job = started(begin, script, launcher, POLITE)
    for _ in range(5):
        job.process.send_signal(signal.SIGHUP)
    done = job.finish()
    assert done.returncode == 5
    assert done.stdout.count(f"asked {int(signal.SIGTERM)}") == 2
