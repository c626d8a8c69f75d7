"""The frameworks that artifacts are written and run with: imported here, when first needed, and nowhere else."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ringlet.errors import UsageError

_EXTRAS = {
    "openvino": ("OpenVINO", "openvino"),
    "nncf": ("Quantisation (nncf)", "openvino"),
    "onnx": ("ONNX", "onnx"),
    "onnxruntime": ("ONNX Runtime", "onnx"),
    "torch": ("PyTorch", "torch"),
    "keras": ("Keras", "keras"),
    "h5py": ("HDF5 (h5py), which Keras keeps weights in,", "keras"),
    "tensorflow": ("TensorFlow", "keras"),
    "jax": ("JAX", "jax"),
    "pyarrow": ("Parquet (pyarrow)", "database"),
    "starlette": ("Starlette", "watch"),
    "uvicorn": ("Uvicorn", "watch"),
    "tensorboard": ("TensorBoard", "tensorboard"),
    "mlflow": ("MLflow", "mlflow"),
    "prometheus_client": ("The client of Prometheus", "prometheus"),
    "wandb": ("Weights & Biases", "wandb"),
    "matplotlib": ("Matplotlib", "report"),
    "optuna": ("Optuna", "optuna"),
    "fsspec": ("Access to object stores (fsspec)", "remote"),
}
"""What a module is called, and the extra of Ringlet that brings it."""
_TELEMETRY = "openvino_telemetry"


def require(name: str) -> Any:
    """A module of one of the optional libraries; without it an error that says how to get it."""
    library = name.partition(".")[0]
    if library in ("openvino", "nncf"):
        switch_telemetry_off()
    if library == "keras":
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # or TensorFlow praises the processor on stderr
    title, extra = _EXTRAS[library]
    try:
        with garbage_kept():
            return import_module(name)
    except ImportError as error:
        reason = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be used ({error})"
        raise UsageError(f'{title} {reason}. Install it with: pip install "ringlet[{extra}]"') from error


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Within, garbage is not collected: among the thousands of modules of a framework there is none to be found.

    Looking for it takes up to a third of an import.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def remedy(error: BaseException) -> str:
    """How to get the library that an import did not find; empty for other errors and libraries."""
    if isinstance(error, ModuleNotFoundError) and error.name == "horovod":
        return "Programs for Horovod find Ringlet in its place when they are started with: ringlet run --horovod …"
    if not isinstance(error, ModuleNotFoundError) or error.name not in _EXTRAS:
        return ""
    title, extra = _EXTRAS[error.name]
    return f'{title} is not installed. Install it with: pip install "ringlet[{extra}]"'


def check_installed(library: str) -> None:
    """The same error as :func:`require` for a library that is missing, without the time to import it."""
    if find_spec(library) is None:
        require(library)


def switch_telemetry_off() -> None:
    """Keep OpenVINO and nncf from reporting to their makers, which importing them does by default.

    They do without the package that sends; None is how Python marks one that must not be imported. If a program has
    loaded it before, that program's choice stands.
    """
    if _TELEMETRY not in sys.modules:
        sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
