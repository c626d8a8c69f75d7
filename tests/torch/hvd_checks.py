"""All checks of ``ringlet.torch`` in one start of ranks: for each None, or how it failed on this rank."""

from __future__ import annotations

import inspect
import sys
import time
import traceback
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ringlet.comm import world
from ringlet.comm.contract import Communicator

MODULES = (
    "hvd_collectives",
    "hvd_disagreements",
    "hvd_gradients",
    "hvd_optimizer",
    "hvd_optimizer_options",
    "hvd_adasum",
    "hvd_batch_norm",
    "hvd_broadcasting",
    "hvd_data",
    "hvd_elastic",
)


def names() -> list[str]:
    """Of all checks, as module.function."""
    return [
        f"{module}.{name}"
        for module in MODULES
        for name, function in inspect.getmembers(import_module(module), inspect.isfunction)
        if name.startswith("check_") and function.__module__ == module
    ]


def run_all(comm: Communicator, folder: str, only: str = "") -> dict[str, str | None]:
    """Names are printed as checks begin, so that the output of a job that hangs tells where."""
    import torch

    import ringlet.torch as hvd

    torch.sparse.check_sparse_tensor_invariants.disable()  # PyTorch wants it said
    world.use(comm)
    hvd.init()
    results: dict[str, str | None] = {}
    for full_name in names():
        if only not in full_name:
            continue
        module, name = full_name.split(".")
        function = getattr(import_module(module), name)
        place = Path(folder) / name
        place.mkdir(exist_ok=True)
        sys.stderr.write(f"rank {comm.rank} after {time.process_time():.1f} s of work: {full_name}\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                wanted = inspect.signature(function).parameters
                function(**{key: value for key, value in {"folder": place, "comm": comm}.items() if key in wanted})
        except (Exception, pytest.fail.Exception):
            results[full_name] = traceback.format_exc()
            sys.stderr.write(results[full_name] or "")
        else:
            results[full_name] = None
        if comm.allreduce(np.array([results[full_name] is not None]))[0]:  # ranks may be out of step: begin anew
            hvd.shutdown()
            world.use(comm)
            hvd.init()
    hvd.shutdown()
    return results
