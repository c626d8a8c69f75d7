"""The names of Horovod for programs that import it, over Ringlet; see ``ringlet run --horovod``.

Imports of Horovod's modules give the names of Ringlet's: the same objects, loaded once. What Ringlet has no other use
for, private names that programs import all the same, is in modules of this package.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, final

from ringlet.comm.horovod_variables import MARK
from ringlet.launch.horovod import run_like_horovod as run

__all__ = ["__version__", "run"]
__version__ = "0.28.1"
"""The version whose names and semantics are kept."""

ALIASES = {
    "horovod._keras": "ringlet.keras",
    "horovod.common.basics": "ringlet.named.horovod",
    "horovod.common.elastic": "ringlet.elastic.horovod",
    "horovod.common.exceptions": "ringlet.named.horovod",
    "horovod.common.process_sets": "ringlet.named.horovod",
    "horovod.keras": "ringlet.keras",
    "horovod.tensorflow.compression": "ringlet.tensorflow.tensors",
    "horovod.tensorflow.elastic": "ringlet.tensorflow.elastic",
    "horovod.tensorflow.functions": "ringlet.tensorflow.variables",
    "horovod.tensorflow.keras": "ringlet.keras",
    "horovod.tensorflow.mpi_ops": "horovod.tensorflow",
    "horovod.tensorflow.sync_batch_norm": "ringlet.tensorflow.sync_batch_norm",
    "horovod.torch": "ringlet.torch",
    "horovod.torch.compression": "ringlet.torch.tensors",
    "horovod.torch.elastic.sampler": "ringlet.torch.elastic",
    "horovod.torch.elastic.state": "ringlet.torch.elastic",
    "horovod.torch.functions": "ringlet.torch",
    "horovod.torch.mpi_ops": "ringlet.torch",
}
"""What is imported for a name; names below one of these are looked for below its target."""

REFUSED = {
    "horovod.mxnet": "MXNet is retired and Ringlet has no interface for it: use horovod.torch or horovod.keras",
    "horovod.spark": (
        "Ringlet does not run on Spark: write the data to files and start the program with `ringlet run --horovod`, or "
        "train within a barrier stage whose tasks start `ringlet run`"
    ),
    "horovod.ray": (
        "Ringlet does not run on Ray: start the program with `ringlet run --horovod`, on several machines with -H"
    ),
    "horovod.tensorflow.compute_service": "Ringlet has no service for tf.data: each worker reads its own share",
    "horovod.tensorflow.data": "Ringlet has no service for tf.data: each worker reads its own share",
}
"""Modules of Horovod that Ringlet has nothing for, with what to do instead."""
_KERAS = ("horovod.keras", "horovod.tensorflow.keras")


def target_of(name: str) -> str | None:
    """The module that a name of Horovod's stands for; None if the name means itself or nothing."""
    if name in ALIASES:
        return ALIASES[name]
    parent, _, last = name.rpartition(".")
    found = target_of(parent) if parent else None
    if found is None or not found.startswith("ringlet."):
        return None
    candidate = f"{found}.{last}"
    return candidate if _exists(candidate) else None


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what should hold it is no package
        return False


@final
class _Alias(ModuleType):
    """A module by another name: what it is asked for, its target gives; else a module below it."""

    def __init__(self, name: str, target: ModuleType) -> None:
        super().__init__(name, target.__doc__)
        self._target = target
        self.__path__: list[str] = []  # there may be modules below it

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._target, name)
        except AttributeError:
            below = f"{self.__name__}.{name}"
            if not name.startswith("__") and target_of(below) is not None:
                return import_module(below)
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'") from None

    def __dir__(self) -> list[str]:
        return dir(self._target)


@final
class _Finder(MetaPathFinder, Loader):
    """Finds the names that have a target; says of others why there is nothing."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a name that has a target."""
        if not fullname.startswith("horovod."):
            return None
        if fullname in REFUSED:
            raise ModuleNotFoundError(f"No module named '{fullname}': {REFUSED[fullname]}", name=fullname)
        return None if target_of(fullname) is None else ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Load the target."""
        target = target_of(spec.name)
        assert target is not None
        module = _Alias(spec.name, import_module(target))
        if spec.name in _KERAS and os.environ.get(MARK):
            from horovod import keras_2

            keras_2.accept()
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to do: the target has been loaded."""


def install() -> None:
    """From now on imports of Horovod's modules find Ringlet's. Harmless when repeated."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


install()
