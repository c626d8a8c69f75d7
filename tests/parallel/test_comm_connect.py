"""Which communicator is made where, and what is said when the launcher and MPI do not know each other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from harness import mpiexec

from ringlet.comm.environments import VARIABLES
from ringlet.comm.layered import cut_machines, members, ranks_per_node_from_environment
from ringlet.comm.world import connect
from ringlet.errors import CommunicationError, UnknownNameError


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run(
        [sys.executable, "-c", code], env={**clean, **environment}, capture_output=True, text=True, timeout=60
    )


CONNECT = """
from ringlet.comm.world import connect
from ringlet.errors import CommunicationError
try:
    print(connect().size)
except CommunicationError as error:
    print(error)
"""


def test_without_a_launcher_there_is_one_rank() -> None:
    communicator = connect()
    assert (communicator.name, communicator.size) == ("single", 1)


def test_an_unknown_communicator_names_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'torch'"):
        connect("torhc")


def test_a_node_communicator_needs_the_local_launcher() -> None:
    with pytest.raises(CommunicationError, match="ringlet run --launcher local"):
        connect("node")


def test_torch_needs_torchrun() -> None:
    pytest.importorskip("torch")
    with pytest.raises(CommunicationError, match="torchrun --nproc-per-node"):
        connect("torch")


def test_ranks_of_another_mpi_are_told_so() -> None:
    """W processes that each see size 1 must not train W times the same."""
    mpiexec()
    result = run_python(CONNECT, OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
    assert result.returncode == 0, result.stderr
    assert "rank 1 of 2 by mpirun of Open MPI (OMPI_COMM_WORLD_SIZE=2), but MPI sees 1 rank" in result.stdout
    assert "MPICH" in result.stdout
    assert "--no-binary mpi4py" in result.stdout


def test_a_pmi_environment_that_mpi_does_not_use_is_told_so() -> None:
    mpiexec()
    result = run_python(CONNECT, PMI_RANK="0", PMI_SIZE="2")
    assert result.returncode == 0, result.stderr
    assert "rank 0 of 2 by mpiexec of MPICH" in result.stdout
    assert "but MPI sees 1 rank" in result.stdout


def test_missing_mpi4py_is_explained() -> None:
    code = "import sys; sys.modules['mpi4py'] = None" + CONNECT
    result = run_python(code, PMI_RANK="0", PMI_SIZE="2")
    assert "pip install 'ringlet[mpi]'" in result.stdout, result.stderr


def test_missing_torch_is_explained() -> None:
    code = "import sys; sys.modules['torch'] = None" + CONNECT
    result = run_python(code, RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    assert "pip install 'ringlet[torch]'" in result.stdout, result.stderr


def test_machines_are_cut_into_smaller_ones() -> None:
    assert cut_machines([5, 5, 8, 5, 8], None) == [0, 0, 2, 0, 2]
    assert cut_machines([5, 5, 8, 5, 8], 2) == [0, 0, 2, 3, 2]
    assert cut_machines([5, 5, 8, 5, 8], 1) == [0, 1, 2, 3, 4]
    assert members([0, 0, 2, 3, 2]) == [[0, 1], [2, 4], [3]]


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_ranks_per_node_must_be_a_number(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGLET_RANKS_PER_NODE", text)
    with pytest.raises(CommunicationError, match="whole number of at least 1"):
        ranks_per_node_from_environment()
