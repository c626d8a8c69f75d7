"""Programs that import Horovod run unchanged: ``ringlet run --horovod``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import ringlet
from ringlet.comm.environments import World
from ringlet.errors import UsageError
from ringlet.launch.horovod import FOLDER, MARK, enable, tell_place, translated

HERE = Path(__file__).parent
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
needs_tensorflow = pytest.mark.skipif(find_spec("tensorflow") is None, reason="tensorflow is not installed")
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
QUICK = {
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(Path(ringlet.__file__).parents[1]), str(HERE.with_name("quick_imports"))]),
}


def records(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    lines = [line[line.index("{") :] for line in done.stdout.splitlines() if "{" in line]
    return sorted((json.loads(line) for line in lines), key=lambda record: record["rank"])


def launch(begin: Any, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ringlet", "run", "--horovod", *map(str, words)]
    done: subprocess.CompletedProcess[str] = begin(command, environment).finish()
    return done


@needs_torch
@pytest.mark.parametrize("launcher", ["local", "mpi"])
def test_a_torch_program(begin: Any, launcher: str, tmp_path: Path) -> None:
    words = ("-n", 2, "--launcher", launcher, HERE / "horovod_torch_program.py")
    found = records(launch(begin, *words, HOROVOD_TIMELINE=str(tmp_path / "trace.json")))
    events = json.loads((tmp_path / "trace.json").read_text())
    assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "BROADCAST"} <= {event["name"] for event in events}
    for rank, record in enumerate(found):
        assert record["accuracy"] > 0.9
        assert record["digests"][0] == record["digests"][1]
        assert (record["total"], record["epoch"], record["is_error"]) == ([2.0] * 3, 3, True)
        assert record["environment"] == {"RANK": str(rank), "SIZE": "2", "LOCAL_RANK": str(rank), "CROSS_SIZE": "1"}
    assert len(found) == 2


@needs_torch
def test_a_torch_program_that_mpiexec_starts_itself(begin: Any) -> None:
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        pytest.skip("mpiexec is not beside this Python")
    words = ("-m", "ringlet", "run", "--horovod", HERE / "horovod_torch_program.py", "--fp16")
    done = begin([str(mpiexec), "-n", "2", sys.executable, *map(str, words)], {}).finish()
    found = records(done)
    assert [record["size"] for record in found] == [2, 2]
    assert len({digest for record in found for digest in record["digests"]}) == 1


@needs_tensorflow
def test_a_keras_program(begin: Any, tmp_path: Path) -> None:
    words = ("-n", 2, "--launcher", "local", HERE / "horovod_keras_program.py", tmp_path / "m.keras")
    done = launch(begin, *words, **QUIET, **QUICK)
    first, second = records(done)
    assert first["weights"] == second["weights"] == first["loaded"]
    assert first["accuracy"] == second["accuracy"] > 0.9
    assert first["gradient"] == second["gradient"] == [3.0, 6.0]


@needs_torch
def test_without_the_option_horovod_is_not_there(begin: Any) -> None:
    command = [sys.executable, "-m", "ringlet", "run", "-n", "1", str(HERE / "horovod_torch_program.py")]
    done = begin(command, {}).finish()
    assert "No module named 'horovod'" in done.stderr


@needs_torch
def test_objects_are_the_same_under_both_names() -> None:
    text = (
        "import horovod, horovod.torch, ringlet.torch, ringlet.launch.function\n"
        "from horovod.torch.compression import Compression\n"
        "from horovod.torch.elastic.state import TorchState\n"
        "from horovod.torch import *\n"
        "assert DistributedOptimizer is ringlet.torch.DistributedOptimizer\n"
        "assert Compression is ringlet.torch.Compression and TorchState is ringlet.torch.elastic.TorchState\n"
        "assert horovod.torch.__spec__.name == 'horovod.torch' and ringlet.torch.__spec__.name == 'ringlet.torch'\n"
        "assert horovod.run is ringlet.launch.horovod.run_like_horovod and horovod.__version__ == '0.28.1'\n"
        "assert 'allreduce_' in dir(horovod.torch) and not hasattr(horovod.torch, 'nothing')\n"
        "try:\n    import horovod.spark\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(FOLDER), str(FOLDER.parents[1])])}
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("No module named 'horovod.spark': Ringlet does not run on Spark: ")


def test_settings_are_translated_unless_ringlet_has_its_own() -> None:
    environ = {
        "HOROVOD_TIMELINE": "trace.json",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9",
        "RINGLET_STALL_ERROR_SECONDS": "7",
        "HOROVOD_CYCLE_TIME": "3",
    }
    assert translated(environ) == {"RINGLET_TRACE": "trace.json", "RINGLET_STALL_WARNING_SECONDS": "5"}
    off = translated({"HOROVOD_STALL_CHECK_DISABLE": "1", "HOROVOD_STALL_CHECK_TIME_SECONDS": "5"})
    assert off == {"RINGLET_STALL_WARNING_SECONDS": "0", "RINGLET_STALL_ERROR_SECONDS": "0"}
    assert translated({"HOROVOD_STALL_CHECK_DISABLE": "0"}) == {}


def test_places_are_told_as_horovodrun_does() -> None:
    environ = {MARK: "1"}
    tell_place(World("mpich", 5, 8, 1, 4), environ)
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    assert [environ[f"HOROVOD_{name}"] for name in names] == ["5", "8", "1", "4", "1", "2"]
    plain: dict[str, str] = {}
    tell_place(None, plain)
    assert plain == {}


def test_another_horovod_that_is_loaded_is_not_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "horovod.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    import horovod  # noqa: F401

    with pytest.raises(UsageError, match="another package 'horovod'"):
        enable({})
    monkeypatch.delitem(sys.modules, "horovod")
