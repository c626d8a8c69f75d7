"""All checks of one backend, in one start of ranks: each gives a value for its test to look at, or how it failed."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ringlet.comm import world
from ringlet.comm.contract import Communicator


def run_all(communicator: Communicator, folder: str, modules: list[str], only: str = "") -> dict[str, Any]:
    """The results of all functions ``check_…`` of the modules, by name; ``only`` those whose name contains it."""
    world.use(communicator)  # ranks have met already
    hvd = _import_quickly()
    import keras

    hvd.init()
    job = SimpleNamespace(folder=Path(folder), backend=keras.backend.backend(), rank=hvd.rank(), size=hvd.size())
    results: dict[str, Any] = {}
    for module in modules:
        for name, function in inspect.getmembers(import_module(module), inspect.isfunction):
            if name.startswith("check_") and only in name:
                results[name.removeprefix("check_")] = _result(function, job)
    hvd.shutdown()
    return results


def _import_quickly() -> Any:
    """``ringlet.keras``, without what Keras imports only because it is installed, and without collecting garbage."""
    gc.disable()
    sys.modules["matplotlib"] = sys.modules["sklearn"] = None  # pictures and wrappers, a second and a half
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        sys.modules["tensorflow"] = None  # must not be needed; Keras imports it for small services where it can
    import ringlet.keras

    gc.freeze()  # frameworks stay to the end: collections look at what the checks make
    gc.enable()
    gc.set_threshold(20_000, 20, 20)  # tracing makes many objects that stay
    return ringlet.keras


def _result(function: Any, job: SimpleNamespace) -> dict[str, Any]:
    began = time.process_time()
    try:
        return {"value": function(job), "seconds": time.process_time() - began}
    except Exception:
        return {"error": traceback.format_exc(), "seconds": time.process_time() - began}
