"""Real jobs: what they print, how they end and with which code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

WORLD = """
    import json, os, sys
    from ringlet.comm.environments import detect
    world = detect()
"""
HELLO = (
    WORLD
    + """
    print(json.dumps({"rank": world.rank, "size": world.size, "arguments": sys.argv[1:], "name": __name__}))
    print("to stderr", file=sys.stderr)
"""
)
CONNECTED = (
    WORLD
    + """
    import numpy as np
    from ringlet.comm.world import connect
    comm = connect()
"""
)
WAITING = """
    if world.rank != 1:
        comm.barrier()
"""


def records(text: str) -> list[dict[str, object]]:
    lines = [line[line.index("{") :] for line in text.splitlines() if "{" in line]
    return sorted((json.loads(line) for line in lines), key=lambda record: record["rank"])


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_rank_runs_the_script_with_its_arguments(launch, script, launcher, size):
    done = launch("-n", size, "--launcher", launcher, script(HELLO), "--flag", "-n", "7")
    expected = [
        {"rank": rank, "size": size, "arguments": ["--flag", "-n", "7"], "name": "__main__"} for rank in range(size)
    ]
    assert (done.returncode, records(done.stdout)) == (0, expected), done.stderr


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_find_each_other(launch, script, launcher, size):
    text = CONNECTED + "    print(comm.allreduce(np.full(3, comm.rank + 1.0)), comm.size)\n"
    done = launch("-n", size, "--launcher", launcher, "--output", "prefix", script(text))
    total = float(sum(range(1, size + 1)))
    expected = [f"[rank {rank}] [{total:g}. {total:g}. {total:g}.] {size}" for rank in range(size)]
    assert sorted(done.stdout.splitlines()) == expected, done.stderr


def test_a_module_runs_like_a_script(launch, launcher, script):
    folder = script("print('I am', __name__, len(__import__('sys').argv))", "chatty.py").parent
    done = launch("-n", 2, "--launcher", launcher, "-m", "chatty", "word", PYTHONPATH=f"{folder}{os.pathsep}" + _root())
    assert sorted(done.stdout.splitlines()) == ["I am __main__ 2", "[rank 1] I am __main__ 2"], done.stderr


def _root() -> str:
    import ringlet

    return str(Path(ringlet.__file__).parents[1])


def test_modules_beside_the_script_can_be_imported(launch, launcher, script):
    script("value = 41", "beside.py")
    done = launch("-n", 1, "--launcher", launcher, script("import beside; print(beside.value + 1)"))
    assert done.stdout == "42\n", done.stderr


def test_an_exception_names_its_rank_once_and_ends_all(launch, script, launcher):
    text = CONNECTED + "    if world.rank == 1:\n        raise ZeroDivisionError('on purpose')\n" + WAITING
    done = launch("-n", 3, "--launcher", launcher, script(text))
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[0] == f"rank 1 of 3 on {os.uname().nodename} failed:"
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == "ZeroDivisionError: on purpose"
    assert "runpy" not in done.stderr
    assert "worker.py" not in done.stderr


def test_a_users_mistake_has_no_traceback_and_its_own_code(launch, script, launcher):
    text = CONNECTED + "    from ringlet.errors import ConfigError\n    raise ConfigError('learning rate is blue')\n"
    done = launch("-n", 2, "--launcher", launcher, script(text))
    first, second = done.stderr.splitlines()
    assert first.endswith("failed:")
    assert (second, done.returncode) == ("learning rate is blue", 2)


def test_a_killed_rank_is_named_with_its_signal(launch, script, launcher):
    text = CONNECTED + "    if world.rank == 1:\n        print('pid', os.getpid(), flush=True)\n"
    text += "        os.kill(os.getpid(), 9)\n" + WAITING
    done = launch("-n", 2, "--launcher", launcher, script(text))
    pid = done.stdout.split()[-1]
    assert done.returncode == 3
    assert f"rank 1 (pid {pid}) of 2" in done.stderr
    assert "was killed by signal 9 (SIGKILL)" in done.stderr
    assert "BAD TERMINATION" not in done.stderr + done.stdout


@pytest.mark.parametrize("code", [5, 255])
def test_the_exit_code_of_all_ranks_is_kept_without_a_word(launch, script, launcher, code):
    done = launch("-n", 2, "--launcher", launcher, script(f"import sys; sys.exit({code})"))
    assert (done.returncode, done.stderr) == (code, "")


def test_the_exit_code_of_one_rank_is_kept_and_ends_the_others(launch, script, launcher):
    text = CONNECTED + "    if world.rank == 1:\n        sys.exit(7)\n" + WAITING
    done = launch("-n", 3, "--launcher", launcher, script(text))
    assert done.returncode == 7
    assert done.stderr.startswith("rank 1 of 3 on ")
    assert "left with exit code 7" in done.stderr


def test_ranks_that_saved_and_stopped_say_so_once(launch, script, launcher):
    text = (
        WORLD + "    from ringlet.errors import InterruptedRunError\n    raise InterruptedRunError('saved at step 7')\n"
    )
    done = launch("-n", 2, "--launcher", launcher, script(text))
    assert (done.returncode, done.stderr) == (5, "interrupted: saved at step 7\n")


def test_programs_that_a_rank_starts_are_no_ranks_to_the_launcher(launch, script, launcher):
    text = """
    import subprocess, sys
    from ringlet.launch import is_rank
    other = "import os; from ringlet.launch import is_rank; print(is_rank(), 'RINGLET_REPORT' in os.environ)"
    print(is_rank(), flush=True)
    subprocess.run([sys.executable, "-c", other])
    """
    done = launch("-n", 1, "--launcher", launcher, script(text))
    assert done.stdout == "True\nFalse False\n", done.stderr


def test_different_exit_codes_are_not_mixed_into_another(launch, script, launcher):
    done = launch("-n", 2, "--launcher", launcher, script(WORLD + "    sys.exit(4 + world.rank)\n"))
    assert done.returncode in (4, 5)


def test_sys_exit_with_a_text_prints_it(launch, script, launcher):
    done = launch("-n", 1, "--launcher", launcher, script("import sys; sys.exit('no cheese')"))
    assert (done.returncode, done.stderr) == (1, "no cheese\n")


def test_an_error_after_anothers_failure_does_not_hide_it(launch, script, launcher):
    text = (
        CONNECTED
        + """
    if world.rank == 1:
        os.kill(os.getpid(), 11)
    comm.barrier()
"""
    )
    done = launch("-n", 3, "--launcher", launcher, script(text))
    assert done.returncode == 3
    assert done.stderr.startswith("rank 1 (pid ")
    assert "SIGSEGV" in done.stderr


def test_an_abort_of_mpi_passes_its_code(launch, script):
    pytest.importorskip("mpi4py")
    text = (
        "from mpi4py import MPI\nif MPI.COMM_WORLD.rank == 1:\n    MPI.COMM_WORLD.Abort(9)\nMPI.COMM_WORLD.Barrier()\n"
    )
    done = launch("-n", 2, "--launcher", "mpi", script(text))
    assert done.returncode == 9
    assert "MPI_Abort" in done.stderr
    assert "ended with exit code 9 before all ranks had ended" in done.stderr


def test_threads_are_the_cores_divided_by_the_ranks(launch, script, launcher):
    text = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'])"
    words = ("--launcher", launcher, script(text))
    assert launch("-n", 1, *words, OMP_NUM_THREADS="3", OPENBLAS_NUM_THREADS="").stdout == "3 3\n"
    assert launch("-n", 1, "--threads", 5, *words).stdout == "5 5\n"
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    done = launch("-n", 2, "--output", "prefix", *words, OMP_NUM_THREADS="", OPENBLAS_NUM_THREADS="")
    assert done.stdout.splitlines()[0].endswith(f"{share} {share}")


def test_a_grandchild_does_not_survive_a_failure(launch, script, launcher):
    text = "import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n1 / 0\n"
    assert launch("-n", 2, "--launcher", launcher, script(text)).returncode == 1


def test_the_launcher_comes_from_the_environment_unless_given(launch, script):
    text = script(WORLD + "    print(world.launcher)\n")
    assert launch("-n", 1, text, RINGLET_LAUNCHER="local").stdout == "local\n"
    wrong = launch("-n", 1, text, RINGLET_LAUNCHER="rocket")
    assert (wrong.returncode, "RINGLET_LAUNCHER='rocket'" in wrong.stderr) == (2, True)


def test_within_a_rank_the_script_joins(launch, script):
    inner = ("-n", 1, "--launcher", "local")
    done = launch(*inner, "-m", "ringlet", "run", script(HELLO), "x")
    assert [record["arguments"] for record in records(done.stdout)] == [["x"]], done.stderr
    other = launch(*inner, "-m", "ringlet", "run", "-n", 3, script(HELLO))
    assert other.returncode == 2
    assert "3 workers are asked for, but this process is rank 0 of 1" in other.stderr


def test_under_another_mpiexec_the_script_joins_and_a_failure_ends_all(begin, script):
    pytest.importorskip("mpi4py")
    import sys

    from ringlet.launch.mpiexec import find_mpi

    text = CONNECTED + "    if world.rank == 1:\n        raise ValueError('alone')\n" + WAITING
    words = [sys.executable, "-m", "ringlet", "run", str(script(text))]
    job = begin([find_mpi().path, "-n", "2", *words])
    done = job.finish()
    job.wait_until_all_gone()
    assert done.returncode == 1
    assert "rank 1 of 2 on " in done.stderr
    assert "ValueError: alone" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nothing to run"),
        (["nowhere.py"], "'nowhere.py' is no file"),
        (["-m", "no_such_module_here"], "cannot be imported"),
        (["-n", "2", "--hosts", "a:1,b:1", "--launcher", "local", "x.py"], "this machine only"),
        (["-n", "5", "--hosts", "a:2,b:2", "x.py"], "5 workers do not fit"),
        (["--hosts", "a", "--hostfile", "b", "x.py"], "--hosts and --hostfile"),
        (["--hosts", "-oProxyCommand=id", "x.py"], "is no host name"),
        (["--launcher", "mpo", "x.py"], "Did you mean 'mpi'"),
    ],
)
def test_mistakes_are_explained_before_anything_starts(launch, words, message):
    done = launch(*words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
