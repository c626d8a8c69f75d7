"""The public functions in a user's script, under every launcher and without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from harness import job_output, run_job

from ringlet.comm import world
from ringlet.errors import RingletError, UnknownNameError

SCRIPT = Path(__file__).with_name("world_script.py")


@pytest.mark.parametrize(
    ("communicator", "num_ranks"), [("single", 1), ("node", 3), ("mpi", 2), ("torch", 2)], ids=lambda value: str(value)
)
def test_public_functions_work_in_a_script(communicator: str, num_ranks: int, tmp_path: Path) -> None:
    run_job([sys.executable, str(SCRIPT), str(tmp_path)], num_ranks, communicator, tmp_path, 120, {})
    size = num_ranks
    for rank in range(size):
        path = tmp_path / f"world-{rank}.json"
        assert path.exists(), job_output(tmp_path)
        assert json.loads(path.read_text()) == {
            "before": "NotInitializedError: ringlet has not been initialised: call ringlet.init() first, on every rank",
            "size": size,
            "local": [rank, size],
            "cross": [0, 1],
            "average": [sum(range(size)) / size, 2.0],
            "scalar": float(sum(range(size))),
            "numpy scalar": "float32",
            "maximum": [size - 1],
            "broadcast": size - 1,
            "gathered": list(range(size)),
            "rows": [sum(range(size)), 2],
            "scattered": [rank * size],
            "exchanged": [10 * source + rank for source in range(size)],
            "started": 0.0,
            "started rows": list(range(size)),
            "started broadcast": [0],
            "started parts": [float(size)],
            "started exchange": list(range(size)),
            "started barrier": None,
            "same communicator": True,
            "initialized after shutdown": False,
            "again": size,
        }


def test_a_script_needs_no_mpi_and_imports_none() -> None:
    code = (
        "import sys\n"
        "for name in ('mpi4py', 'torch', 'ml_dtypes'): sys.modules[name] = None\n"
        "import ringlet\n"
        "ringlet.init()\n"
        "print(ringlet.size(), ringlet.allreduce(2.5))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.stdout, result.stderr) == ("1 2.5\n", "")


def test_questions_before_init_raise_an_error_that_is_also_a_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "_communicator", None)  # training in this process may have come before
    assert not world.is_initialized()
    for question in (world.rank, world.size, world.local_rank, world.local_size, world.cross_rank, world.cross_size):
        with pytest.raises(ValueError, match=r"ringlet\.init\(\)") as caught:
            question()
        assert isinstance(caught.value, RingletError)


def test_an_unknown_operation_names_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    from ringlet.comm.single import SingleCommunicator

    monkeypatch.setattr(world, "_communicator", SingleCommunicator())
    with pytest.raises(UnknownNameError, match="Did you mean 'average'"):
        world.allreduce(1.0, op="averge")
