"""All checks of a backend run in one start of ranks, whose results serve many tests, also of other test processes."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "parallel"))

from harness import JobError, run_ranks

CHECKS = Path(__file__).with_name("keras_checks.py")
ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # compiling takes longer than the few steps of a check
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    "RINGLET_STALL_ERROR_SECONDS": "150",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_cpu_use_fusion_emitters=false",  # these compile slowly
}
TWO_RANKS = ("checks_training", "checks_traps", "checks_callbacks", "checks_values", "checks_state")
THREE_RANKS = ("checks_three_ranks", "checks_values")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """All tests of a backend go to one test process, so that others need not wait for its job."""
    for item in items:
        if item.path.parent == CHECKS.parent:
            item.add_marker(pytest.mark.timeout(900))
            if "backend" in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group(f"keras-{item.callspec.params['backend']}"))


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes of this run share."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "keras"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def checked(job_folder: Path) -> Callable[..., list[Any]]:
    """``checked(backend, name)``: what a check gave on every rank; who asks first runs all checks of that backend."""
    known: dict[str, Any] = {}

    def results(backend: str, name: str, num_ranks: int = 2) -> list[Any]:
        if find_spec("keras") is None or find_spec(backend) is None:
            pytest.skip(f"needs Keras on {backend}: pip install keras {backend}")
        job = f"{backend}-{num_ranks}"
        if job not in known:
            known[job] = _run_or_read(job_folder / job, backend, num_ranks)
        if isinstance(known[job], str):
            raise JobError(known[job])
        found = [rank[name] for rank in known[job]]
        errors = [f"rank {rank}: {result['error']}" for rank, result in enumerate(found) if "error" in result]
        if errors:
            pytest.fail("\n".join(errors), pytrace=False)
        return [result["value"] for result in found]

    return results


def _run_or_read(path: Path, backend: str, num_ranks: int) -> Any:
    """The results by rank, or what went wrong as a text."""
    with path.with_suffix(".json").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if not text:
            text = json.dumps(_run(path, backend, num_ranks))
            file.write(text)
        return json.loads(text)


def _run(path: Path, backend: str, num_ranks: int) -> Any:
    path.mkdir()
    arguments = {"folder": str(path), "modules": TWO_RANKS if num_ranks == 2 else THREE_RANKS}
    compiled = path / "compiled"  # many small models are alike: JAX compiles what is, once
    environment = ENVIRONMENT | {"KERAS_BACKEND": backend, "JAX_COMPILATION_CACHE_DIR": str(compiled)}
    try:
        return run_ranks((CHECKS, "run_all"), num_ranks, arguments=arguments, timeout=420, environment=environment)
    except JobError as error:
        return str(error)
