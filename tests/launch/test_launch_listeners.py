"""A job on one machine is reachable from that machine alone; and what MPI gives to scripts without its mpiexec."""

from __future__ import annotations

import os
import signal
import socket
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest
from listeners import listeners_of

from ringlet.launch import LaunchPlan
from ringlet.launch.plan import ALLOCATIONS
from ringlet.launch.starting import choose

pytestmark = pytest.mark.skipif(sys.platform != "linux" or sys.byteorder != "little", reason="reads Linux's /proc/net")
BEGIN = """
import sys
pipe = open(sys.argv[1], "rb")
"""
END = """
print("ready", flush=True)
pipe.read()
"""
"""Ranks wait for the end of a pipe, which the test holds open while it looks."""
USES = {
    "ringlet": "import ringlet; ringlet.init(); ringlet.barrier()",
    "mpi4py": "from mpi4py import MPI; assert MPI.COMM_WORLD.allreduce(1) == 2",
    "gloo": """
        import torch, torch.distributed as group, ringlet.torch
        group.init_process_group("gloo")
        group.all_reduce(torch.ones(1))
    """,
    "process group": """
        import torch, torch.distributed as group, ringlet.torch
        group.init_process_group("ringlet")
        group.all_reduce(torch.ones(1))
        group.send(torch.ones(1), 1) if group.get_rank() == 0 else group.recv(torch.ones(1), 0)
    """,
    "wire of gloo": """
        import torch, torch.distributed as group, ringlet.torch
        from ringlet.comm.torch_distributed import torch_communicator
        group.init_process_group("gloo")
        torch_communicator(group.group.WORLD, 1).barrier()
    """,
}
"""What scripts do, each with what may listen."""
NEEDS = {"mpi4py": "mpi4py", "gloo": "torch", "process group": "torch", "wire of gloo": "torch"}


def run(begin, script, tmp_path: Path, text: str, *words: object, **environment: str):
    """What listens while two ranks have run ``text`` and wait, and how the job ended."""
    os.mkfifo(tmp_path / "pipe")
    path = script(BEGIN + textwrap.dedent(text) + END)
    with os.fdopen(os.open(tmp_path / "pipe", os.O_RDWR), "wb"):
        command = [
            sys.executable,
            "-m",
            "ringlet",
            "run",
            "-n",
            "2",
            *map(str, words),
            str(path),
            str(tmp_path / "pipe"),
        ]
        job = begin(command, environment)
        job.wait_for("ready", times=2)
        found = listeners_of(job)
    return found, job.finish()


@pytest.mark.parametrize(
    ("use", "words"),
    [(use, words) for use in USES for words in ((), ("--launcher", "local")) if use != "mpi4py" or not words],
)
def test_ranks_of_one_machine_listen_on_the_loopback_alone(begin, script, tmp_path, use, words):
    if use in NEEDS:
        pytest.importorskip(NEEDS[use])
    found, done = run(begin, script, tmp_path, USES[use], *words)
    assert done.returncode == 0, done.stderr
    assert not [listener for listener in found if not listener.is_local]
    if "gloo" in use or use == "process group":
        assert found, "they do listen: a store at least"


@pytest.fixture
def unused_port() -> int:
    """A port that was free just now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_the_search_finds_what_listens_everywhere(begin, script, tmp_path):
    text = (
        "import socket; a = socket.create_server(('', 0)); b = socket.socket(type=socket.SOCK_DGRAM); b.bind(('', 0))"
    )
    found, _ = run(begin, script, tmp_path, text)
    assert sorted(listener.table for listener in found if not listener.is_local) == ["tcp", "tcp", "udp", "udp"]


def test_a_training_listens_on_the_loopback_alone(begin, tmp_path, unused_port):
    words = ("train", "-n", "2", "--model", "simplemlp", "--dataset", "synthetic", "--input-shape", "1,4,4")
    log = ("--num-epochs", "1000000", "--log", f"prometheus:{unused_port}", "--run-dir", str(tmp_path / "run"))
    job = begin([sys.executable, "-m", "ringlet", *words, *log])
    job.wait_for("samples/s", stream="stderr")
    found = listeners_of(job)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish().returncode in (5, 143)
    assert unused_port in [listener.port for listener in found], "the tracker listens"
    assert all(listener.is_local for listener in found), found


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed")
class TestMpiWithoutMpiexec:
    def test_ranks_are_those_of_ringlet_and_of_mpi(self, launch, script):
        text = """
            import ringlet
            from mpi4py import MPI
            ringlet.init()
            world = MPI.COMM_WORLD
            assert (world.rank, world.size) == (ringlet.rank(), ringlet.size())
            assert world.Split_type(MPI.COMM_TYPE_SHARED).size == world.size
            values = world.allgather(world.rank)
            world.Barrier()
            print("ranks", values)
        """
        done = launch("-n", 3, script(text))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("ranks [0, 1, 2]") == 3

    def test_an_abort_ends_all_ranks(self, launch, script):
        text = """
            from mpi4py import MPI
            if MPI.COMM_WORLD.rank == 1:
                MPI.COMM_WORLD.Abort(7)
            MPI.COMM_WORLD.Barrier()
        """
        done = launch("-n", 2, script(text))
        assert done.returncode == 7
        assert "rank 1 of 2 called MPI_Abort with exit code 7" in done.stderr

    def test_what_only_mpiexec_can_do_is_refused_not_waited_for(self, launch, script):
        text = """
            import sys
            from mpi4py import MPI
            MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)
            try:
                MPI.COMM_SELF.Spawn(sys.executable, ["-c", ""], 1)
            except MPI.Exception as error:
                print("refused")
        """
        done = launch("-n", 1, script(text))
        assert "refused" in done.stdout, done.stderr

    def test_a_rank_that_dies_before_mpi_starts_ends_the_others(self, launch, script):
        text = """
            import os
            if os.environ["RINGLET_RANK"] == "0":
                os.kill(os.getpid(), 9)
            from mpi4py import MPI
        """
        done = launch("-n", 2, script(text))
        assert done.returncode == 3
        assert "killed by signal 9" in done.stderr


def test_an_mpiexec_that_was_named_or_an_allocation_is_used_on_one_machine_too(monkeypatch):
    pytest.importorskip("mpi4py")
    for name in (*ALLOCATIONS, "RINGLET_MPIEXEC", "RINGLET_LAUNCHER"):
        monkeypatch.delenv(name, raising=False)
    plan = LaunchPlan(2)
    assert choose(plan, wants_mpi=True).serves_mpi
    assert not choose(plan, wants_mpi=False).serves_mpi
    monkeypatch.setenv("PBS_NODEFILE", "/nodes")
    assert not plan.stays_here
    assert choose(plan, wants_mpi=False).flavour == "hydra"
    monkeypatch.delenv("PBS_NODEFILE")
    monkeypatch.setenv("RINGLET_MPIEXEC", str(Path(sys.executable).with_name("mpiexec")))
    assert choose(plan, wants_mpi=False).flavour == "hydra"
