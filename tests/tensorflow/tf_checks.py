"""All checks of ``ringlet.tensorflow`` in one start of ranks: for each None, or how it failed on this rank."""

from __future__ import annotations

import ast
import gc
import sys
import traceback
import warnings
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from ringlet.comm import world
from ringlet.comm.contract import Communicator

MODULES = ("tf_collectives", "tf_gradients", "tf_training", "tf_state")


def names() -> list[str]:
    """Of all checks, as module.function; TensorFlow is not imported for it."""
    found = []
    for module in MODULES:
        tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        found += [f"{module}.{name}" for name in functions if name.startswith("check_")]
    return found


def run_all(comm: Communicator) -> dict[str, str | None]:
    """Each check leaves the ranks in step, or they begin again."""
    gc.disable()
    sys.modules["matplotlib"] = sys.modules["sklearn"] = None  # which Keras imports only because they are installed
    world.use(comm)
    import ringlet.tensorflow as hvd

    gc.freeze()
    gc.enable()
    hvd.init(process_sets=[[0]])
    results: dict[str, str | None] = {}
    for full_name in names():
        module, name = full_name.split(".")
        sys.stderr.write(f"rank {comm.rank}: {full_name}\n")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)
                warnings.filterwarnings("ignore", "__array__ implementation")  # of TensorFlow's variables
                getattr(import_module(module), name)()
        except (Exception, pytest.fail.Exception):
            results[full_name] = traceback.format_exc()
        else:
            results[full_name] = None
        if comm.allreduce(np.array([results[full_name] is not None]))[0]:
            hvd.shutdown()
            world.use(comm)
            hvd.init(process_sets=[[0]])
    hvd.shutdown()
    return results
