"""Finding the program that starts ranks, by its kind and by what mpi4py uses; stand-ins for those not here."""

from __future__ import annotations

import json
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import ringlet
from ringlet.errors import UsageError
from ringlet.launch import Host, LaunchPlan
from ringlet.launch.mpiexec import MpiLauncher, find_mpi

REAL_PYTHON = str(Path(sys.executable).resolve())
HYDRA = "HYDRA build details:\n    Version: 4.2\n"
OPEN_MPI = "mpirun (Open MPI) 5.0.3\n"
SLURM = "slurm 23.11.4\n"
OPEN_MPI_LIBRARY = "Open MPI v5.0.3, package: Open MPI"
MPICH_LIBRARY = "MPICH Version:      4.2.0\nMPICH Release date: whenever"

STAND_IN = """#!{python}
import json, os, selectors, signal, subprocess, sys
if "--version" in sys.argv:
    print({version!r}, end="")
    sys.exit()
with open({record!r}, "w") as file:
    json.dump(sys.argv[1:], file)
size = int(sys.argv[sys.argv.index("-n") + 1])
program = sys.argv[sys.argv.index({python!r}) :]
children, watched = [], selectors.DefaultSelector()
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: [child.send_signal(number) for child in children])
for rank in range(size):
    own = {{name: str(value) for name, value in zip({variables!r}, (rank, size, rank, size))}}
    children.append(subprocess.Popen(program, stdout=subprocess.PIPE, env={{**os.environ, **own}}))
    watched.register(children[-1].stdout, selectors.EVENT_READ)
while watched.get_map():
    for key, _ in watched.select():
        data = os.read(key.fd, 1024)
        if data:
            os.write(1, data)
        else:
            watched.unregister(key.fileobj)
sys.exit(max(child.wait() for child in children))
"""
OPEN_MPI_VARIABLES = [f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
SLURM_VARIABLES = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "UNUSED"]


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder of stand-ins that is the whole PATH, with an interpreter that has nothing beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    for name in ("RINGLET_MPIEXEC", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    (folder / "python").symlink_to(REAL_PYTHON)
    return folder


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o700)


def write_version(path: Path, version: str) -> None:
    write_program(path, f"#!{REAL_PYTHON}\nprint({version!r}, end='')\n")


def write_library(folder: Path, version: str, monkeypatch) -> str:
    """A stand-in for mpi4py; empty version: it cannot be loaded."""
    package = folder / "library" / "mpi4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class rc:\n    initialize = finalize = True\n")
    body = f"def Get_library_version():\n    return {version!r}\n" if version else "raise ImportError('no libmpi.so')\n"
    (package / "MPI.py").write_text(body)
    monkeypatch.syspath_prepend(package.parent)
    path = os.pathsep.join([str(package.parent), str(Path(ringlet.__file__).parents[1])])
    monkeypatch.setenv("PYTHONPATH", path)
    return path


@pytest.mark.parametrize(
    ("library", "version", "flavour"),
    [
        (MPICH_LIBRARY, HYDRA, "hydra"),
        (OPEN_MPI_LIBRARY, OPEN_MPI, "openmpi"),
        ("Intel(R) MPI Library 2021", HYDRA, "hydra"),
    ],
)
def test_the_program_of_the_right_mpi_is_taken(programs, tmp_path, monkeypatch, library, version, flavour):
    write_library(tmp_path, library, monkeypatch)
    write_version(programs / "mpiexec", version)
    found = find_mpi()
    assert (found.path, found.flavour) == (str(programs / "mpiexec"), flavour)


def test_a_program_that_fits_is_found_behind_one_that_does_not(programs, tmp_path, monkeypatch):
    write_library(tmp_path, OPEN_MPI_LIBRARY, monkeypatch)
    write_version(programs / "mpiexec", HYDRA)
    write_version(programs / "mpirun", OPEN_MPI)
    assert find_mpi().path == str(programs / "mpirun")


def test_the_wrong_mpi_is_explained(programs, tmp_path, monkeypatch):
    write_library(tmp_path, MPICH_LIBRARY, monkeypatch)
    write_version(programs / "mpiexec", OPEN_MPI)
    with pytest.raises(UsageError, match=r"mpi4py uses MPICH Version: +4\.2\.0.*mpiexec \(openmpi\).*another MPI"):
        find_mpi()


def test_a_missing_program_is_explained(programs, tmp_path, monkeypatch):
    write_library(tmp_path, MPICH_LIBRARY, monkeypatch)
    with pytest.raises(UsageError, match="none was found"):
        find_mpi()


def test_a_library_that_does_not_load_is_explained(programs, tmp_path, monkeypatch):
    write_library(tmp_path, "", monkeypatch)
    write_version(programs / "mpiexec", HYDRA)
    with pytest.raises(UsageError, match=r"does not load its MPI library.*no libmpi\.so"):
        find_mpi()


def test_within_an_allocation_srun_is_taken(programs, tmp_path, monkeypatch):
    write_library(tmp_path, OPEN_MPI_LIBRARY, monkeypatch)
    write_version(programs / "srun", SLURM)
    write_version(programs / "mpirun", OPEN_MPI)
    (programs / "python").unlink()
    monkeypatch.setattr(sys, "executable", _linked(tmp_path / "elsewhere"))
    assert find_mpi().flavour == "openmpi"
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert find_mpi().path == str(programs / "srun")


def _linked(folder: Path) -> str:
    folder.mkdir()
    (folder / "python").symlink_to(REAL_PYTHON)
    return str(folder / "python")


def test_the_user_can_name_the_program(programs, tmp_path, monkeypatch):
    write_library(tmp_path, MPICH_LIBRARY, monkeypatch)
    write_version(tmp_path / "mine", HYDRA)
    monkeypatch.setenv("RINGLET_MPIEXEC", str(tmp_path / "mine"))
    assert find_mpi().path == str(tmp_path / "mine")
    monkeypatch.setenv("RINGLET_MPIEXEC", str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="no program that can be run"):
        find_mpi()


def test_hosts_go_to_each_program_in_its_own_words(tmp_path):
    plan = LaunchPlan(3, (Host("a", 2), Host("b", 2)))
    for flavour, text in (("hydra", "a:2\nb:2\n"), ("openmpi", "a slots=2\nb slots=2\n"), ("slurm", "a\na\nb\n")):
        command, extra = MpiLauncher("/x", flavour).command(plan, ["program"], {"RINGLET_FRAMES": "t"}, tmp_path)
        assert command[:3] == ["/x", "-n", "3"]
        assert command[-1] == "program"
        assert (tmp_path / "hosts").read_text() == text
        assert str(tmp_path / "hosts") in [*command, *extra.values()]


@pytest.fixture(params=["openmpi", "slurm"])
def stand_in(request, tmp_path, monkeypatch):
    """Environment in which a stand-in for Open MPI or Slurm starts ranks; it cuts their output at 1,024 bytes."""
    is_slurm = request.param == "slurm"
    version, variables = (SLURM, SLURM_VARIABLES) if is_slurm else (OPEN_MPI, OPEN_MPI_VARIABLES)
    program, record = tmp_path / ("srun" if is_slurm else "mpirun"), tmp_path / "words.json"
    text = STAND_IN.format(python=sys.executable, version=version, record=str(record), variables=variables)
    write_program(program, text)
    path = write_library(tmp_path, OPEN_MPI_LIBRARY, monkeypatch)
    return {"RINGLET_MPIEXEC": str(program), "RINGLET_LAUNCHER": "mpi", "PYTHONPATH": path}, record


def test_output_of_ranks_survives_open_mpi_and_slurm(launch, script, stand_in):
    environment, record = stand_in
    text = "for i in range(3000):\n    print(i, 'x' * (i % 89))\n"
    done = launch("-n", 3, "--output", "prefix", script(text), **environment)
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        lines = [line[9:] for line in done.stdout.splitlines() if line.startswith(f"[rank {rank}]")]
        assert lines == [f"{i} {'x' * (i % 89)}" for i in range(3000)]
    words = json.loads(record.read_text())
    assert "RINGLET_FRAMES" in words or any(word.startswith("--mpi=") for word in words)


def test_failures_are_told_under_open_mpi_and_slurm(launch, script, stand_in):
    text = "from ringlet.comm.environments import detect\nimport signal\n"
    text += "if detect().rank == 1:\n    raise KeyError('here')\nsignal.pause()\n"
    done = launch("-n", 2, script(text), **stand_in[0])
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, "KeyError: 'here'")


def test_ranks_are_asked_to_leave_under_open_mpi_and_slurm(begin, script, stand_in):
    text = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\nprint('ready', flush=True)\n"
    text += "while True:\n    signal.pause()\n"
    job = begin([sys.executable, "-m", "ringlet", "run", "-n", "2", str(script(text))], stand_in[0])
    job.wait_for("ready", times=2)
    job.process.send_signal(signal.SIGTERM)
    assert job.finish().returncode == 5


def test_without_a_working_mpi_plain_processes_are_started(launch, script, tmp_path, monkeypatch):
    text = script("from ringlet.comm.environments import detect\nprint(detect().launcher)\n")
    path = write_library(tmp_path, "", monkeypatch)
    assert launch("-n", 1, text, PYTHONPATH=path).stdout == "local\n"
    wanted = launch("-n", 1, "--launcher", "mpi", text, PYTHONPATH=path)
    assert (wanted.returncode, "does not load its MPI library" in wanted.stderr) == (2, True)


@pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed")
def test_mpiexec_is_taken_where_it_is_asked_for_and_not_on_one_machine(launch, script):
    text = script("from ringlet.comm.environments import detect\nprint(detect().launcher)\n")
    for words, expected in (((), "local"), (("--launcher", "mpi"), "mpich")):
        done = launch("-n", 2, *words, text)
        assert done.returncode == 0
        assert sorted(done.stdout.splitlines()) == ["[rank 1] " + expected, expected]
