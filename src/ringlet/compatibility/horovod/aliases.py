"""Imports of Horovod's modules that give the names of Ringlet's: the same objects, loaded once."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, final

ALIASES = {
    "horovod.common": "horovod.basics",
    "horovod.common.basics": "horovod.basics",
    "horovod.common.elastic": "horovod.basics",
    "horovod.common.exceptions": "horovod.basics",
    "horovod.common.process_sets": "horovod.basics",
    "horovod.common.util": "horovod.basics",
    "horovod.runner": "horovod",
    "horovod.torch": "ringlet.torch",
    "horovod.torch.functions": "ringlet.torch",
    "horovod.torch.mpi_ops": "ringlet.torch",
    "horovod.torch.elastic.sampler": "ringlet.torch.elastic",
    "horovod.torch.elastic.state": "ringlet.torch.elastic",
    "horovod.keras": "ringlet.keras",
    "horovod.tensorflow.compression": "ringlet.keras.compression",
    "horovod.tensorflow.elastic": "ringlet.keras.elastic",
    "horovod.tensorflow.functions": "horovod.tensorflow",
    "horovod.tensorflow.keras": "ringlet.keras",
    "horovod.tensorflow.mpi_ops": "horovod.tensorflow",
}
"""What is imported for a name; names below one of these are looked for below its target."""


def target_of(name: str) -> str | None:
    """The module that stands behind a name of Horovod's; None if the name means itself or nothing."""
    if name in ALIASES:
        return ALIASES[name]
    parent, _, last = name.rpartition(".")
    behind = target_of(parent) if parent else None
    if behind is None or not behind.startswith("ringlet."):
        return None
    candidate = f"{behind}.{last}"
    return candidate if importlib.util.find_spec(candidate) is not None else None


@final
class _Alias(ModuleType):
    """A module by another name: what it is asked for, the module behind it gives."""

    def __init__(self, name: str, behind: ModuleType) -> None:
        super().__init__(name, behind.__doc__)
        self._behind = behind
        self.__path__: list[str] = []  # there may be modules below it

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._behind, name)
        except AttributeError:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'") from None

    def __dir__(self) -> list[str]:
        return dir(self._behind)


@final
class _Finder(MetaPathFinder, Loader):
    """Finds the names that have a target."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a name that has a target."""
        if not fullname.startswith("horovod.") or target_of(fullname) is None:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Load the target."""
        behind = target_of(spec.name)
        assert behind is not None
        return _Alias(spec.name, import_module(behind))

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to do: the target has been loaded."""


def install() -> None:
    """From now on imports of Horovod's modules find Ringlet's. Harmless when repeated."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
