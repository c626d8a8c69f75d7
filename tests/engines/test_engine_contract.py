"""One suite over all engines; see ``engine_checks`` for what each check says."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ringlet as package


def load_checks():
    path = Path(__file__).with_name("engine_checks.py")
    description = importlib.util.spec_from_file_location("engine_checks", path)
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


checks = load_checks()
CONTRACT = ["foreign_buffers", "readiness", "empty_batches", "scales", "inference", "timeline", "refusals"]
CONTRACT += ["overflowing_statistics", "mixed_precision"]
PARITY = ["batch_sizes", "dropout", "operations", "losses", "huge_logits"]
PARITY += ["options_of_losses", "weights_of_losses", "functions_as_losses"]
FAMILIES = [name for name in checks.CHECKS if name.startswith("family_in_float32:")]
PRECISE_FAMILIES = [name for name in checks.CHECKS if name.startswith("family_in_float64:")]
COMPILED = [
    *PARITY[:3],
    "huge_logits",
    "weights_of_losses",
    "functions_as_losses",
    "foreign_buffers",
    "family_in_float32:simplecnn",
    "family_in_float32:unet",
]
ON_KERAS = {
    "torch": [*CONTRACT, *PARITY, *FAMILIES],
    "tensorflow": [*COMPILED, *CONTRACT[1:], "family_in_float64:vgg3dobn", "family_in_float64:resnet20", "resuming"],
    "jax": [*COMPILED, "overflowing_statistics", "mixed_precision"],
}
"""All families where nothing is compiled; elsewhere a few, since compiling takes its time."""
ANY_SIZE = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
EXTRAS = {"torch": "keras,torch", "tensorflow": "keras", "jax": "jax"}


@pytest.mark.parametrize("check", [*CONTRACT, *FAMILIES])
def test_native_engine(check):
    checks.CHECKS[check]("native")


@pytest.mark.parametrize("check", [*CONTRACT, *PARITY, "resuming", *FAMILIES, *PRECISE_FAMILIES])
def test_torch_engine(check):
    pytest.importorskip("torch", reason="the engine torch needs PyTorch: pip install 'ringlet[torch]'")
    checks.CHECKS[check]("torch")


@pytest.mark.parametrize(
    ("family", "tensor"), [("simplecnn", 0), ("resnet20", -3), ("densenet121", 7), ("inceptionv3", 30)]
)
@pytest.mark.parametrize("bad_batch", [0, 1])
def test_a_wrong_gradient_in_float32_is_seen(monkeypatch, family, tensor, bad_batch):
    """One per cent too much in one tensor of one batch, as if one path of one layer were wrong."""

    def spoiled(*arguments, **options):
        replica = create(*arguments, **options)
        if options["dtype"] == "float32":
            original, passes = replica.loss_and_gradients, []

            def compute(*batch, **place):
                output = original(*batch, **place)
                if len(passes) == bad_batch:
                    list(replica.gradients.views.values())[tensor][...] *= np.float32(1.01)
                passes.append(1)
                return output

            replica.loss_and_gradients = compute
        return replica

    checks.clear_batches(family)
    create = checks.create_replica
    monkeypatch.setattr(checks, "create_replica", spoiled)
    with pytest.raises(AssertionError):
        checks.family_in_float32("native", family)


@pytest.mark.parametrize("backend", ON_KERAS)
def test_keras_engine(backend, tmp_path):
    """All checks of a backend in one process."""
    if missing := [name for name in ("keras", backend) if importlib.util.find_spec(name) is None]:
        pytest.skip(f"the engine keras on {backend} needs {missing[0]}: pip install 'ringlet[{EXTRAS[backend]}]'")
    names = [name for name in ON_KERAS[backend] if name != "resuming" or importlib.util.find_spec("torch")]
    ours = {"KERAS_BACKEND": backend, "OMP_NUM_THREADS": "1", "RINGLET_TUNING": "off", "RINGLET_CACHE": str(tmp_path)}
    ours |= {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "jax")} | ANY_SIZE  # replicas that are alike are compiled once
    process = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("engine_checks.py")), *names],
        env={**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1]), **ours},
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
