"""The names of Horovod for programs that import it, over Ringlet; see ``ringlet run --horovod``.

Imports of Horovod's modules give the names of Ringlet's: the same objects, loaded once.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, final

from ringlet.launch.horovod import run_like_horovod as run

__all__ = ["__version__", "run"]
__version__ = "0.28.1"
"""The version whose names and semantics are kept."""

ALIASES = {
    "horovod.common": "ringlet.named.horovod",
    "horovod.common.basics": "ringlet.named.horovod",
    "horovod.common.elastic": "ringlet.named.horovod",
    "horovod.common.exceptions": "ringlet.named.horovod",
    "horovod.common.process_sets": "ringlet.named.horovod",
    "horovod.common.util": "ringlet.named.horovod",
    "horovod.runner": "horovod",
    "horovod.torch": "ringlet.torch",
    "horovod.torch.compression": "ringlet.torch.tensors",
    "horovod.torch.functions": "ringlet.torch",
    "horovod.torch.mpi_ops": "ringlet.torch",
    "horovod.torch.elastic.sampler": "ringlet.torch.elastic",
    "horovod.torch.elastic.state": "ringlet.torch.elastic",
    "horovod.keras": "ringlet.keras",
    "horovod.tensorflow.compression": "ringlet.keras.exchange",
    "horovod.tensorflow.elastic": "ringlet.keras.elastic",
    "horovod.tensorflow.functions": "horovod.tensorflow",
    "horovod.tensorflow.keras": "ringlet.keras",
    "horovod.tensorflow.mpi_ops": "horovod.tensorflow",
}
"""What is imported for a name; names below one of these are looked for below its target."""


def target_of(name: str) -> str | None:
    """The module that a name of Horovod's stands for; None if the name means itself or nothing."""
    if name in ALIASES:
        return ALIASES[name]
    parent, _, last = name.rpartition(".")
    found = target_of(parent) if parent else None
    if found is None or not found.startswith("ringlet."):
        return None
    candidate = f"{found}.{last}"
    return candidate if importlib.util.find_spec(candidate) is not None else None


@final
class _Alias(ModuleType):
    """A module by another name: what it is asked for, its target gives."""

    def __init__(self, name: str, target: ModuleType) -> None:
        super().__init__(name, target.__doc__)
        self._target = target
        self.__path__: list[str] = []  # there may be modules below it

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._target, name)
        except AttributeError:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'") from None

    def __dir__(self) -> list[str]:
        return dir(self._target)


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
        target = target_of(spec.name)
        assert target is not None
        return _Alias(spec.name, import_module(target))

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to do: the target has been loaded."""


def install() -> None:
    """From now on imports of Horovod's modules find Ringlet's. Harmless when repeated."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


install()
