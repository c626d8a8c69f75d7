"""Keras models as networks of a trainer, on each backend; see ``keras_model_checks`` for what each check says."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ringlet

CHECKS = ["twenty_steps", "own_loss", "weights", "regularisers", "kinds_of_variables", "resuming", "layouts", "masks"]
BACKENDS = {
    "torch": [*CHECKS, "files", "refusals", "exports"],
    "tensorflow": [*CHECKS, "files", "exports"],
    "jax": ["twenty_steps", "resuming"],
}
"""Fewer where every model is compiled."""
ANY_SIZE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
EXTRAS = {"torch": "keras,torch", "tensorflow": "keras", "jax": "jax"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_keras_model_trains(backend: str, tmp_path: Path) -> None:
    """All checks of a backend in one process."""
    if missing := [name for name in ("keras", backend) if importlib.util.find_spec(name) is None]:
        pytest.skip(f"the engine keras on {backend} needs {missing[0]}: pip install 'ringlet[{EXTRAS[backend]}]'")
    names = [name for name in BACKENDS[backend] if name != "exports" or importlib.util.find_spec("openvino")]
    ours = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1", "RINGLET_TUNING": "off", "RINGLET_CACHE": str(tmp_path)}
    ours |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")} | ANY_SIZE  # replicas that are alike are compiled once
    process = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("keras_model_checks.py")), str(tmp_path), *names],
        env={**os.environ, "PYTHONPATH": str(Path(ringlet.__file__).parents[1]), **ours},
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    said = json.loads(process.stdout.splitlines()[-1])
    assert list(said) == names
    wrong = [f"{name}:\n{text}" for name, text in said.items() if text]
    assert not wrong, "\n".join(wrong)
