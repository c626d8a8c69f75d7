"""Scripts that fork: the children end as any program ends, and neither speak nor end anything for their rank."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FORK = """
import os, sys, threading
import numpy as np
import ringlet
{imports}
ringlet.init()
before = ringlet.allreduce(np.ones(3), op="sum")
child = os.fork()
if child == 0:
    {child}
else:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for _ in range(5):
        total = ringlet.allreduce(float(ringlet.rank() + 1), op="sum")
    ringlet.barrier()
    print(f"rank {{ringlet.rank()}}: child {{code}}, total {{total}}")
"""
ENDS = {
    "the end of the script": ("pass", 0),
    "sys.exit()": ("sys.exit()", 0),
    "sys.exit(3)": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError('of a child')", 1),
    "a collective": ("ringlet.barrier()", 1),
    "a thread": ("threading.Thread(target=lambda: None).start()", 0),
}
"""What a child does, and its exit code."""


@pytest.mark.parametrize("end", ENDS)
def test_a_child_that_ends_leaves_its_rank_alone(launch, script, launcher, end):
    child, code = ENDS[end]
    done = launch("-n", 2, "--launcher", launcher, "--output", "prefix", script(FORK.format(imports="", child=child)))
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        assert f"rank {rank}: child {code}, total 3.0" in done.stdout
    assert "failed:" not in done.stderr, "no rank has"
    if end == "an exception":
        assert done.stderr.count("ValueError: of a child") == 2
    if end == "a collective":
        assert "this process was forked from rank 0" in done.stderr
        assert "this process was forked from rank 1" in done.stderr


@pytest.mark.parametrize("imports", ["from mpi4py import MPI", "import torch.distributed, ringlet.torch"])
@pytest.mark.parametrize("words", [(), ("--launcher", "mpi")], ids=["auto", "mpi"])
def test_libraries_of_a_rank_are_not_ended_by_its_child(launch, script, words, imports):
    pytest.importorskip("mpi4py")
    pytest.importorskip("torch")
    use = "MPI.COMM_WORLD.Barrier()" if "MPI" in imports else 'torch.distributed.init_process_group("ringlet")'
    again = use if "MPI" in imports else "torch.distributed.barrier()"
    text = FORK.format(imports=f"{imports}\n{use}", child="sys.exit()") + f"\n    {again}\n"
    done = launch("-n", 2, *words, "--output", "prefix", script(text))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("child 0, total 3.0") == 2, done.stdout


@pytest.mark.parametrize("kind", ["mpiexec", "torchrun"])
def test_without_our_launcher_too(begin, script, kind):
    imports = "" if kind == "mpiexec" else "import torch"
    path = script(FORK.format(imports=imports, child="sys.exit()"))
    pytest.importorskip("mpi4py" if kind == "mpiexec" else "torch")
    program = Path(sys.executable).with_name("mpiexec")
    if kind == "mpiexec" and not program.exists():
        pytest.skip("no mpiexec beside this Python")
    run = [str(program), "-n", "2", sys.executable]
    if kind == "torchrun":
        run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    done = begin([*run, str(path)]).finish()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("child 0, total 3.0") == 2, done.stdout


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("way", ["ddp", "ringlet.torch"])
def test_workers_of_a_data_loader_come_and_go(launch, way):
    """Workers are forked in every epoch; then they end, in the middle of the training."""
    script = Path(__file__).with_name("data_loader_script.py")
    done = launch("-n", 2, "--output", "prefix", script, way)
    assert done.returncode == 0, done.stderr
    digests = [line.split()[-1] for line in done.stdout.splitlines() if "weights" in line]
    assert len(digests) == 2
    assert digests[0] == digests[1]
